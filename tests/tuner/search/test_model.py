"""The model learns effects from few configurations, and is not taken in by a lucky round."""

import math
import random

import numpy as np
import pytest

from profiles.vocabulary import Objective, RoundSamples
from tests.support.surface import FakeClock, SurfaceRunner
from tuner.engines.base import Phase
from tuner.search.ledger import Ledger
from tuner.search.model import USUAL_NOISE, PhaseModel, noise_sd


def measured(space, share, noise=0.01):
    """A model of prefill, and samples of a random share of its parts."""
    rng = random.Random(1)
    listed = space.listed(Phase.PREFILL, rng)
    runner = SurfaceRunner(space, FakeClock())
    ms = {space.phase_part(c, Phase.PREFILL): runner.true_ms(c)[0] for c in listed}
    chosen = rng.sample(list(ms), int(share * len(ms)))
    samples = {part: [ms[part] * rng.lognormvariate(0, noise)] for part in chosen}
    return PhaseModel(space, Phase.PREFILL, [*listed]), samples, ms


def test_a_tenth_of_the_parts_predicts_the_rest(space):
    model, samples, ms = measured(space, 0.1)
    drawn = model.draw(samples, 64, np.random.default_rng(0))
    truth = np.array([math.log(ms[part]) for part in model.rows])
    errors = np.abs(drawn.mean(axis=0) - truth)
    assert np.median(errors) < 0.03
    inside = np.abs(drawn.mean(axis=0) - truth) < 3 * drawn.std(axis=0)
    assert inside.mean() > 0.9


def test_a_lucky_round_is_drawn_towards_what_its_settings_explain(space):
    model, samples, ms = measured(space, 0.2)
    part = next(iter(samples))
    samples[part] = [0.7 * ms[part]]
    once = model.draw(samples, 64, np.random.default_rng(0))[:, model.rows[part]].mean()
    samples[part] = [0.7 * ms[part]] * 30
    often = model.draw(samples, 64, np.random.default_rng(0))[:, model.rows[part]].mean()
    assert often == pytest.approx(math.log(0.7 * ms[part]), abs=0.05)
    assert once > often


def test_the_same_seed_draws_the_same(space):
    model, samples, _ = measured(space, 0.05)
    one, two = (model.draw(samples, 4, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(one, two)


def test_the_noise_is_pooled_over_repeated_rounds_and_ignores_outliers():
    rng = np.random.default_rng(3)
    logs = [rng.normal(0, 0.05, 4) for _ in range(100)]
    assert noise_sd(logs) == pytest.approx(0.05, rel=0.2)
    logs[0] = np.array([0.0, 5.0])
    assert noise_sd(logs) == pytest.approx(0.05, rel=0.2)
    assert noise_sd([np.array([1.0])]) == USUAL_NOISE


def test_samples_of_unlisted_configurations_are_skipped(space):
    model, samples, _ = measured(space, 0.05)
    ledger = Ledger(space, Objective("response_ms"))
    odd = space.default("simulated").with_settings(n_threads_batch=64)
    ledger.add(odd, [RoundSamples(kind="short", ttft_ms=(1.0,), gaps_ms=())])
    drawn = model.draw({**samples, **ledger.samples_ms(Phase.PREFILL)}, 4, np.random.default_rng(0))
    assert drawn.shape == (4, len(model.rows))
