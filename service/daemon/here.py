"""The watcher's surroundings in earnest: this machine, the store, the service and its searches."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probes.conditions import change_between
from probes.errors import CputuneError
from probes.sysfs import Sysfs
from profiles.errors import StoreError
from profiles.records import ProfileRecord, Promotion, PromotionAction, PromotionRecord
from profiles.vocabulary import Interval, Workload
from service.app import serve_generator
from service.daemon import memory as side_file
from service.daemon.decide import Sight
from service.daemon.drift import Reference
from service.daemon.live import Live
from service.daemon.memory import Circumstances, Memory
from service.daemon.ports import CouldNotError, Gain, Pairs
from service.daemon.promotion import numbers
from service.daemon.quiet import disturbance, outside_hours
from service.daemon.seeing import Seen, see
from service.daemon.settings import Configuration
from service.generator.keeper import State
from service.generator.launching import DEFAULTS
from service.jobs import JobState
from service.state import ServiceState
from service.swapping import swap
from tuner import environment
from tuner.measurement.statistics import spread
from tuner.request import workload_named
from tuner.search.objectives import objective_of

log = logging.getLogger(__name__)

GLANCE_S = 1.0
"""Between two snapshots that say whether the machine is quiet."""
FEWEST_PAIRS = 4
"""Of a comparison whose pairs tell a spread."""


class Here:
    """`service.daemon.ports.World` on this machine; use it on the service's event loop."""

    def __init__(self, service: ServiceState, configuration: Configuration) -> None:
        self.live_latencies = Live()
        self._service = service
        self._configuration = configuration
        self._pending: list[Promotion] = []
        self._storing = asyncio.Lock()
        self._seen: Seen | None = None
        self._unread: str | None = None
        self._told = ""
        self.last_request_s: Callable[[], float] = lambda: -math.inf

    @property
    def workload(self) -> Workload:
        """What is tuned for."""
        return workload_named(self._service.settings.workload)

    @property
    def is_maximised(self) -> bool:
        """Whether larger values of the objective are better."""
        return objective_of(self.workload).direction == "maximize"

    def clock_s(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()

    def today(self) -> str:
        """The date of local time."""
        return datetime.now().astimezone().date().isoformat()

    # --- looking ---------------------------------------------------------------------------------

    async def look(self, running: str | None, question: tuple[str, str] | None) -> Sight:
        """What there is to see now; CouldNotError where the model or the engine was never seen."""
        unable = self._service.degraded
        self._unread = None
        try:
            self._seen = await asyncio.to_thread(see, self._service, running, self.history, self.workload)
        except (CputuneError, OSError) as error:
            unable = unable or str(error)
            self._unread = str(error) if isinstance(error, StoreError) else None
        if self._seen is None:
            raise CouldNotError(unable or "nothing can be seen")
        seen = self._seen
        # With other CPUs it is another machine: what runs and what is answered is then for that one.
        self._service.machine = seen.machine
        return Sight(
            now_s=time.time(),
            circumstances=seen.circumstances,
            running=running,
            question=question or seen.circumstances.question,
            previous=seen.previous,
            known=seen.known,
            candidate=seen.candidate,
            broken=self._broken(),
            unable=unable,
            busy=await self._busy(),
        )

    def _broken(self) -> str | None:
        generator = self._service.generator
        if generator is None:
            return self._service.no_generator if self._service.settings.generator else None
        return generator.reason if generator.state is State.FAILED else None

    async def _busy(self) -> str | None:
        """Why now is no time to measure."""
        settings = self._configuration.current
        wrong = outside_hours(datetime.now(), settings.allowed_hours)
        if wrong is not None:
            return wrong
        running = self._service.jobs.running
        if running is not None:
            return f"{running.command} {running.id} runs"
        if self._service.pool is not None and any(self._service.pool.load):
            return "requests are being answered"
        since_s = time.monotonic() - self.last_request_s()
        if since_s < settings.idle_seconds:
            return f"the last request ended {since_s:.0f} s ago"
        before = environment.now(self._service.machine)
        await asyncio.sleep(GLANCE_S)
        after = environment.now(self._service.machine)
        return disturbance(change_between(before, after), after, settings.thresholds)

    def live(self) -> dict[int, list[float]]:
        """Live latencies since the last call."""
        return self.live_latencies.take()

    # --- the record ------------------------------------------------------------------------------

    def history(self, question: tuple[str, str]) -> Sequence[PromotionRecord]:
        """What was decided; what can't be stored yet counts too."""
        stored = self._service.store.promotions(
            fingerprint=question[0], model_digest=question[1], workload=self.workload
        )
        waiting = [
            PromotionRecord(id=-1, created_at=datetime.now(UTC), **vars(one))
            for one in reversed(self._pending)
            if (one.fingerprint, one.model_digest) == question
        ]
        return [*waiting, *stored]

    async def record(
        self,
        question: tuple[str, str],
        action: PromotionAction,
        running: str | None,
        other: str | None,
        reason: str,
        gain: Gain | None = None,
    ) -> None:
        """Store a decision now, or as soon as the store can be written again.

        It counts at once: `history` tells it before it is stored.
        """
        self._pending.append(
            Promotion(
                fingerprint=question[0],
                model_digest=question[1],
                workload=self.workload,
                action=action,
                running_id=running,
                other_id=other,
                reason=reason,
                numbers=numbers(gain),
            )
        )
        problem = await self._store_pending()
        if problem is not None:
            self._degrade(problem)

    async def _store_pending(self) -> str | None:
        """Store what waits; why it can't be."""
        # A store that is locked keeps its writers waiting for seconds, and no stream may wait with them.
        async with self._storing:
            try:
                while self._pending:
                    await asyncio.to_thread(self._service.store.record_promotion, self._pending[0])
                    del self._pending[0]
            except StoreError as error:
                return str(error)
        return None

    async def keep(self, memory: Memory) -> None:
        """Write the side file and what could not be stored before: both work again, or it is degraded."""
        problem = self._unread
        try:
            await asyncio.to_thread(side_file.save, self.memory_path, memory)
        except OSError as error:
            problem = f"{self.memory_path} can't be written: {error.strerror}"
        problem = await self._store_pending() or problem
        if problem is not None:
            self._degrade(problem)
        elif self._service.degraded is not None:
            self._service.degraded = None
            self._told = ""
            log.info("no longer degraded: everything is stored")

    @property
    def memory_path(self) -> Path:
        """Where the memory is."""
        return self._service.home.root / "daemon.json"

    def _degrade(self, reason: str) -> None:
        self._service.degraded = f"degraded: {reason}"
        if reason != self._told:
            log.error("degraded: %s; requests are answered as before", reason)
        self._told = reason

    def origin(self, profile: str) -> tuple[Circumstances, Reference | None]:
        """The circumstances of a profile's study, and its confirmation as the reference."""
        store = self._service.store
        record = store.profile(profile)
        study = store.study(record.study_id) if record.study_id is not None else None
        governors = study.environment.get("governors") if study is not None else None
        circumstances = Circumstances(
            fingerprint=record.fingerprint,
            model_digest=record.model_digest,
            engine_build=record.engine_build,
            kernel=record.kernel,
            governors=str(governors or ""),
        )
        return circumstances, self._reference(record)

    def _reference(self, record: ProfileRecord) -> Reference | None:
        if record.speedup is None or record.comparison_id is None:
            return None
        pairs = [pair for pair in self._service.store.pairs(record.comparison_id) if pair.dropped is None]
        if len(pairs) < FEWEST_PAIRS:
            return None
        logs = [math.log(pair.b_values[0] / pair.a_values[0]) for pair in pairs]
        # Its pairs are of the default and the best; costs of the best over the default are below 1.
        return Reference(-math.log(record.speedup.estimate), spread(logs), len(pairs))

    # --- measuring and running -------------------------------------------------------------------

    async def measure_set(self, running: str | None) -> Pairs:
        """Two pairs of what runs and the default that it was confirmed against."""
        sides = [running or DEFAULTS, DEFAULTS, *self._side_words(running)]
        result = await self._job("compare", [*sides, "--check", "--pairs", "2", "--budget", self._budget])
        if result["conditions"] != "quiet":
            raise CouldNotError("the machine did not stay quiet")
        values = [(float(a), float(b)) for a, b in result["values"]]
        if len(values) != 2:
            raise CouldNotError(f"{len(values)} of 2 pairs were measured")
        return [(1 / a, 1 / b) for a, b in values] if self.is_maximised else values

    async def search(self) -> None:
        """Search anew, in the background."""
        minutes, engine = self._configuration.current.search_minutes, self._service.settings.engine
        words = ["--workload", self.workload.name, "--budget", f"{minutes:g}m", "--fresh"]
        words += ["--engines", engine] if engine else []
        await self._job("search", [*self._model_words(), *words])

    async def compare(self, running: str | None, candidate: str) -> Gain:
        """Pairs of what runs and a candidate."""
        sides = [running or DEFAULTS, candidate, *self._side_words(candidate)]
        result = await self._job("compare", [*sides, "--budget", self._budget])
        if result["conditions"] != "quiet":
            raise CouldNotError("the machine did not stay quiet")
        ratio = Interval(**result["ratio"])
        if self.is_maximised:
            ratio = Interval(1 / ratio.estimate, 1 / ratio.high, 1 / ratio.low, ratio.confidence)
        return Gain(ratio, int(result["pairs"]))

    @property
    def _budget(self) -> str:
        return f"{self._configuration.current.compare_minutes:g}m"

    def _model_words(self) -> list[str]:
        return ["--model", self._seen.model] if self._seen is not None else []

    def _side_words(self, profile: str | None) -> list[str]:
        """What "default" means beside a profile: the default of its baseline's engine."""
        assert self._seen is not None
        engine = self._seen.engine
        if profile is not None:
            engine = self._service.store.profile(profile).baseline_config.engine
        return [*self._model_words(), "--workload", self.workload.name, "--engines", engine]

    async def _job(self, command: str, words: Sequence[str]) -> dict[str, Any]:
        nice = self._configuration.current.nice
        job = await self._service.jobs.start(words, command=command, nice=nice)
        async for _ in job.watch(0):
            pass
        if job.state is not JobState.DONE or job.result is None:
            raise CouldNotError(job.error or f"the {command} was {job.state}")
        return job.result

    async def run(self, profile: str | None) -> None:
        """Swap the generator; where none is wanted there is nothing to do."""
        service = self._service
        if not service.settings.generator:
            return
        wanted = profile or DEFAULTS
        service.settings = service.settings.model_copy(update={"profile": wanted})
        if service.pool is None:
            # The first one did not even come to start.
            service.no_generator = None
            await serve_generator(service)
            if service.no_generator is not None:
                raise CouldNotError(f"{wanted} does not run: {service.no_generator}")
            return
        try:
            await swap(service, wanted)
        except (CputuneError, OSError) as error:
            raise CouldNotError(f"{wanted} does not run: {error}") from error


class OtherWork:
    """CPU seconds of other processes than the service and its worker, for `service.daemon.live.Ear`."""

    def __init__(self, service: ServiceState) -> None:
        self._service = service
        self._sysfs = Sysfs()

    def __call__(self) -> tuple[float, float] | None:
        """(others' seconds, all CPUs' seconds) so far; None where unknown."""
        import psutil

        now = environment.now(self._service.machine, self._sysfs)
        if now.busy_s is None or now.total_s is None:
            return None
        own_s = 0.0
        pool = self._service.pool
        pids = [generator.worker_pid for generator in pool.generators] if pool else []
        for pid in (None, *filter(None, pids)):
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            own_s += times.user + times.system
        return now.busy_s - own_s, now.total_s
