"""A bench: brings a worker to a configuration by the fewest switches, then runs rounds on it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, RoundSamples, Setting, TrialStatus, Workload
from tuner import clock
from tuner.engines.base import BOTH_PHASES, Engine, Phase, Scope
from tuner.errors import WorkerError
from tuner.measurement import collapse, contamination, counters, placement
from tuner.measurement.asked import ABORTED, BATCH_TOKENS, Ask, Kind, ask_of, busy_threads, samples_of
from tuner.measurement.isolation import Deadlines, Worker
from tuner.measurement.measurement import Measurement
from tuner.measurement.neighbour import Neighbour
from tuner.measurement.pagecache import cached_share
from tuner.measurement.patience import Patience
from tuner.measurement.prompts import Prompts

WARM_UP_PROMPT_TOKENS = 16
WARM_UP_OUTPUT_TOKENS = 4
RETRIES = 3
"""Rounds that a measurement may run beyond those asked, for contaminated ones, unless told otherwise."""
RETRY_SHARE = 0.1
"""A round that took more than this of the time left is not repeated for being contaminated."""
GIVEN_UP = 2
"""Rounds of a measurement that may be given up for a collapse; further ones run to their end."""
_HISTORY = 50


@dataclass
class _Opened:
    """A worker and what it was brought to."""

    worker: Worker
    config: Config
    load_ms: float
    file_cached: float | None = None
    """The share of the model file that was in the page cache before the load."""
    first_request_ms: float | None = None
    effective: Mapping[str, Setting] | None = None
    cached: list[list[int]] | None = None
    """What its context holds of the last round."""


class Bench:
    """Measures configurations of one model and workload, one worker at a time; a context manager.

    `engine_of` gives an engine by its name, `path_of` the model file of a configuration's variant.
    `remaining_s` bounds every wait by what is left of the caller's budget.
    """

    def __init__(
        self,
        machine: Machine,
        model: ModelInfo,
        workload: Workload,
        engine_of: Callable[[str], Engine],
        path_of: Callable[[Config], Path],
        *,
        seed: int,
        log_directory: Path,
        deadlines: Deadlines | None = None,
        memory_bytes: int | None = None,
        remaining_s: Callable[[], float] | None = None,
    ) -> None:
        self._machine = machine
        self._model = model
        self._workload = workload
        self._engine_of = engine_of
        self._path_of = path_of
        self._prompts = Prompts(model.vocabulary_size, seed)
        self._log_directory = log_directory
        self._deadlines = deadlines or Deadlines()
        self._memory_bytes = memory_bytes
        self._remaining_s = remaining_s or (lambda: float("inf"))
        self.neighbour: Neighbour | None = None
        """One of our own that runs beside the rounds; what it causes is no contamination."""
        self._opened: _Opened | None = None
        self._scopes: dict[str, Mapping[str, Scope]] = {}
        self._patience = Patience(self._deadlines)
        self._history: deque[Mapping[str, float]] = deque(maxlen=_HISTORY)

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
        short_tokens: int | None = None,
        retries: int = RETRIES,
    ) -> Measurement:
        """Run `rounds` clean rounds on a configuration, and at most `retries` more for contaminated ones,
        as far as they are short for the time left.

        A full round runs the whole workload. A short one prefills a new prompt of its length and decodes
        `short_tokens` in the middle of the answer (`asked.ask_of`); {PREFILL} alone ends at the first token,
        {DECODE} alone goes on after a prompt that is prefilled already and has no TTFT. `fresh` starts a new
        process. A new context's first requests are a warm-up and no rounds. A round that collapses is given
        up, and repeated when the machine is quiet.

        Raises WorkerError with the status that the trial ends with; the worker is gone then.
        """
        if kind == "full" and phases != BOTH_PHASES:
            raise ValueError("a full round has both phases")
        began = clock.monotonic_s()
        try:
            opened, switched = self._bring_to(config, fresh)
            ran: list[RoundSamples] = []
            generation_s, clean, given_up, left = 0.0, 0, 0, rounds + retries
            while clean < rounds and left > 0:
                ask = ask_of(
                    self._workload,
                    kind,
                    phases,
                    self._prompts,
                    cached=opened.cached,
                    tokens=short_tokens,
                    prefill_chunk=int(config.get("prefill_chunk") or BATCH_TOKENS),
                )
                is_watched = retries > 0 and given_up < GIVEN_UP and self.neighbour is None
                samples = self._round(
                    opened, kind, ask, phases, self._busy_threads(config) if is_watched else 0
                )
                ran.append(samples)
                stopped_ns = samples.facts.get(contamination.STOPPED_NS, 0.0)
                round_s = max(0.0, samples.facts.get("wall_ns", 0.0) - stopped_ns) / 1e9
                generation_s += round_s
                clean += samples.dropped is None
                # It was not for the machine's sake that a stopped round failed: it has its turn again.
                left -= not stopped_ns
                if not stopped_ns and round_s > RETRY_SHARE * self._remaining_s():
                    left = min(left, rounds - len(ran))
                if ABORTED in samples.facts:
                    given_up += 1
                    self._wait_for_quiet()
            memory = opened.worker.request("memory", {}, self._limit_s(self._deadlines.start_s))
        except BaseException:
            self._drop()
            raise
        effective = opened.effective or {}
        requested = _readable(config)
        return Measurement(
            rounds=tuple(ran),
            requested=requested,
            effective=effective,
            unknown=tuple(sorted({*requested, *_unbound(opened)} - set(effective))),
            load_ms=opened.load_ms,
            first_request_ms=opened.first_request_ms or 0.0,
            seconds=clock.monotonic_s() - began,
            generation_seconds=generation_s,
            memory=cast("Mapping[str, float]", memory),
            switched=switched,
        )

    def close(self) -> None:
        """End the worker; the bench can be used again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.worker.close()
            # What a worker said that ended well is of no use to anybody.
            with suppress(OSError):
                opened.worker.log_path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._drop()

    # --- switching -----------------------------------------------------------------------------

    def _bring_to(self, config: Config, fresh: bool) -> tuple[_Opened, Scope | None]:
        switched = Scope.PROCESS if fresh else self._needed(config)
        if switched is not None and switched >= Scope.LOAD:
            self.close()
            self._opened = self._open(config)
        opened = self._opened
        assert opened is not None
        if switched is not None:
            self._configure(opened, config, anew=switched >= Scope.CONTEXT)
        return opened, switched

    def _needed(self, config: Config) -> Scope | None:
        """The largest scope of what differs from the worker as it is; None for nothing."""
        if self._opened is None or config.engine != self._opened.config.engine:
            return Scope.PROCESS
        if config.variant != self._opened.config.variant:
            return Scope.LOAD
        now, then = config.as_dict(), self._opened.config.as_dict()
        changed = {name for name in {*now, *then} if now.get(name) != then.get(name)}
        return max((self._scope_of(config.engine, name) for name in changed), default=None)

    def _scope_of(self, engine: str, setting: str) -> Scope:
        if engine not in self._scopes:
            described = self._engine_of(engine)
            dimensions = (
                *described.dimensions(self._machine, self._model, self._workload),
                *placement.dimensions(described, self._machine),
            )
            self._scopes[engine] = {dimension.name: dimension.scope for dimension in dimensions}
        # What the engine does not describe is safe only in a worker of its own.
        return self._scopes[engine].get(setting, Scope.LOAD)

    def _open(self, config: Config) -> _Opened:
        affinity = placement.affinity(config, self._machine)
        self._log_directory.mkdir(parents=True, exist_ok=True)
        path = self._path_of(config)
        file_cached = cached_share(path)
        worker = Worker.start(
            self._engine_of(config.engine),
            environment=placement.environment(config),
            affinity=affinity,
            memory_node=placement.node(config),
            memory_bytes=self._memory_bytes,
            log_path=self._log_directory / f"worker-{time.time_ns()}.log",
            deadline_s=self._limit_s(self._deadlines.start_s),
        )
        try:
            loaded = worker.load(
                path,
                self._own_settings(config, lambda scope: scope >= Scope.LOAD),
                self._deadlines,
                affinity=affinity,
                limit_s=self._limit_s(float("inf")),
            )
        except BaseException:
            worker.kill()
            raise
        return _Opened(worker, config, float(cast("float", loaded["load_ms"])), file_cached)

    def _configure(self, opened: _Opened, config: Config, *, anew: bool) -> None:
        context_tokens = max(self._workload.context_tokens, WARM_UP_PROMPT_TOKENS + WARM_UP_OUTPUT_TOKENS)
        answer = opened.worker.request(
            "configure",
            {
                "settings": self._own_settings(config, lambda scope: scope <= Scope.CONTEXT),
                "context_tokens": context_tokens,
                "streams": self._workload.streams,
            },
            self._limit_s(self._deadlines.run_s),
        )
        opened.config = config
        opened.effective = cast("Mapping[str, Setting]", answer["effective"])
        self._check_effective(config, opened)
        if anew:
            opened.cached = None
            # The peak is the new context's own, without what making it took.
            opened.worker.request("reset_peak", {}, self._limit_s(self._deadlines.start_s))
            self._warm_up(opened)

    def _check_effective(self, config: Config, opened: _Opened) -> None:
        effective = opened.effective or {}
        wrong = [
            f"{name}={value} was asked, the engine has {effective[name]}"
            for name, value in _readable(config).items()
            if name in effective and effective[name] != value
        ]
        if wrong:
            raise WorkerError(TrialStatus.INVALID, "; ".join(wrong), opened.worker.log_tail())

    def _own_settings(
        self, config: Config, wanted: Callable[[Scope], bool] = lambda _: True
    ) -> dict[str, Setting]:
        """The engine's own settings, without the host-wide ones, of the wanted scopes."""
        return {
            name: value
            for name, value in config.settings
            if name not in placement.NAMES and wanted(self._scope_of(config.engine, name))
        }

    # --- rounds --------------------------------------------------------------------------------

    def _warm_up(self, opened: _Opened) -> None:
        prompts = self._prompts.draw(self._workload.streams, WARM_UP_PROMPT_TOKENS)
        warm_up = Ask(prompts, WARM_UP_OUTPUT_TOKENS)
        times, _, _ = self._run(opened, warm_up, self._deadlines.run_s, watched_threads=0)
        if opened.first_request_ms is None:
            opened.first_request_ms = max(stream[-1] for stream in times) / 1e6

    def _round(
        self, opened: _Opened, kind: Kind, ask: Ask, phases: frozenset[Phase], watched_threads: int
    ) -> RoundSamples:
        began = clock.monotonic_s()
        config = opened.config
        deadline_s = self._deadlines.run_s
        if not self.neighbour:
            deadline_s = self._patience.limit_s(config, kind, phases)
        times, facts, dropped = self._run(opened, ask, deadline_s, watched_threads)
        opened.cached = ask.cached
        if dropped is None:
            self._patience.took(config, kind, phases, clock.monotonic_s() - began)
            dropped = contamination.judge(facts, self._history)
        else:
            facts = {**facts, ABORTED: 1.0}
        if dropped is None and not self.neighbour:
            self._history.append(facts)
        if opened.file_cached is not None:
            facts = {**facts, "file_cached": opened.file_cached}
        return samples_of(kind, ask, times, facts, dropped)

    def _run(
        self, opened: _Opened, ask: Ask, deadline_s: float, watched_threads: int
    ) -> tuple[Sequence[Sequence[int]], Mapping[str, float], str | None]:
        """The times of the tokens, the counters, and why the round was given up if it was."""
        ran_ns = self.neighbour.ran_ns() if self.neighbour else 0
        stopped_s = clock.stopped_s()
        answer = opened.worker.request(
            "round",
            {
                "prompts": ask.prompts,
                "output_tokens": ask.output_tokens,
                "reuse_prefix": ask.reuse_prefix,
                "deeper": ask.deeper,
                "neighbours": int(self.neighbour is not None),
                "watched_threads": watched_threads,
            },
            self._limit_s(deadline_s),
        )
        facts = dict(cast("Mapping[str, float]", answer["facts"]))
        if (stopped_s := clock.stopped_s() - stopped_s) > 0:
            facts[contamination.STOPPED_NS] = stopped_s * 1e9
        if self.neighbour:
            facts["neighbour_ns"] = float(max(self.neighbour.ran_ns() - ran_ns, 1))
        times = cast("Sequence[Sequence[int]]", answer["token_ns"])
        collapsed = cast("str | None", answer["collapsed"])
        if collapsed is None and [len(stream) for stream in times] != [ask.output_tokens] * len(ask.prompts):
            lengths = ", ".join(str(len(stream)) for stream in times)
            raise WorkerError(
                TrialStatus.INVALID, f"{lengths} tokens came: {ask.output_tokens} a stream were asked"
            )
        return times, facts, collapsed

    def _busy_threads(self, config: Config) -> int:
        described = self._engine_of(config.engine).dimensions(self._machine, self._model, self._workload)
        return busy_threads(config, described, self._workload, self._machine.effective.cpu_count)

    def _wait_for_quiet(self) -> None:
        collapse.wait_for_quiet(
            counters.busy_ns,
            self._machine.effective.cpu_count,
            contamination.TICK_NS,
            limit_s=self._limit_s(collapse.LONGEST_WAIT_S),
        )

    def _limit_s(self, deadline_s: float) -> float:
        return max(0.0, min(deadline_s, self._remaining_s()))

    def _drop(self) -> None:
        """Give the worker up after a failure; its log stays."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.worker.kill()


def _unbound(opened: _Opened) -> tuple[str, ...]:
    """The placement, where it is a NUMA node and not all threads take their memory from it alone."""
    node = placement.node(opened.config)
    is_bound = node is None or list(opened.worker.memory_policies) == [f"bind:{node}"]
    return () if is_bound else (placement.PLACEMENT,)


def _readable(config: Config) -> dict[str, Setting]:
    """The settings that a worker tells; where its threads may run is checked when it starts."""
    return {name: value for name, value in config.settings if name != placement.PLACEMENT}
