"""Mapping and locking of the model file, tried once around the winner.

They decide load time and memory first, and speed rarely, so no search varies them: the winner is measured
again in a fresh process beside each of its neighbours, and gives way to one that is shown to be better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from profiles.vocabulary import Config, Limit, Objective, RoundSamples, Setting, TrialStatus
from tuner.errors import WorkerError
from tuner.events import Event, Observer
from tuner.measurement import placement
from tuner.measurement.asked import SHORT_TOKENS
from tuner.measurement.measurement import Measurement
from tuner.search.budget import Budget
from tuner.search.ledger import Estimate, Ledger
from tuner.search.limits import Metrics, broken
from tuner.search.objectives import cost, predict
from tuner.search.phases import phase_times
from tuner.search.ports import Recorder, Runner
from tuner.search.space import Space

MMAP, MLOCK = "mmap", "mlock"
ROUNDS = 3
LEAST_GAIN = 0.01
"""A smaller gain is within what three rounds can't tell."""
MOST_SHARE = 0.1
"""Of the budget; what would take longer is not tried."""
SHOWN = ("load_ms", "peak_rss_mib", "peak_anon_mib", "peak_file_mib")


@dataclass(frozen=True)
class Tried:
    """One neighbour of the winner with what it measured, or why it could not be."""

    changes: Mapping[str, Setting]
    metrics: Metrics
    value: float | None
    adopted: bool = False
    reason: str | None = None

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {**self.__dict__, "changes": dict(self.changes), "metrics": dict(self.metrics)}


def varies(space: Space, config: Config) -> bool:
    """Whether a configuration was a neighbour of a winner: its mapping or locking is none of the space's."""
    return any(
        d.name in (MMAP, MLOCK) and config.get(d.name) not in d.values
        for d in space.part(config.engine).dimensions
    )


def can_vary(space: Space) -> bool:
    """Whether a winner of this space may have neighbours."""
    return any(len(d.values) == 1 for p in space.engines for d in p.dimensions if d.name in (MMAP, MLOCK))


def neighbours(space: Space, config: Config) -> Iterator[dict[str, Setting]]:
    """What to change around a configuration, where the space has these settings and varies none of them.

    Huge pages reach the weights only where they are read instead of mapped, so the two are tried together.
    """
    values = {d.name: d.values for d in space.part(config.engine).dimensions}
    if len(values.get(MMAP, ())) == 1:
        yield {MMAP: not config.get(MMAP)}
        if placement.HUGE_PAGES in values and not config.get(placement.HUGE_PAGES) and config.get(MMAP):
            yield {MMAP: False, placement.HUGE_PAGES: True}
    if len(values.get(MLOCK, ())) == 1:
        yield {MLOCK: not config.get(MLOCK)}


@dataclass(frozen=True)
class _Measured:
    """A fresh process: its metrics, and the cost of each of its rounds."""

    metrics: Metrics
    costs: tuple[float, ...]
    rounds: tuple[RoundSamples, ...]


