"""The watcher's look at this machine, its record, and what it does when neither can be had."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import probe
from profiles.errors import StoreError
from profiles.records import Profile, ProfileStatus, PromotionAction
from profiles.store import Store
from profiles.vocabulary import WORKLOADS, Config, Interval, Objective
from service.answers import Answers
from service.daemon import seeing
from service.daemon.here import Here
from service.daemon.memory import Memory
from service.daemon.ports import CouldNotError, Gain
from service.daemon.settings import Configuration
from service.jobs import Jobs
from service.state import ServiceState
from tests.support.tiny import write_tiny_model
from tuner.engines.base import Availability
from tuner.home import Home
from tuner.setup import add_model

CALM = {
    "engine": "simulated",
    "model": "tiny",
    "idle_seconds": 0.0,
    "busy_share": 1.0,
    "steal_share": 1.0,
    "cpu_pressure_percent": 100.0,
}
MACHINE = probe()
DEFAULT = Config.of("simulated", "source", {"n_threads": 1})
BEST = Config.of("simulated", "q8_0", {"n_threads": 2})


class Build:
    """The engine as the probe's child would tell it; one that can be upgraded."""

    version = "1.0"
    reason: str | None = None

    def __call__(self, engine: object, **_: object) -> Availability:
        return Availability("simulated", self.reason is None, version=self.version, reason=self.reason)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Build:
    build = Build()
    monkeypatch.setattr(seeing, "availability", build)
    monkeypatch.setattr(seeing, "probe", lambda: MACHINE)
    return build


@pytest.fixture
def here(home: Path, tmp_path: Path, build: Build, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setattr("service.daemon.here.GLANCE_S", 0.01)
    place = Home(home)
    configuration = Configuration(None, CALM, place)
    with Store.open(place.database) as store:
        store.save_machine(MACHINE, "host")
        add_model(store, place, str(write_tiny_model(tmp_path / "tiny.gguf")), None)
        service = ServiceState(
            configuration.current, place, store, MACHINE, Answers(store), Jobs(place, None)
        )
        yield Here(service, configuration)


def service_of(here: Here) -> ServiceState:
    return here._service


def publish(here: Here, config: Config = BEST, **changes: object) -> str:
    store = service_of(here).store
    profile = Profile(
        fingerprint=MACHINE.fingerprint, model_digest=store.model("tiny").info.digest,
        workload=WORKLOADS["chat"], objectives=(Objective("response_ms"),), quality_level="near-lossless",
        status=ProfileStatus.CONFIRMED, conditions="quiet", config=config, variant_digest="cd" * 32,
        bits_per_weight=8.5, metrics={"response_ms.p50": 800.0}, baseline_config=DEFAULT,
        baseline_metrics={"response_ms.p50": 1000.0}, speedup=Interval(1.25, 1.2, 1.3, 0.992),
        engine_build="1.0", kernel=MACHINE.kernel or "",
    )  # fmt: skip
    return store.publish(replace(profile, **changes)).id


def look(here: Here, running: str | None = None):
    return asyncio.run(here.look(running, None))


def test_a_new_machine_knows_nothing(here: Here):
    sight = look(here)
    assert (sight.known, sight.candidate, sight.unable, sight.busy, sight.broken) == (None,) * 5
    assert sight.circumstances.fingerprint == MACHINE.fingerprint
    assert sight.circumstances.engine_build == "1.0"
    assert sight.question == sight.circumstances.question


def test_only_answers_to_the_question_under_todays_circumstances_are_candidates(here: Here):
    first = publish(here)
    assert look(here).known == first
    assert look(here, first).candidate is None
    publish(here, objectives=(Objective("ttft_ms"),))
    publish(here, quality_level="any")
    publish(here, engine_build="0.9")
    publish(here, kernel="another")
    publish(here, workload=WORKLOADS["rag"])
    assert look(here, first).candidate is None
    second = publish(here, metrics={"response_ms.p50": 700.0})
    found = look(here, first).candidate
    assert found is not None
    assert (found.id, found.is_same) == (second, True)
    third = publish(here, config=BEST.with_settings(n_threads=1), metrics={"response_ms.p50": 600.0})
    found = look(here, first).candidate
    assert found is not None
    assert (found.id, found.is_same) == (third, False)


def test_an_upgraded_engine_is_seen_and_its_profile_stays_known(here: Here, build: Build):
    first = publish(here)
    build.version = "2.0"
    sight = look(here, first)
    assert sight.circumstances.engine_build == "2.0"
    assert (sight.known, sight.candidate) == (first, None)


def test_the_default_that_won_is_the_same_as_running_the_defaults(here: Here):
    publish(here, config=DEFAULT, status=ProfileStatus.NO_GAIN)
    found = look(here).candidate
    assert found is not None
    assert found.is_same


def test_what_was_refused_is_no_candidate_and_what_ran_before_is_told(here: Here):
    first, second = publish(here), publish(here, config=DEFAULT)
    question = look(here).question
    gain = Gain(Interval(1.2, 1.1, 1.3, 0.99), 8)
    asyncio.run(here.record(question, PromotionAction.PROMOTED, first, None, "it is faster", gain))
    asyncio.run(here.record(question, PromotionAction.REFUSED, first, second, "it is not"))
    sight = look(here, first)
    assert (sight.candidate, sight.known, sight.previous) == (None, first, None)
    refused, promoted = here.history(question)
    assert (refused.other_id, promoted.numbers["pairs"]) == (second, 8.0)


def test_with_other_cpus_what_runs_and_is_answered_is_for_those(here: Here, monkeypatch: pytest.MonkeyPatch):
    look(here)
    other = replace(MACHINE, fingerprint="beef")
    monkeypatch.setattr(seeing, "probe", lambda: other)
    assert look(here).circumstances.fingerprint == "beef"
    assert service_of(here).machine == other


def test_a_search_is_for_what_is_served_and_as_long_as_the_settings_say_now(
    here: Here, monkeypatch: pytest.MonkeyPatch
):
    asked: list[object] = []

    async def job(command: str, words: Sequence[str]) -> dict[str, object]:
        asked.extend([command, *words])
        return {}

    look(here)
    settings = here._configuration.current
    changes = {"workload": "rag", "engine": "llama_cpp", "search_minutes": 7.0}
    here._configuration.current = settings.model_copy(update=changes)
    monkeypatch.setattr(here, "_job", job)
    asyncio.run(here.search())
    assert asked == [
        "search", "--model", "tiny", "--workload", "chat", "--budget", "7m", "--fresh", "--engines",
        "simulated",
    ]  # fmt: skip


def test_a_vanished_model_file_is_said_and_what_was_seen_stays(here: Here, tmp_path: Path):
    before = look(here)
    (tmp_path / "tiny.gguf").rename(tmp_path / "away.gguf")
    sight = look(here)
    assert "tiny.gguf" in (sight.unable or "")
    assert sight.circumstances == before.circumstances
    (tmp_path / "away.gguf").rename(tmp_path / "tiny.gguf")
    assert look(here).unable is None


def test_a_model_that_was_never_seen_is_no_beginning(here: Here, tmp_path: Path):
    (tmp_path / "tiny.gguf").unlink()
    with pytest.raises(CouldNotError, match=r"tiny\.gguf"):
        look(here)


def test_an_engine_that_is_gone_is_said(here: Here, build: Build):
    look(here)
    build.reason = "it is not installed"
    assert "simulated: does not run here now" in (look(here).unable or "")


def test_another_model_file_is_another_question(here: Here, tmp_path: Path):
    before = look(here)
    write_tiny_model(tmp_path / "tiny.gguf", weight=0.5)
    after = look(here)
    assert after.circumstances.fingerprint == before.circumstances.fingerprint
    assert after.circumstances.question != before.question


def test_d06_a_full_disk_degrades_and_what_was_decided_is_stored_later(
    here: Here, monkeypatch: pytest.MonkeyPatch
):
    profile = publish(here)
    question = look(here).question
    store = service_of(here).store

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "record_promotion", full)
        asyncio.run(here.record(question, PromotionAction.PROMOTED, profile, None, "it is faster"))
        assert service_of(here).degraded == "degraded: the disk is full"
        assert here.history(question)[0].running_id == profile
        assert "disk is full" in (look(here, profile).unable or "")
        asyncio.run(here.keep(Memory()))
        assert service_of(here).degraded is not None
    asyncio.run(here.keep(Memory()))
    assert service_of(here).degraded is None
    assert [entry.running_id for entry in store.promotions()] == [profile]
    assert len(here.history(question)) == 1


