"""Why a configuration won: what each setting is worth around it, which settings matter, what was lost."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from profiles.records import TrialRecord
from profiles.vocabulary import Config, Interval, Objective, Setting, TrialStatus
from tuner.engines.base import Phase
from tuner.search.blame import values_of
from tuner.search.ledger import Ledger
from tuner.search.model import median_variance, noise_sd
from tuner.search.objectives import weights
from tuner.search.space import VARIANT, Space

CONFIDENCE = 0.95
_DEVIATIONS = 1.96
_MEDIAN = math.pi / 2
"""How much more a median varies than a mean, at most."""
_RIDGE = 0.02
"""Enough to share an effect among settings that were only changed together."""


@dataclass(frozen=True)
class Alternative:
    """Another value of one setting, all else as in the best: its cost over the best's, above 1 is worse."""

    config: Config
    value: Setting
    ratio: Interval
    rounds: int

    @property
    def verdict(self) -> str:
        """ "worse", "better", or "noise" where the interval contains 1."""
        if self.ratio.low <= 1.0 <= self.ratio.high:
            return "noise"
        return "worse" if self.ratio.estimate > 1.0 else "better"

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "value": self.value,
            "ratio": self.ratio.estimate,
            "low": self.ratio.low,
            "high": self.ratio.high,
            "confidence": self.ratio.confidence,
            "rounds": self.rounds,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Explained:
    """One setting of the best: its other values around it, and how much it matters.

    `not_measured` are values that the search tried elsewhere only. `importance` is the setting's share of
    what all settings explain; None where only one value of it was ever tried.
    """

    setting: str
    best: Setting
    alternatives: tuple[Alternative, ...]
    not_measured: tuple[Setting, ...]
    importance: float | None

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "setting": self.setting,
            "best": self.best,
            "importance": self.importance,
            "alternatives": [one.to_json() for one in self.alternatives],
            "not_measured": list(self.not_measured),
        }


@dataclass(frozen=True)
class Lost:
    """Trials that were lost for one reason; `blamed` are the values that all of them had, none that ran."""

    status: TrialStatus
    reason: str
    trials: tuple[int, ...]
    blamed: tuple[tuple[str, Setting], ...]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "status": str(self.status),
            "reason": self.reason,
            "count": len(self.trials),
            "trials": list(self.trials),
            "blamed": dict(self.blamed),
        }


def worth(space: Space, ledger: Ledger, objective: Objective, best: Config) -> list[Explained]:
    """What each setting of `best` is worth, one at a time, by the search's own rounds.

    Ratios are of the objective's cost at the medians of both phases; a phase that a setting can't change
    adds no noise. Their 95 % intervals follow from the rounds' pooled spread and number, as in the search's
    model, by the delta method. The variant comes first, then the most important setting. Nothing where
    `best` has no estimate.
    """
    if ledger.estimate(best) is None:
        return []
    ratios = _Ratios(space, ledger, objective, best)
    shares = importance(space, ledger, objective, best)
    part = space.part(best.engine)
    found = [_explained(ratios, VARIANT, best.variant, part.variants, shares)]
    for dimension in part.dimensions:
        value = best.get(dimension.name)
        if value is not None:
            found.append(_explained(ratios, dimension.name, value, dimension.values, shares))
    return sorted(found, key=lambda one: (one.setting != VARIANT, -(one.importance or 0.0), one.setting))


def _explained(
    ratios: _Ratios, name: str, best: Setting, values: Iterable[Setting], shares: Mapping[str, float]
) -> Explained:
    alternatives, unknown = [], []
    for value in values:
        neighbour = ratios.neighbour(name, value)
        if neighbour is None:
            continue
        known = ratios.over_best(value, neighbour)
        if known is None:
            unknown.append(value)
        else:
            alternatives.append(known)
    return Explained(name, best, tuple(alternatives), tuple(unknown), shares.get(name))


class _Ratios:
    """Compares configurations with the best, phase by phase."""

    def __init__(self, space: Space, ledger: Ledger, objective: Objective, best: Config) -> None:
        self._space, self._ledger, self._best = space, ledger, best
        self._weights = dict(zip(Phase, weights(objective, space.workload), strict=True))
        self._noise = {
            phase: noise_sd([np.log(values) for values in ledger.samples_ms(phase).values()])
            for phase in Phase
        }

    def neighbour(self, name: str, value: Setting) -> Config | None:
        """The best with another value; None where that can't run or is the best itself."""
        best = self._best
        if name == VARIANT:
            found = self._space.make(best.engine, str(value), best.as_dict())
        else:
            found = self._space.make(best.engine, best.variant, {**best.as_dict(), name: value})
        return None if found == best else found

    def over_best(self, value: Setting, other: Config) -> Alternative | None:
        """The other's cost over the best's; None while a phase of it was not measured."""
        own_cost = other_cost = variance = 0.0
        fewest = math.inf
        for phase in Phase:
            own, its = (self._ledger.values_ms(config, phase) for config in (self._best, other))
            if not its:
                return None
            own_cost += self._weights[phase] * median(own)
            cost = self._weights[phase] * median(its)
            other_cost += cost
            if self._space.phase_part(other, phase) != self._space.phase_part(self._best, phase):
                counts = np.array([len(own), len(its)], dtype=float)
                variance += cost**2 * _MEDIAN * float(median_variance(self._noise[phase], counts).sum())
                fewest = min(fewest, len(its))
        if fewest == math.inf:
            return None
        ratio = other_cost / own_cost
        apart = math.exp(_DEVIATIONS * math.sqrt(variance) / other_cost)
        return Alternative(
            other, value, Interval(ratio, ratio / apart, ratio * apart, CONFIDENCE), int(fewest)
        )


