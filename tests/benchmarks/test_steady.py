"""A recording's drift is taken out, what tells its configurations apart stays."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest

from tests.benchmarks import synthetic
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.steady import steady
from tuner.engines.base import Phase

ROUNDS = 6
NOISE = 0.01


def recorded(*, drift: bool, keeps_times: bool) -> Landscape:
    """Every part of a small space in passes, as the recorder goes through them, on a machine that drifts."""
    true = synthetic.additive(2, seed=4)
    land = Landscape(true.space)
    rng = random.Random(1)
    now_s = 0.0
    for phase in Phase:
        parts = list(true.samples_ms[phase].items())[:300]
        for number in range(ROUNDS):
            for part, rounds in parts if number % 2 == 0 else reversed(parts):
                now_s += 1.0
                speed = math.exp(0.1 * math.sin(now_s / 400)) if drift else 1.0
                value = median(rounds) * speed * rng.lognormvariate(0, NOISE)
                land.add(part, phase, [value], [now_s] if keeps_times else [])
    return land


def spread(land: Landscape, phase: Phase) -> float:
    """The usual deviation of a round from its part's median, on log time."""
    deviations = [
        abs(math.log(value / median(rounds)))
        for rounds in land.samples_ms[phase].values()
        for value in rounds
    ]
    return median(deviations)


@pytest.mark.parametrize("keeps_times", [True, False])
@pytest.mark.parametrize("phase", Phase)
def test_drift_is_taken_out_and_noise_stays(phase: Phase, keeps_times: bool) -> None:
    before = recorded(drift=True, keeps_times=keeps_times)
    after = steady(before)
    assert spread(before, phase) > 3 * NOISE
    assert NOISE / 4 < spread(after, phase) < 1.5 * NOISE


@pytest.mark.parametrize("phase", Phase)
def test_configurations_stay_as_far_apart_as_they_are(phase: Phase) -> None:
    true = recorded(drift=False, keeps_times=True).samples_ms[phase]

    def error(land: Landscape) -> float:
        ratios = [median(land.samples_ms[phase][part]) / median(rounds) for part, rounds in true.items()]
        return median(abs(ratio / median(ratios) - 1) for ratio in ratios)

    before = recorded(drift=True, keeps_times=True)
    assert error(steady(before)) < min(0.03, error(before))


def test_few_rounds_and_none_are_taken_too() -> None:
    land = Landscape(synthetic.additive(2, seed=4).space)
    assert steady(land).samples_ms == {phase: {} for phase in Phase}
    (part, _rounds), *_ = synthetic.additive(2, seed=4).samples_ms[Phase.DECODE].items()
    land.add(part, Phase.DECODE, [10.0, 10.0])
    assert steady(land).samples_ms[Phase.DECODE][part] == pytest.approx([10.0, 10.0])
