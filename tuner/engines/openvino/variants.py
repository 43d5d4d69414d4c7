"""Which variants OpenVINO can make of a model: its graph with the weights as given, f16, int8, int4."""

from __future__ import annotations

from profiles.vocabulary import ModelInfo, Setting
from tuner.engines.base import SOURCE, Recipe
from tuner.engines.conversion import gguf_file, gguf_problem

GGUF, F16, INT8, INT4 = "gguf", "f16", "int8", "int4"
LABELS = (SOURCE, GGUF, F16, INT8, INT4)

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Those of which OpenVINO GenAI's GGUF reader builds a graph."""

FLOAT_TYPES = frozenset({"f32", "f16", "bf16"})
EXACT_TYPES = frozenset({"f32", "f16", "q4_0", "q8_0", "q6_k"})
"""Tensor types that it reads as they are, q6_k as f16; f32 in vectors only."""

ROUNDED_TYPES = frozenset({"q4_1", "q4_k"})
"""Those whose blocks have an offset, which it rounds to a whole step."""

GROUP = 64
"""Weights to a scale in int4: the hidden sizes of small models are multiples of it, not of 128."""

_BYTES = {INT8: 1.0, INT4: 0.6}
"""Per weight, with scales; in int4 the two ends stay int8."""


def refuses(model: ModelInfo) -> str | None:
    """Why no variant can be made of a model; None when some can."""
    if model.format == "openvino":
        return None
    problem = gguf_problem(model)
    if problem is not None:
        return problem
    if model.architecture not in ARCHITECTURES:
        return (
            f"its GGUF reader can't convert the architecture {model.architecture}:"
            f" allowed are {', '.join(ARCHITECTURES)}, or a folder with the model as OpenVINO IR"
        )
    if not model.has_tokenizer:
        return "its GGUF reader needs a model with a tokenizer"
    return None


def recipes(model: ModelInfo) -> tuple[Recipe, ...]:
    """The weights as given where the reader takes them exactly, f16, then what is less exact."""
    floats = reference(model)
    made = [floats]
    types = {kind for kind, _bytes in model.tensor_mix}
    if model.format == "openvino":
        made.insert(0, Recipe(SOURCE, estimated_bytes=model.file_bytes, format="openvino"))
    elif model.format == "gguf" and types <= EXACT_TYPES | ROUNDED_TYPES and main_type(model) != "f32":
        read = Recipe(GGUF, (("weights", "given"),), model.file_bytes, "openvino", needs=("gguf",))
        made.insert(0 if types <= EXACT_TYPES else 1, read)
    return (*dict.fromkeys(made), *(_compressed(label, model, floats) for label in (INT8, INT4)))


def reference(model: ModelInfo) -> Recipe:
    """f16, or the weights as given where they are that."""
    size = 2 * model.parameter_count
    if model.format == "openvino":
        if is_float(SOURCE, model):
            return Recipe(SOURCE, estimated_bytes=model.file_bytes, format="openvino")
        return Recipe(F16, (("weights", F16),), size, "openvino")
    if model.format == "gguf" and main_type(model) == F16:
        return Recipe(GGUF, (("weights", "given"),), model.file_bytes, "openvino", needs=("gguf",))
    widened = Recipe(
        F16, (), size, made_from=gguf_file(model), maker="tuner.engines.openvino.widen", needs=("gguf",)
    )
    return Recipe(F16, (("weights", "given"),), size, "openvino", made_from=widened, needs=("gguf",))


def main_type(model: ModelInfo) -> str:
    """The tensor type that holds most of a model's bytes."""
    return max(model.tensor_mix, key=lambda pair: pair[1], default=("", 0))[0]


def is_float(label: str, model: ModelInfo) -> bool:
    """Whether all matrices of a variant are floats: nothing is there to be quantized dynamically."""
    return label == F16 or (label in (SOURCE, GGUF) and main_type(model) in FLOAT_TYPES)


def _compressed(label: str, model: ModelInfo, floats: Recipe) -> Recipe:
    parameters: tuple[tuple[str, Setting], ...] = (("weights", label),)
    if label == INT4:
        parameters += (("group_size", GROUP),)
    size = int(_BYTES[label] * model.parameter_count)
    made_from = None if floats.is_source else floats
    return Recipe(label, parameters, size, "openvino", made_from=made_from, needs=("nncf",))