def importance(space: Space, ledger: Ledger, objective: Objective, best: Config) -> dict[str, float]:
    """Each setting's share of what the settings explain, over all that was measured of the best's engine.

    An additive model of each phase's log time is fitted by ridge regression. A value's effect on the log of
    the cost is its effect on either phase times that phase's share of the best's cost; a setting's
    importance is the variance of its effects over its values, each counted once. Shares add up to 1; empty
    where nothing varied. Settings that always changed together can't be told apart, and have none.
    """
    estimate = ledger.estimate(best)
    if estimate is None:
        return {}
    parts = dict(zip(Phase, weights(objective, space.workload), strict=True))
    times_ms = {Phase.PREFILL: estimate.ttft_ms, Phase.DECODE: estimate.itl_ms}
    effects: dict[str, dict[Setting, float]] = defaultdict(lambda: defaultdict(float))
    together: set[str] = set()
    for phase in Phase:
        together |= _together(ledger.samples_ms(phase), best.engine)
        share = parts[phase] * times_ms[phase] / estimate.cost
        for (name, value), effect in _effects(ledger.samples_ms(phase), best.engine).items():
            effects[name][value] += share * effect
    spread = {name: float(np.var(list(by_value.values()))) for name, by_value in effects.items()}
    spread = {
        name: variance for name, variance in spread.items() if len(effects[name]) > 1 and name not in together
    }
    total = sum(spread.values())
    return {name: variance / total for name, variance in spread.items()} if total > 0 else {}


def _together(samples_ms: Mapping[Config, Sequence[float]], engine: str) -> set[str]:
    """The settings that varied exactly where another one did."""
    rows = [dict(_named(part)) for part, values in samples_ms.items() if part.engine == engine and values]
    patterns: dict[tuple[int, ...], set[str]] = defaultdict(set)
    for name in {name for row in rows for name in row}:
        values = [row.get(name) for row in rows]
        patterns[tuple(map(values.index, values))].add(name)
    return {name for pattern, names in patterns.items() if any(pattern) and len(names) > 1 for name in names}


def _effects(samples_ms: Mapping[Config, Sequence[float]], engine: str) -> dict[tuple[str, Setting], float]:
    """Setting and value -> effect on the log time."""
    known = {part: values for part, values in samples_ms.items() if part.engine == engine and values}
    rows = [dict(_named(part)) for part in known]
    columns = list(dict.fromkeys(pair for row in rows for pair in row.items()))
    if not columns:
        return {}
    seen = np.log([median(values) for values in known.values()])
    coded = np.array([[float(row.get(name) == value) for name, value in columns] for row in rows])
    centred = coded - coded.mean(axis=0)
    normal = centred.T @ centred + _RIDGE * np.eye(len(columns))
    fitted = np.linalg.solve(normal, centred.T @ (seen - seen.mean()))
    return dict(zip(columns, map(float, fitted), strict=True))


def _named(config: Config) -> Iterator[tuple[str, Setting]]:
    yield VARIANT, config.variant
    yield from config.settings


def lost(trials: Sequence[TrialRecord]) -> list[Lost]:
    """The trials that measured nothing, by their reason, the most frequent first."""
    worked = {value for trial in trials if _ran(trial) for value in values_of(trial.config)}
    groups: dict[tuple[TrialStatus, str], list[TrialRecord]] = defaultdict(list)
    for trial in trials:
        if trial.status.failed:
            # Process ids, addresses and times differ where the reason does not.
            groups[trial.status, re.sub(r"\d+", "0", trial.reason or "")].append(trial)
    found = []
    for (status, _), members in groups.items():
        # What was interrupted, or declared wrong by a user, says nothing about its settings.
        innocent = status is TrialStatus.INTERRUPTED or any(trial.invalidated_at for trial in members)
        shared = set.intersection(*(set(values_of(trial.config)) for trial in members)) - worked
        blamed = [] if innocent else sorted(((name, value) for _, name, value in shared), key=str)
        numbers = tuple(trial.number for trial in members)
        found.append(Lost(status, members[0].reason or "", numbers, tuple(blamed)))
    return sorted(found, key=lambda one: -len(one.trials))


def _ran(trial: TrialRecord) -> bool:
    return not trial.status.failed and trial.status is not TrialStatus.RUNNING
