"""The real session of Transformers: the contract, and what is its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.machine import Machine, probe
from profiles.vocabulary import Config, ModelInfo, Workload
from tests.support.variants import Variants, start
from tuner import engines, process
from tuner.engines.base import Engine, EngineError, Sampling, Session
from tuner.engines.contract import EngineContract, finish, prompt
from tuner.errors import WorkerError
from tuner.measurement.availability import availability
from tuner.measurement.isolation import Deadlines, Worker

pytestmark = [pytest.mark.torch, pytest.mark.real]
THREADS = {"n_threads": 1, "n_threads_batch": 1}


@pytest.fixture(scope="module")
def machine() -> Machine:
    return probe()


class TestTransformers(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return engines.get("transformers")

    @pytest.fixture
    def model_path(self, variants: Variants) -> Path:
        return variants.path("transformers", "f32")

    @pytest.fixture
    def model(self, variants: Variants) -> ModelInfo:
        return variants.model

    @pytest.fixture
    def default(self, engine: Engine, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        # Several threads that wait for each other by spinning collapse beside a busy neighbour.
        return engine.default(machine, model, workload).with_settings(**THREADS)


@pytest.fixture(scope="module")
def session(variants: Variants) -> Iterator[Session]:
    from tuner.engines.transformers.session import TransformersSession

    opened = TransformersSession()
    opened.load(variants.path("transformers", "f32"), {})
    yield opened
    opened.close()


def greedy(session: Session, tokens: list[int], count: int) -> list[int]:
    (found,) = finish(session, [session.add(tokens, count, sampling=Sampling(), ignore_eos=True)])
    return [token.token for token in found]


def held(worker: Worker, settings: dict[str, int]) -> dict[str, Any]:
    """What the worker holds of some settings."""
    payload = {"settings": settings, "context_tokens": 64, "streams": 1}
    answer: Any = worker.request("configure", payload, 60.0)
    return dict(answer["effective"])


def test_without_a_cache_the_answer_is_the_same(session: Session) -> None:
    tokens = session.tokenize("The capital of France is")
    session.configure(THREADS, 64, 1)
    expected = greedy(session, tokens, 8)
    assert b"Paris" in session.detokenize(expected)
    session.configure({**THREADS, "use_cache": False}, 64, 1)
    assert session.effective()["use_cache"] is False
    assert greedy(session, tokens, 8) == expected


def test_beams_give_all_tokens_at_the_end(session: Session) -> None:
    session.configure({**THREADS, "beams": 4}, 64, 1)
    assert session.effective()["beams"] == 4
    tokens = session.tokenize("The capital of France is")
    number = session.add(tokens, 8, ignore_eos=True)
    begun = session.now_ns()
    (first,) = session.step()
    searched = session.now_ns()
    (rest,) = finish(session, [number])
    assert session.now_ns() - searched < 0.1 * (searched - begun)
    assert len(rest) == 7
    assert b"Paris" in session.detokenize([token.token for token in (first, *rest)])
    with pytest.raises(EngineError, match=r"temperature=0.5 with beams=4"):
        session.add(tokens, 8, sampling=Sampling(temperature=0.5))
    with pytest.raises(EngineError, match="64, the context"):
        session.add(tokens, 64)


def test_a_text_in_two_languages_keeps_its_bytes(session: Session) -> None:
    text = "Grüße, 你好! def f(x): return x ** 2"
    assert session.detokenize(session.tokenize(text)) == text.encode()


def test_the_probe_runs_it() -> None:
    found = availability(engines.get("transformers"))
    assert found.available, found.reason
    assert "torch" in (found.build or "")


def test_where_the_cpu_has_no_bfloat16_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.engines.transformers import smoke

    monkeypatch.setattr(smoke, "probe", Machine)
    assert str(smoke.run()["note"]).startswith("bf16 saves memory but not time: this CPU has none")
    monkeypatch.setattr(smoke, "probe", lambda: Machine(features=("fpu", "avx512_bf16")))
    assert "note" not in smoke.run()


@pytest.mark.parametrize("label", ["bf16", "int8", "int8_dynamic", "int8_bnb"])
def test_every_variant_answers(variants: Variants, label: str) -> None:
    with start("transformers", "session", variants.folder) as worker:
        loaded: Any = worker.load(variants.path("transformers", label), {}, Deadlines())
        assert loaded["facts"]["weights"] == label
        held(worker, THREADS)
        worker.request("round", {"prompts": [prompt(20)], "output_tokens": 3, "reuse_prefix": False}, 60.0)


def test_e04_interop_threads_are_set_once_in_a_process(session_worker: Worker) -> None:
    """Another count is a clean refusal, which says that it takes another process."""
    assert held(session_worker, THREADS)["interop_threads"] == 1
    code = (
        "from tuner.engines.transformers.opened import set_interop_threads as once\n"
        "once(1), once(1)\n"
        "try:\n    once(2)\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    ending = process.run([sys.executable, "-P", "-c", code], deadline_s=60.0)
    assert b"EngineError interop_threads=2: this process has 1 already" in ending.stdout, ending.log_tail


def test_e05_the_callers_thread_variables_do_not_count(
    variants: Variants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GOMP_CPU_AFFINITY", "0")
    most = probe().effective.cpu_count
    with start("transformers", "session", variants.folder) as worker:
        worker.load(variants.path("transformers", "f32"), {}, Deadlines())
        found = held(worker, {"n_threads": most, "n_threads_batch": most})
    assert found["n_threads"] == found["n_threads_batch"] == most


def test_k06_one_openmp_runtime_in_the_process(session_worker: Worker) -> None:
    mapped = Path(f"/proc/{session_worker.pid}/maps").read_text()
    runtimes = set(re.findall(r"/\S*lib(?:gomp|iomp|omp)\S*\.so\S*", mapped))
    assert len(runtimes) == 1, runtimes


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    from tuner.engines.transformers.session import TransformersSession

    with pytest.raises(EngineError, match=r"lacks config.json"):
        TransformersSession().load(tmp_path, {})


def test_a_worker_reports_a_broken_folder_in_one_line(variants: Variants, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with (
        start("transformers", "session", variants.folder) as worker,
        pytest.raises(WorkerError, match="cannot open") as caught,
    ):
        worker.load(tmp_path, {}, Deadlines())
    assert "\n" not in str(caught.value)
