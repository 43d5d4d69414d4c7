"""A model that the engine's build does not know is one refusal, not one a trial."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from profiles.records import TrialRecord
from tests.support.flow import Flow
from tests.support.tiny import KEYS
from tuner.errors import NothingFeasibleError


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    path = tmp_path / "unknown.gguf"
    writer = gguf.GGUFWriter(path, "notarch")
    for key, value in KEYS.items():
        writer.add_uint32(f"notarch.{key}", value)
    writer.add_string("tokenizer.ggml.model", "none")
    writer.add_tensor("token_embd.weight", np.full((256, 64), 0.02, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def trials(flow: Flow) -> tuple[TrialRecord, ...]:
    with flow.store() as store:
        return store.trials(store.studies()[0].id)


@pytest.mark.real
def test_m06_an_unknown_architecture_ends_the_search_once_with_the_engines_words(
    flow: Flow, unknown: Path
) -> None:
    flow.model = unknown
    said = r"does not run: llama\.cpp .* unknown model architecture: 'notarch'; llama_cpp does not open this"
    with pytest.raises(NothingFeasibleError, match=said):
        flow.search(engines=("llama_cpp",), trials=20)
    assert len(trials(flow)) == 2
    assert not list(flow.home.variants.glob("*.gguf"))


def test_m06_a_refusal_is_counted_by_its_words(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPUTUNE_SIMULATED_FAULTS", '{"*": "refuse_on_load"}')
    with pytest.raises(NothingFeasibleError, match="simulated does not open this model with other settings"):
        flow.search(trials=20)
    assert len(trials(flow)) == 2
