"""What Transformers is said to do, without PyTorch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from probes.machine import Machine, probe
from profiles.vocabulary import Config, ModelInfo, Workload
from tuner import engines
from tuner.engines.base import SOURCE
from tuner.engines.transformers.describe import Transformers
from tuner.engines.transformers.variants import LABELS

CHAT = Workload("chat", 128, 128)
GGUF = ModelInfo(
    name="m", digest="00", format="gguf", architecture="llama", parameter_count=1000, layer_count=1,
    hidden_size=64, head_count=2, kv_head_count=1, key_length=32, value_length=32, vocabulary_size=40,
    context_length=8192, file_bytes=600, tensor_mix=(("q4_1", 600),), bits_per_weight=4.8,
)  # fmt: skip
FOLDER = replace(GGUF, format="huggingface", tensor_mix=(("bf16", 2000),), file_bytes=2000)


@pytest.fixture
def machine() -> Machine:
    return probe()


def default(machine: Machine, **changes: bool | int | str) -> Config:
    return Transformers().default(machine, FOLDER, CHAT).with_settings(**changes)


def test_a_folder_is_the_source_itself() -> None:
    recipes = Transformers().recipes(FOLDER)
    assert [recipe.label for recipe in recipes] == [SOURCE, *LABELS[1:]]
    assert [len(recipe.chain) for recipe in recipes] == [0, 1, 1, 1, 1]
    assert recipes[0].estimated_bytes == 4000, "float32 takes four bytes, whatever the folder holds"


def test_of_a_gguf_file_every_variant_shares_one_step() -> None:
    recipes = Transformers().recipes(GGUF)
    assert [recipe.label for recipe in recipes] == list(LABELS)
    assert {recipe.chain[0] for recipe in recipes} == {recipes[0]}
    assert recipes[0].maker == "tuner.engines.conversion.from_gguf"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (replace(GGUF, architecture="plamo"), "the architecture 'plamo' is not among those it runs"),
        (replace(FOLDER, architecture="plamo"), "the architecture 'plamo' is not among those it runs"),
    ],
)
def test_an_architecture_that_it_can_not_run_is_said_before_any_trial(model: ModelInfo, reason: str) -> None:
    assert reason in (engines.unread(Transformers(), model) or "")


def test_other_folders_are_not_read() -> None:
    assert engines.unread(Transformers(), replace(GGUF, format="onnx")) == "does not read onnx files"


def test_a_folder_is_made_for_it() -> None:
    assert engines.default_names(FOLDER)[0] == "transformers"
    assert engines.default_names(GGUF)[0] == "llama_cpp"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attention": "flash"}, "attention=flash: allowed is eager or sdpa"),
        ({"use_cache": 1}, "use_cache=1: allowed is true or false"),
        ({"beams": 0}, "beams=0: allowed is 1 to 16"),
        ({"interop_threads": 0}, "interop_threads=0: allowed is 1 to"),
        ({"n_threads": 4096}, "n_threads=4096: allowed is 1 to"),
        ({"beams": 4, "use_cache": False}, None),
    ],
)
def test_what_can_not_run_is_named(
    machine: Machine, changes: dict[str, bool | int | str], reason: str | None
) -> None:
    problem = Transformers().violation(default(machine, **changes), machine, FOLDER, CHAT)
    assert problem is None if reason is None else (problem or "").startswith(reason)


def test_beams_serve_one_stream(machine: Machine) -> None:
    config = default(machine, beams=4)
    problem = Transformers().violation(config, machine, FOLDER, replace(CHAT, streams=2))
    assert problem == "beams=4 with 2 streams: allowed is 1"


def test_what_costs_without_gain_is_not_searched(machine: Machine) -> None:
    values = {d.name: d.values for d in Transformers().dimensions(machine, FOLDER, CHAT)}
    assert (values["use_cache"], values["beams"], len(values["interop_threads"])) == ((True,), (1,), 1)
