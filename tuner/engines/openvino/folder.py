"""The names of the files in a model folder, as OpenVINO GenAI wants them."""

MODEL, WEIGHTS = "openvino_model.xml", "openvino_model.bin"
TOKENIZER, DETOKENIZER = "openvino_tokenizer", "openvino_detokenizer"
"""Each with an .xml and a .bin."""

GENERATION = "generation_config.json"
"""There where the model came from Hugging Face; it may name more tokens that end an answer."""