def test_a_store_that_keeps_writers_waiting_stops_nobody_else(here: Here, monkeypatch: pytest.MonkeyPatch):
    profile, question = publish(here), look(here).question
    waits, waited = threading.Event(), []

    def locked(*_: object) -> None:
        waited.append(waits.wait(5.0))

    async def decide() -> None:
        decided = asyncio.create_task(
            here.record(question, PromotionAction.PROMOTED, profile, None, "it is faster")
        )
        await asyncio.sleep(0)
        assert here.history(question)[0].running_id == profile
        waits.set()
        await decided

    monkeypatch.setattr(type(service_of(here).store), "record_promotion", locked)
    asyncio.run(decide())
    assert waited == [True]


def test_d06_a_removed_store_degrades_until_it_is_back(here: Here, home: Path, tmp_path: Path):
    look(here)
    files = list(home.glob("cputune.sqlite3*"))
    for file in files:
        file.rename(tmp_path / file.name)
    assert "the file was removed" in (look(here).unable or "")
    asyncio.run(here.keep(Memory()))
    assert "the file was removed" in (service_of(here).degraded or "")
    for file in files:
        (tmp_path / file.name).rename(file)
    look(here)
    asyncio.run(here.keep(Memory()))
    assert look(here).unable is None


def test_d06_a_side_file_that_can_not_be_written_degrades(here: Here, monkeypatch: pytest.MonkeyPatch):
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    asyncio.run(here.keep(Memory()))
    assert "daemon.json can't be written: No space left" in (service_of(here).degraded or "")


def test_a_profile_brings_its_circumstances_and_its_confirmation(here: Here):
    circumstances, reference = here.origin(publish(here, kernel="6.1"))
    assert (circumstances.engine_build, circumstances.kernel) == ("1.0", "6.1")
    # It came without its pairs: how it stands beside its control has to be learned.
    assert reference is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hours": ("03:00-03:00",)}, "measuring is allowed 03:00-03:00"),
        ({"idle_seconds": 60.0}, "the last request ended"),
    ],
)
def test_what_keeps_it_from_measuring_is_said(here: Here, changes: dict[str, object], said: str):
    here.last_request_s = time.monotonic
    settings = here._configuration.current
    here._configuration.current = settings.model_copy(update=changes)
    assert said in (look(here).busy or "")