class Policies:
    """Tries the neighbours of a winner. `fixed` are settings that the user decided; `problem_of` says why a
    configuration can't run; `summarise` gives the metrics of a measurement."""

    def __init__(
        self,
        space: Space,
        objective: Objective,
        limits: Sequence[Limit],
        *,
        runner: Runner,
        recorder: Recorder,
        ledger: Ledger,
        summarise: Callable[[Config, Measurement], Metrics],
        problem_of: Callable[[Config], str | None],
        fixed: frozenset[str],
        budget: Budget,
        observer: Observer,
    ) -> None:
        self._space, self._objective, self._limits = space, objective, limits
        self._runner, self._recorder, self._ledger = runner, recorder, ledger
        self._summarise, self._problem_of = summarise, problem_of
        self._fixed, self._budget, self._observe = fixed, budget, observer
        self.tried: list[Tried] = []

    def around(self, leaders: list[Estimate], startup_s: float) -> list[Estimate]:
        """The leaders, with a neighbour of the first before it where one is shown to be better."""
        if not leaders:
            return leaders
        winner = leaders[0]
        wanted = [c for c in neighbours(self._space, winner.config) if not self._fixed & set(c)]
        possible = [changes for changes in wanted if self._can_run(winner.config, changes)]
        tokens = min(SHORT_TOKENS, self._space.workload.output_tokens)
        round_s = (winner.ttft_ms + tokens * winner.itl_ms) / 1000
        one_s = startup_s + ROUNDS * round_s
        room = int(MOST_SHARE * self._budget.total_s / one_s) - 1
        if not possible or room < 1 or not self._budget.left_s:
            return leaders
        self._observe(Event("stage", "mapping and locking"))
        as_it_is = self._measure(winner.config)
        if isinstance(as_it_is, str):
            return leaders
        best: tuple[float, Config] | None = None
        for changes in possible[:room]:
            config = winner.config.with_settings(**changes)
            found = self._measure(config)
            if isinstance(found, str):
                self.tried.append(Tried(changes, {}, None, reason=found))
                continue
            is_better = self._is_better(found, as_it_is)
            self.tried.append(Tried(changes, _shown(found), self._value(found), is_better))
            self._tell(changes, found, as_it_is, is_better)
            if is_better and (best is None or median(found.costs) < best[0]):
                best = median(found.costs), config
                self._ledger.add(config, found.rounds)
        estimate = self._ledger.estimate(best[1]) if best else None
        return leaders if estimate is None else [estimate, *leaders]

    def _can_run(self, config: Config, changes: Mapping[str, Setting]) -> bool:
        problem = self._problem_of(config.with_settings(**changes))
        if problem is not None:
            self.tried.append(Tried(changes, {}, None, reason=problem))
        return problem is None

    def _measure(self, config: Config) -> _Measured | str:
        """A fresh process's rounds as a trial; why it failed instead where it did."""
        number = self._recorder.begin(config)
        try:
            measured = self._runner.measure(config, rounds=ROUNDS, fresh=True)
            costs = tuple(self._costs(measured))
            metrics = self._summarise(config, measured)
        except WorkerError as failure:
            # What the clock ended says nothing about the configuration, least of all about the winner.
            status = failure.status if self._budget.left_s else TrialStatus.INTERRUPTED
            self._recorder.finish(number, config, status, failure.reason, None, None)
            return failure.reason
        found = _Measured({**metrics, "load_ms": measured.load_ms, **measured.memory}, costs, measured.rounds)
        self._recorder.finish(number, config, TrialStatus.COMPLETE, None, self._value(found), measured)
        return found

    def _costs(self, measured: Measurement) -> Iterator[float]:
        for samples in measured.rounds:
            times = phase_times(samples, self._space.workload)
            if samples.dropped is None and times.ttft_ms is not None and times.itl_ms is not None:
                value = predict(self._objective, self._space.workload, times.ttft_ms, times.itl_ms)
                yield cost(self._objective, value)

    def _value(self, found: _Measured) -> float | None:
        if not found.costs:
            return None
        middle = median(found.costs)
        return middle if self._objective.direction == "minimize" else 1.0 / middle

    def _is_better(self, found: _Measured, as_it_is: _Measured) -> bool:
        """Faster in each round than the winner in any; or as fast, and within limits that it breaks."""
        if not found.costs or not as_it_is.costs:
            return False
        ratio = median(found.costs) / median(as_it_is.costs)
        breaks = broken(self._limits, found.metrics)
        if breaks:
            return False
        if broken(self._limits, as_it_is.metrics):
            return ratio <= 1 + LEAST_GAIN
        return ratio < 1 - LEAST_GAIN and max(found.costs) < min(as_it_is.costs)

    def _tell(
        self, changes: Mapping[str, Setting], found: _Measured, as_it_is: _Measured, is_better: bool
    ) -> None:
        named = ", ".join(f"{name}={str(value).lower()}" for name, value in changes.items())
        then, now = as_it_is.metrics, found.metrics
        speed = median(as_it_is.costs) / median(found.costs) if found.costs and as_it_is.costs else 0.0
        self._observe(
            Event(
                "note",
                f"{named}: load {now['load_ms']:.0f} ms (without: {then['load_ms']:.0f}), memory"
                f" {now.get('peak_rss_mib', 0):.0f} MiB ({then.get('peak_rss_mib', 0):.0f}), {speed:.2f}x the"
                f" speed: {'taken' if is_better else 'left as it is'}",
            )
        )


def _shown(found: _Measured) -> dict[str, float]:
    return {name: found.metrics[name] for name in SHOWN if name in found.metrics}
