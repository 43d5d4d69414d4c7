"""The explanation of a winner on a made-up surface whose effects are known."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from profiles.records import TrialRecord
from profiles.vocabulary import Config, Objective, RoundSamples, TrialStatus
from tuner.search.explain import importance, lost, worth
from tuner.search.ledger import Ledger

RESPONSE = Objective("response_ms")
DECODING = 127
BASE_MS = {"prefill": 254.0, "decode": 2.0}
"""Both phases count the same: 254 ms and 127 gaps of 2 ms."""
PREFILL = {"flash_attn": {"off": 1.0, "on": 0.8}, "n_ubatch": {64: 1.5, 128: 1.0}}
DECODE = {"flash_attn": {"off": 1.0, "on": 1.0}, "n_threads": {1: 2.0, 2: 1.2, 4: 1.0}}
VARIANTS = {"source": 1.0, "q8_0": 0.9}


def times_ms(config: Config) -> tuple[float, float]:
    found = []
    for phase, effects in (("prefill", PREFILL), ("decode", DECODE)):
        value = BASE_MS[phase] * VARIANTS[config.variant]
        for name, by_value in effects.items():
            value *= by_value[config.get(name)]
        found.append(value)
    return found[0], found[1]


def cost(config: Config) -> float:
    ttft_ms, itl_ms = times_ms(config)
    return ttft_ms + DECODING * itl_ms


@pytest.fixture
def best(space) -> Config:
    return space.make("simulated", "q8_0", {"flash_attn": "on", "n_ubatch": 128, "n_threads": 4})


@pytest.fixture
def everything(space, best) -> list[Config]:
    """The whole grid of what has an effect."""
    return [
        best.with_settings(flash_attn=flash, n_ubatch=ubatch, n_threads=threads)
        for flash in PREFILL["flash_attn"]
        for ubatch in PREFILL["n_ubatch"]
        for threads in DECODE["n_threads"]
    ]


def measured(space, configs, *, rounds=5, noise=0.0, seed=0) -> Ledger:
    rng = random.Random(seed)
    ledger = Ledger(space, RESPONSE)
    for config in configs:
        for _ in range(rounds):
            ttft_ms, itl_ms = (value * rng.lognormvariate(0, noise) for value in times_ms(config))
            gaps_ms = ((itl_ms,) * 20,)
            ledger.add(config, [RoundSamples(kind="short", ttft_ms=(ttft_ms,), gaps_ms=gaps_ms)])
    return ledger


def by_name(found):
    return {one.setting: one for one in found}


def test_each_setting_is_worth_what_it_does_to_the_objective(space, best, everything):
    found = by_name(worth(space, measured(space, everything), RESPONSE, best))
    for name, value in (("n_threads", 1), ("n_threads", 2), ("n_ubatch", 64), ("flash_attn", "off")):
        other = next(a for a in found[name].alternatives if a.value == value)
        expected = cost(best.with_settings(**{name: value})) / cost(best)
        assert other.ratio.estimate == pytest.approx(expected)
        assert other.ratio.low < expected < other.ratio.high
        assert other.verdict == "worse"
    assert found["n_threads"].best == 4


def test_what_was_not_measured_around_the_best_is_said_so(space, best):
    far = best.with_settings(n_threads=2, flash_attn="off")
    found = by_name(worth(space, measured(space, [best, far]), RESPONSE, best))
    # Both phases of flash_attn=off were only seen with two threads; prefill does not know of n_threads.
    assert found["n_threads"].alternatives == ()
    assert 2 in found["n_threads"].not_measured
    assert found["variant"].alternatives == ()
    assert "source" in found["variant"].not_measured


def test_a_phase_measured_elsewhere_counts_where_the_setting_can_not_change_it(space, best):
    # n_ubatch changes prefill alone: its decode is the best's own.
    other = best.with_settings(n_ubatch=64)
    ledger = measured(space, [best])
    ledger.add(other, [RoundSamples(kind="short", ttft_ms=(times_ms(other)[0],), gaps_ms=())] * 3)
    (known,) = by_name(worth(space, ledger, RESPONSE, best))["n_ubatch"].alternatives
    assert known.ratio.estimate == pytest.approx(cost(other) / cost(best))
    assert known.rounds == 3


def test_a_setting_without_an_effect_is_within_the_noise_nearly_always(space, best, everything):
    other = best.with_settings(type_k="q8_0")
    verdicts = []
    for seed in range(300):
        ledger = measured(space, [*everything, other], noise=0.02, seed=seed)
        found = by_name(worth(space, ledger, RESPONSE, best))["type_k"]
        verdicts += [a.verdict for a in found.alternatives if a.value == "q8_0"]
    assert len(verdicts) == 300
    assert verdicts.count("noise") >= 0.95 * 300


def test_one_round_shows_less_than_many(space, best):
    other = best.with_settings(n_threads=2)

    def width(rounds: int) -> float:
        ledger = measured(space, [best, other], rounds=rounds)
        (known,) = by_name(worth(space, ledger, RESPONSE, best))["n_threads"].alternatives
        return math.log(known.ratio.high / known.ratio.low)

    assert width(1) > 5 * width(5) > 5 * width(20)


def test_settings_that_always_changed_together_can_not_be_told_apart(space, best):
    flash = {"on": "off", "off": "on"}[str(best.get("flash_attn"))]
    other = space.make("simulated", best.variant, {**best.as_dict(), "n_threads": 1, "flash_attn": flash})
    assert other is not None
    changed = {name for name, value in other.settings if best.get(name) != value}
    assert len(changed) > 1
    assert importance(space, measured(space, [best, other]), RESPONSE, best).keys().isdisjoint(changed)


def test_importance_is_the_variance_that_a_setting_explains(space, best, everything):
    shares = importance(space, measured(space, everything), RESPONSE, best)
    prefill_ms, itl_ms = times_ms(best)
    prefill = prefill_ms / cost(best)
    decode = DECODING * itl_ms / cost(best)

    def variance(effects, share):
        logs = [share * math.log(value) for value in effects.values()]
        return sum((x - sum(logs) / len(logs)) ** 2 for x in logs) / len(logs)

    expected = {
        "n_threads": variance(DECODE["n_threads"], decode),
        "n_ubatch": variance(PREFILL["n_ubatch"], prefill),
        "flash_attn": variance(PREFILL["flash_attn"], prefill),
    }
    total = sum(expected.values())
    assert sum(shares.values()) == pytest.approx(1.0)
    for name, value in expected.items():
        assert shares[name] == pytest.approx(value / total, abs=0.02)
    assert "type_k" not in shares


def test_a_rate_has_the_same_worth(space, best, everything):
    rate = Objective("decode_tps", "maximize")
    found = by_name(worth(space, measured(space, everything), rate, best))
    slow = next(a for a in found["n_threads"].alternatives if a.value == 1)
    assert slow.ratio.estimate == pytest.approx(2.0)
    assert found["n_ubatch"].importance == pytest.approx(0.0, abs=1e-6)


def test_nothing_is_said_of_what_has_no_estimate(space, best):
    assert worth(space, Ledger(space, RESPONSE), RESPONSE, best) == []
    assert importance(space, Ledger(space, RESPONSE), RESPONSE, best) == {}


# --- lost trials --------------------------------------------------------------------------------


def trial(number: int, status: TrialStatus, reason: str | None, **settings) -> TrialRecord:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return TrialRecord(
        id=number, study_id="s", number=number, stage="", config=Config.of("e", "source", settings),
        status=status, reason=reason, objective_value=None, effective={}, metrics={}, measurement_key=None,
        facts={}, owner="", started_at=now, finished_at=now, invalidated_at=None,
    )  # fmt: skip


def test_lost_trials_are_counted_by_reason_and_what_only_they_had_is_blamed():
    trials = [
        trial(0, TrialStatus.COMPLETE, None, flash=False, threads=1),
        trial(1, TrialStatus.CRASH, "signal 11 in process 4711", flash=True, threads=1),
        trial(2, TrialStatus.CRASH, "signal 11 in process 4712", flash=True, threads=2),
        trial(3, TrialStatus.RUN_TIMEOUT, "no answer", flash=False, threads=8),
    ]
    crash, hung = lost(trials)
    assert (crash.status, crash.trials, crash.blamed) == (TrialStatus.CRASH, (1, 2), (("flash", True),))
    assert crash.reason == "signal 11 in process 4711"
    assert hung.blamed == (("threads", 8),)


def test_what_was_interrupted_or_declared_wrong_is_blamed_on_nothing():
    wrong = trial(2, TrialStatus.INVALID, "a backup ran", threads=4)
    trials = [
        trial(0, TrialStatus.COMPLETE, None, threads=1),
        trial(1, TrialStatus.INTERRUPTED, None, threads=2),
        replace(wrong, invalidated_at=wrong.started_at),
    ]
    assert [one.blamed for one in lost(trials)] == [(), ()]
