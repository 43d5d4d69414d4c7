"""S02: kill -9 of the watching process at named points, and what the next start makes of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import Machine
from profiles.records import Profile, ProfileStatus, Promotion, PromotionAction, PromotionRecord
from profiles.store import Store
from profiles.vocabulary import WORKLOADS, Config, Objective
from service.daemon import memory as side_file
from service.daemon.decide import Candidate, Limits, Sight
from service.daemon.drift import Reference
from service.daemon.memory import Circumstances, Memory
from service.daemon.ports import Gain
from service.daemon.promotion import kept_out, numbers
from service.daemon.tick import Rules, Watcher
from tests.support.surface import MODEL
from tests.support.years import QUESTION, Year

LIMITS = Limits(check_s=20 * 3600, retry_s=600, daily_s=3600, patience=3)
DAYS = 6
POINTS = [
    *(f"{verb}:{number}:{moment}" for verb in ("record", "keep") for number in (1, 2)
      for moment in ("before", "after")),
    "run:1:before", "run:1:after", "search:1:after", "search:2:after", "compare:1:after", "replace:1:before",
    "replace:2:before",
]  # fmt: skip


class Stored(Year):
    """Keeps profiles, history and memory in a folder; on day 3 the engine is another. Dies at a point."""

    def __init__(self, folder: Path, point: str) -> None:
        super().__init__(seed=1)
        self.true = dict.fromkeys(self.true, 0.0) | {"a": -0.3}
        self.folder = folder
        self.store = Store.open(folder / "store.sqlite3")
        self.store.save_machine(Machine.from_json({"schema_version": 1, "fingerprint": QUESTION[0]}), "host")
        self.store.save_model(replace(MODEL, digest=QUESTION[1]), "package:tiny", "tiny")
        self._verb, number, self._moment = point.split(":") if point else ("", "0", "")
        self._left = int(number)

    def _passes(self, verb: str, moment: str) -> None:
        if (verb, moment) == (self._verb, self._moment):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _named(self) -> dict[str, str]:
        return {one.id: one.config.variant for one in self.store.profiles()}

    def config(self, profile: str | None) -> str:
        return "default" if profile is None else self._named()[profile]

    async def look(self, running: str | None, question: tuple[str, str] | None) -> Sight:
        every = [one for one in self.store.profiles() if one.engine_build == self.circumstances.engine_build]
        newest = every[0] if every else None
        ran = self.store.profile(running) if running else None
        is_new = newest is not None and newest.id not in kept_out(self.history(QUESTION))
        is_new = is_new and (ran is None or newest.created_at > ran.created_at)
        return Sight(
            now_s=1e6 + 86_400 * self.day + self.seconds,
            circumstances=self.circumstances,
            running=running,
            question=question or QUESTION,
            known=newest.id if newest else None,
            candidate=Candidate(newest.id, ran is not None and newest.config == ran.config)
            if is_new
            else None,
        )

    def history(self, question: tuple[str, str]) -> Sequence[PromotionRecord]:
        return self.store.promotions(fingerprint=question[0], model_digest=question[1])

    async def record(
        self, question: tuple[str, str], action: PromotionAction, running: str | None, other: str | None,
        reason: str, gain: Gain | None = None,
    ) -> None:  # fmt: skip
        self._passes("record", "before")
        self.store.record_promotion(
            Promotion(
                fingerprint=question[0], model_digest=question[1], workload=WORKLOADS["chat"], action=action,
                running_id=running, other_id=other, reason=reason, numbers=numbers(gain),
            )
        )  # fmt: skip
        self._passes("record", "after")

    def origin(self, profile: str) -> tuple[Circumstances, Reference]:
        found = self.store.profile(profile)
        here = Circumstances(*QUESTION, found.engine_build, found.kernel)
        return here, Reference(self.true[found.config.variant], 0.02, 8)

    async def keep(self, memory: Memory) -> None:
        self._passes("keep", "before")
        side_file.save(self.folder / "daemon.json", memory)
        self._passes("keep", "after")

    async def search(self) -> None:
        best = min(self.true, key=lambda name: self.true[name])
        default = Config.of("simulated", "default", {})
        self.store.publish(
            Profile(
                fingerprint=QUESTION[0], model_digest=QUESTION[1], workload=WORKLOADS["chat"],
                objectives=(Objective("response_ms"),), quality_level="near-lossless",
                status=ProfileStatus.CONFIRMED, conditions="quiet", config=Config.of("simulated", best, {}),
                variant_digest="00", bits_per_weight=5.0, metrics={"response_ms.p50": 100.0},
                baseline_config=default, baseline_metrics={"response_ms.p50": 130.0},
                engine_build=self.circumstances.engine_build, kernel=self.circumstances.kernel,
            )
        )  # fmt: skip
        self._passes("search", "after")

    async def compare(self, running: str | None, candidate: str) -> Gain:
        gain = await super().compare(running, candidate)
        self._passes("compare", "after")
        return gain

    async def run(self, profile: str | None) -> None:
        self._passes("run", "before")
        await super().run(profile)
        self._passes("run", "after")


def lived(folder: Path, point: str) -> int:
    """Six days in another process, or the last three without a point; minus the signal that ended it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        world = Stored(folder, point)
        world.build = 0 if point else 1
        if point.startswith("replace"):
            replace_file = os.replace

            def dies(source: Path, target: Path) -> None:
                world._passes("replace", "before")
                replace_file(source, target)

            os.replace = dies
        memory, _ = side_file.load(folder / "daemon.json")
        watcher = Watcher(world, memory, Rules(LIMITS))

        async def live() -> None:
            await watcher.begin()
            await world.run(watcher.running)
            for day in range(DAYS) if point else range(3, DAYS):
                world.day, world.build = day, int(day >= 3)
                await watcher.tick()

        asyncio.run(live())
        code = 0
    finally:
        os._exit(code)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once to be copied."""
    path = tmp_path_factory.mktemp("template") / "store.sqlite3"
    Store.open(path).close()
    return path


@pytest.mark.parametrize("point", POINTS)
def test_s02_the_next_start_goes_on_from_the_history(tmp_path: Path, template: Path, point: str):
    shutil.copy(template, tmp_path)
    assert lived(tmp_path, point) == -signal.SIGKILL
    assert lived(tmp_path, "") == 0
    with Store.open(tmp_path / "store.sqlite3") as store:
        history = store.promotions()[::-1]
        newest = store.profile(history[-1].running_id or "")
        assert newest.config.variant == "a"
        assert newest.engine_build == "engine 1"
        for entry in history:
            # The second one has the configuration of the first: a rollback would go to the defaults.
            assert (entry.action, entry.other_id) == (PromotionAction.PROMOTED, None)
        # Two are needed; what a kill cost is searched once more.
        assert len(store.profiles()) <= 3
    assert side_file.load(tmp_path / "daemon.json")[1] is None
