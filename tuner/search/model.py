"""A Bayesian ridge regression of one phase's log time on the settings, with posterior draws.

log time = mean + effects of the settings + what they can't explain + noise, the effects and the rest normal
with mean zero. Effects add up: variant, settings, and few pairs of them (variant x setting, threads x
placement). Settings with ordered numbers enter by steps, so that what is measured at two values speaks
for those between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profiles.vocabulary import Config, Role
from tuner.engines.base import Phase
from tuner.search.space import EngineSpace, Space

Floats = npt.NDArray[np.float64]

VARIANT_SD, SETTING_SD, PAIR_SD = 0.5, 0.25, 0.05
"""Of the effects before anything is known, in log time."""
UNEXPLAINED_SDS = (0.005, 0.01, 0.02, 0.04, 0.08)
"""What the effects may leave unexplained; the likeliest is taken."""
USUAL_NOISE = 0.02
LEAST_NOISE = 0.004
FEWEST_RESIDUALS = 8
UNNOTICED = 0.06
"""What a disturbance that nothing noticed may add to a single round, in log time."""


class PhaseModel:
    """The listed configurations' features, and what rounds of some of them say of all."""

    def __init__(self, space: Space, phase: Phase, listed: Sequence[Config]) -> None:
        self.rows = {space.phase_part(config, phase): row for row, config in enumerate(listed)}
        columns: list[npt.NDArray[np.bool_]] = []
        sds: list[float] = []
        for part in space.engines:
            engine = np.array([config.engine == part.engine.name for config in listed])
            _add_engine(columns, sds, part, phase, listed, engine)
        self._features = np.stack(columns, axis=1).astype(np.float32)
        self._features *= np.array(sds, dtype=np.float32)

    def draw(
        self, samples_ms: Mapping[Config, Sequence[float]], count: int, rng: np.random.Generator
    ) -> Floats:
        """`count` draws from the posterior of all log times; samples of unlisted configurations are skipped.

        A measured configuration's own rounds weigh more the more of them there are, so that a lucky first
        round is drawn towards what its settings explain.
        """
        known = [
            (self.rows[key], values) for key, values in samples_ms.items() if values and key in self.rows
        ]
        measured = np.array([row for row, _ in known], dtype=np.intp)
        logs = [np.log(values) for _, values in known]
        seen = np.array([np.median(values) for values in logs])
        rounds = np.array([len(values) for values in logs], dtype=np.float64)
        variances = median_variance(noise_sd(logs), rounds)
        mean = float(np.median(seen))
        features = self._features[measured].astype(np.float64)
        unexplained = _unexplained(features @ features.T, seen - mean, variances)
        apart = np.sqrt(unexplained**2 + variances)
        # A draw from the prior, corrected by what it misses of the data (Matheron's rule): only as many
        # equations as there are measured configurations.
        effects = rng.standard_normal((features.shape[1], count))
        missed = (seen - mean)[:, None] - features @ effects
        missed -= apart[:, None] * rng.standard_normal(missed.shape)
        effects += features.T @ np.linalg.solve(features @ features.T + np.diag(apart**2), missed)
        explained = mean + (self._features @ effects.astype(np.float32)).T.astype(np.float64)
        drawn = explained + unexplained * rng.standard_normal(explained.shape)
        own = unexplained**2 / (unexplained**2 + variances)
        spread = np.sqrt(own * variances)
        drawn[:, measured] = (
            own * seen
            + (1 - own) * explained[:, measured]
            + spread * rng.standard_normal((count, len(measured)))
        )
        return drawn


def noise_sd(logs: Sequence[Floats]) -> float:
    """The rounds' spread about their own median, pooled, by a median: outliers don't widen it."""
    residuals = [
        np.abs(values - np.median(values)) * np.sqrt(len(values) / (len(values) - 1))
        for values in logs
        if len(values) > 1
    ]
    pooled = np.concatenate(residuals) if residuals else np.array([])
    if len(pooled) < FEWEST_RESIDUALS:
        return USUAL_NOISE
    return max(LEAST_NOISE, 1.4826 * float(np.median(pooled)))


def median_variance(noise: float, rounds: Floats) -> Floats:
    """Of the median of so many log times, given the spread of one.

    A median of few is as uncertain as their mean, nearly; and no median yet guards the first rounds against
    a disturbance that nothing noticed.
    """
    return noise**2 / rounds + (UNNOTICED / rounds**2) ** 2


def _unexplained(kernel: Floats, centred: Floats, variances: Floats) -> float:
    """The sd of the unexplained part under which the data are likeliest."""

    def log_likelihood(sd: float) -> float:
        lower = np.linalg.cholesky(kernel + np.diag(variances + sd**2))
        whitened = np.linalg.solve(lower, centred)
        return float(-0.5 * whitened @ whitened - np.log(np.diag(lower)).sum())

    return max(UNEXPLAINED_SDS, key=log_likelihood)


def _add_engine(
    columns: list[npt.NDArray[np.bool_]],
    sds: list[float],
    part: EngineSpace,
    phase: Phase,
    listed: Sequence[Config],
    engine: npt.NDArray[np.bool_],
) -> None:
    variants = [engine & np.array([c.variant == label for c in listed]) for label in part.variants]
    settings = [config.as_dict() for config in listed]
    effects = {
        d.name: [engine & column for column in _coded([s.get(d.name) for s in settings])]
        for d in part.dimensions
        if phase in d.phases
    }
    by_role = {
        role: [column for d in part.dimensions if d.role is role for column in effects.get(d.name, ())]
        for role in Role
    }
    every = [column for coded in effects.values() for column in coded]
    pairs = [(variant, column) for variant in variants for column in every]
    pairs += [(a, b) for a in by_role[Role.THREADS] for b in by_role[Role.PLACEMENT]]
    for sd, group in (
        (VARIANT_SD, variants),
        (SETTING_SD, every),
        (PAIR_SD, [a & b for a, b in pairs]),
    ):
        useful = [column for column in group if column.any()]
        columns += useful
        sds += [sd] * len(useful)


def _coded(values: Sequence[object]) -> list[npt.NDArray[np.bool_]]:
    """Steps up an ordered scale of numbers, else one column a value."""
    distinct = {value for value in values if value is not None}
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in distinct):
        numbers = np.array([np.nan if value is None else float(str(value)) for value in values])
        steps = sorted(float(str(value)) for value in distinct)
        return [numbers >= after for _, after in pairwise(steps)]
    return [np.array([value == one for value in values]) for one in sorted(distinct, key=str)]
