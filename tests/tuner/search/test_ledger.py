"""One measurement serves every configuration that it speaks for."""

import pytest

from profiles.vocabulary import Objective, RoundSamples
from tuner.engines.base import Phase
from tuner.search.ledger import Ledger


def short(ttft_ms: float | None, itl_ms: float | None, dropped: str | None = None) -> RoundSamples:
    return RoundSamples(
        kind="short",
        ttft_ms=() if ttft_ms is None else (ttft_ms,),
        gaps_ms=() if itl_ms is None else ((itl_ms,) * 20,),
        dropped=dropped,
    )


@pytest.fixture
def ledger(space):
    return Ledger(space, Objective("response_ms"))


def test_an_estimate_is_ttft_and_the_gaps_that_follow(ledger, space):
    config = space.default("simulated")
    ledger.add(config, [short(100, 5), short(110, 6), short(120, 7)])
    estimate = ledger.estimate(config)
    assert (estimate.ttft_ms, estimate.itl_ms, estimate.rounds) == (110, 6, 3)
    assert estimate.value == pytest.approx(110 + 127 * 6)


def test_disturbed_rounds_are_not_counted(ledger, space):
    config = space.default("simulated")
    ledger.add(config, [short(100, 5), short(900, 50, dropped="steal")])
    assert ledger.estimate(config).ttft_ms == 100


def test_a_phase_is_known_from_another_configuration(ledger, space):
    one = space.make("simulated", "q8_0", {"n_threads": 1})
    two = one.with_settings(n_threads=2)
    ledger.add(one, [short(100, 8)])
    assert ledger.missing(two) == {Phase.DECODE}
    assert ledger.estimate(two) is None
    ledger.add(two, [short(None, 5)])
    assert ledger.estimate(two).value == pytest.approx(100 + 127 * 5)


def test_the_best_of_both_phases_is_ranked_first_though_never_measured_together(ledger, space):
    fast_prefill = space.make("simulated", "q8_0", {"n_threads": 1, "n_threads_batch": 4})
    fast_decode = space.make("simulated", "q8_0", {"n_threads": 4, "n_threads_batch": 1})
    ledger.add(fast_prefill, [short(50, 9)])
    ledger.add(fast_decode, [short(200, 4)])
    best = ledger.ranked()[0].config
    assert (best.get("n_threads"), best.get("n_threads_batch")) == (4, 4)
    assert best not in ledger


def test_a_rate_is_ranked_from_the_largest(space):
    ledger = Ledger(space, Objective("decode_tps", "maximize"))
    slow = space.make("simulated", "q8_0", {"n_threads": 1})
    fast = space.make("simulated", "bf16", {"n_threads": 1})
    ledger.add(slow, [short(1, 10)])
    ledger.add(fast, [short(1, 5)])
    assert next(e.config for e in ledger.ranked()) == fast
    assert ledger.estimate(fast).value == pytest.approx(200)
