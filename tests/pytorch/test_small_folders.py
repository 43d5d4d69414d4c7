"""Folders of a layer of each architecture that becomes a GGUF file: the same text, tokens and logits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import PIECES, write_byte_tokenizer
from tests.support.variants import start
from tuner.engines.conversion import from_gguf, to_gguf
from tuner.errors import WorkerError
from tuner.measurement.isolation import Deadlines

pytestmark = [pytest.mark.torch, pytest.mark.real]

TEXT = "In 1234 the dogs' zq rose: 98765 of them,\n  and they'LL be 12 or 3 today.\n\nGrüße 你好! " * 2
COMMON = {
    "vocab_size": len(PIECES),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "max_position_embeddings": 256,
    # Large weights: of small ones all answers are alike, right or wrong.
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
KINDS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "llama 3": ("llama", "llama-bpe", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "qwen 2": ("qwen2", "qwen2", {"tie_word_embeddings": False}),
    "qwen 3": ("qwen3", "qwen2", {"head_dim": 64, "tie_word_embeddings": True}),
}


def write_model(folder: Path, kind: str, **options: Any) -> Path:
    """Random weights, the vectors too, and a tokenizer of bytes; options change the configuration."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    name, tokenizer, changes = KINDS[kind]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **{**COMMON, **changes, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    write_byte_tokenizer(folder, tokenizer)
    return folder


def asked(engine: str, path: Path, op: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """One operation of an engine's scorer on a model."""
    with start(engine, "scorer", path.parent) as worker:
        worker.load(path, {"n_threads": 1}, Deadlines())
        return worker.request(op, payload, 60.0)


def referred(folder: Path) -> Mapping[str, Any]:
    """What names the reference that Transformers makes of a folder."""
    reference = str(folder.with_name("reference.npz"))
    request = {"texts": [TEXT], "chat_prompts": [], "positions": 150, "reply_tokens": 0, "path": reference}
    assert asked("transformers", folder, "score_reference", request)["positions"] > 100
    return {"reference": reference}


@pytest.mark.parametrize("kind", KINDS)
def test_llama_cpp_reads_the_file_as_transformers_reads_the_folder(kind: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "folder", kind)
    to_gguf.make(folder, tmp_path / "made.gguf", {})
    found = asked("llama_cpp", tmp_path / "made.gguf", "score_compare", referred(folder))
    assert sum(found["margin"]) / len(found["margin"]) > 0.05, "answers without a preference show nothing"
    assert sum(found["kl"]) / len(found["kl"]) < 1e-4


def test_llama_3_1_keeps_its_rotation_on_the_way_to_a_file_and_back(tmp_path: Path) -> None:
    """Transformers' own reader takes no notice of the factors in the file."""
    rope = {**LLAMA3, "rope_theta": 500000.0, "factor": 32.0, "original_max_position_embeddings": 8192}
    folder = write_model(tmp_path / "folder", "llama 3", rope_parameters=rope, head_dim=64)
    to_gguf.make(folder, tmp_path / "made.gguf", {})
    from_gguf.make(tmp_path / "made.gguf", tmp_path / "back", {"dtype": "float32"})
    assert json.loads((tmp_path / "back" / "config.json").read_text())["rope_parameters"] == rope


def test_another_tokenizer_is_said_and_nothing_compared(tmp_path: Path) -> None:
    """The same weights and text, other token ids: on Transformers itself, and from one engine to another."""
    folder = write_model(tmp_path / "folder", "qwen 2")
    reference = referred(folder)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    document = json.loads((other / "tokenizer.json").read_text())
    vocabulary = document["model"]["vocab"]
    vocabulary["t"], vocabulary["h"] = vocabulary["h"], vocabulary["t"]
    (other / "tokenizer.json").write_text(json.dumps(document))
    to_gguf.make(other, tmp_path / "other.gguf", {})
    for engine, path in (("transformers", other), ("llama_cpp", tmp_path / "other.gguf")):
        with pytest.raises(WorkerError, match="the tokenizer is not the reference's: text 0 differs from"):
            asked(engine, path, "score_compare", reference)


def test_e12_settings_are_what_pytorch_holds_not_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that changes nothing is seen, and so is the code of attention that was really taken."""
    import torch

    from tuner.engines.transformers.session import TransformersSession

    folder = write_model(tmp_path / "folder", "qwen 2")
    for attention in ("eager", "sdpa"):
        session = TransformersSession()
        session.load(folder, {"attention": attention})
        session.configure({"n_threads": 1, "n_threads_batch": 2}, 64, 1)
        held = session.effective()
        assert (held["attention"], held["n_threads"], held["n_threads_batch"]) == (attention, 1, 2)
        session.close()
    torch.set_num_threads(1)
    session = TransformersSession()
    session.load(folder, {})
    with monkeypatch.context() as deaf:
        deaf.setattr(torch, "set_num_threads", lambda threads: None)
        session.configure({"n_threads": 2, "n_threads_batch": 2}, 64, 1)
    assert session.effective()["n_threads"] == 1
    session.close()
