"""Two objectives: the front, what is aimed at by turns, and a search that finds both ends."""

import math
import random
from dataclasses import replace

import pytest

from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, Objective
from tests.support.notes import Notes
from tests.support.surface import LOSSLESS, RUINED, FakeClock, SurfaceRunner, space_of
from tuner.engines.base import Phase
from tuner.search.both import Both
from tuner.search.budget import Budget
from tuner.search.judge import QualityJudge
from tuner.search.ledger import Estimate
from tuner.search.objectives import objective_of, second_named, weights
from tuner.search.search import Search

RESPONSE = Objective("response_ms")
MEMORY = second_named("peak_rss_mib")
SIZES_MIB = {"source": 300.0, "bf16": 400.0, "q8_0": 250.0, "q4_0": 150.0}


def memory_of(config):
    return {"peak_rss_mib": SIZES_MIB[config.variant]}


def estimate(space, variant, response_ms, rounds=5, **settings):
    config = space.make("simulated", variant, settings)
    itl_ms = response_ms / (2 * (space.workload.output_tokens - 1))
    return Estimate(config, response_ms, response_ms, response_ms / 2, itl_ms, rounds)


def test_the_front_is_what_no_other_one_betters_in_both(space):
    fast, small = estimate(space, "q8_0", 700.0), estimate(space, "q4_0", 900.0)
    worse = estimate(space, "bf16", 800.0)
    slower = estimate(space, "q8_0", 750.0, n_threads=1)
    front = Both(space, RESPONSE, MEMORY, memory_of).front([worse, small, slower, fast])
    assert front == [fast, small]


def test_a_gain_that_nobody_notices_is_worth_no_place(space):
    fast, slower = estimate(space, "q8_0", 700.0), estimate(space, "q8_0", 750.0, n_threads=1)
    sizes = {fast.config: 250.0, slower.config: 249.5}
    both = Both(space, RESPONSE, MEMORY, lambda config: {"peak_rss_mib": sizes[config]})
    assert both.front([fast, slower]) == [fast]


def test_what_is_not_known_or_not_earned_is_not_on_the_front(space):
    one = estimate(space, "q8_0", 700.0)
    tail = second_named("itl_ms.p95")
    for metrics, front in (
        ({}, []),
        ({"itl_ms.p95": 5.0, "itl_ms.max_of_n": 6.0}, []),
        ({"itl_ms.p95": 5.0}, [one]),
    ):
        assert Both(space, RESPONSE, tail, lambda _, metrics=metrics: metrics).front([one]) == front


def test_a_rate_is_better_the_higher_it_is(space):
    both = Both(space, RESPONSE, second_named("decode_tps"), memory_of)
    fast = estimate(space, "q8_0", 700.0)
    # Slower to begin, faster to go on.
    steady = Estimate(estimate(space, "q4_0", 0.0).config, 800.0, 800.0, 600.0, 200 / 127, 5)
    assert both.front([steady, fast]) == [fast, steady]


def test_every_other_turn_is_for_the_first_objective(space):
    both = Both(space, RESPONSE, MEMORY, memory_of)
    known = [estimate(space, "q8_0", 700.0), estimate(space, "q4_0", 900.0)]
    turns = [both.turn() for _ in range(8)]
    assert turns[0::2] == [None] * 4
    best = [both.aim(share, known)[1].config.variant for share in turns[1::2]]
    # The more memory weighs, the sooner the smaller one is the one to beat.
    assert best[0] == "q8_0"
    assert best[-1] == "q4_0"


def test_an_aim_weighs_both_costs_over_their_best(space):
    both = Both(space, RESPONSE, MEMORY, memory_of)
    known = [estimate(space, "q8_0", 700.0), estimate(space, "q4_0", 900.0)]
    aim, best = both.aim(0.75, known)
    expected = 0.75 * 1.0 + 0.25 * 250 / 150
    assert best.cost == pytest.approx(expected)
    prefill = weights(RESPONSE, space.workload)[0]
    assert aim.weights[Phase.PREFILL] == pytest.approx(0.75 * prefill / 700.0)
    # A variant of which nothing is known is taken for the largest.
    unknown = estimate(space, "bf16", 1.0).config, replace(known[1].config, engine="another")
    for config in unknown:
        assert aim.extra(config) == pytest.approx(0.25 * 250 / 150)


# --- a whole search -----------------------------------------------------------------------------


class Lab:
    """A search of both objectives on the surface; q4_0 keeps the level unless it is ruined."""

    def __init__(self, space, second, *, ruined=(), sizes_mib=SIZES_MIB, seed=0):
        self.space, self.clock, self.ruined = space, FakeClock(), ruined
        self.runner = SurfaceRunner(space, self.clock, noise=0.01, seed=seed)
        judge = QualityJudge(space, QUALITY_LEVELS["near-lossless"], self._quality, observer=lambda _: None)
        self.search = Search(
            space,
            objective_of(space.workload),
            runner=self.runner,
            recorder=Notes(),
            judge=judge,
            digest_of=lambda engine, label: label,
            budget=Budget.begin(self.clock, 40.0),
            trials=None,
            seed=seed,
            observer=lambda _: None,
            second=second_named(second),
            known=lambda config: {"peak_rss_mib": sizes_mib[config.variant]},
        )
        self.leaders = self.search.run(space.default("simulated"))

    def _quality(self, key):
        coarse = "q4_0" in (key.get("type_k"), key.get("type_v"))
        return RUINED if key.variant in self.ruined or coarse else LOSSLESS

    def regret(self, config):
        """How much slower than the best of its own variant, without noise; an exact KV cache is fastest."""
        alike = {"type_k": ("f16",), "type_v": ("f16",)}
        part = self.space.part(config.engine)
        kept = [replace(d, values=alike.get(d.name, d.values)) for d in part.dimensions]
        narrow = replace(self.space, engines=(replace(part, variants=(config.variant,), dimensions=kept),))
        return self.runner.response_ms(config) / min(map(self.runner.response_ms, narrow.everything())) - 1


def slow_small(space):
    """On this surface the smallest is the fastest: nothing would be left to weigh."""
    return space_of(space.machine, WORKLOADS["chat"], ("source", "bf16", "q8_0"))


def test_both_ends_of_the_front_are_searched(space):
    lab = Lab(slow_small(space), "ttft_ms")
    front = lab.search.front()
    ttft = min(lab.runner.true_ms(c)[0] for c in lab.space.listed(Phase.PREFILL, random.Random(0)))
    assert lab.runner.true_ms(front[-1].config)[0] < 1.03 * ttft
    assert lab.regret(front[0].config) < 0.03
    assert front[0].config.variant == "q8_0"
    assert front[-1].config.variant == "bf16"


def test_the_smaller_variants_on_the_front_are_tuned_too(space):
    lab = Lab(slow_small(space), "peak_rss_mib", sizes_mib={**SIZES_MIB, "source": 100.0})
    front = lab.search.front()
    assert [e.config.variant for e in front] == ["q8_0", "source"]
    assert all(lab.regret(e.config) < 0.03 for e in front)
    assert lab.leaders[0].config.variant == "q8_0"


def test_what_misses_the_quality_level_is_never_on_the_front(space):
    lab = Lab(space, "peak_rss_mib", ruined={"q4_0"})
    front = lab.search.front()
    assert front
    assert "q4_0" not in [e.config.variant for e in front]
    assert all(math.isfinite(e.value) for e in front)


def test_one_objective_has_no_front(space):
    clock = FakeClock()
    search = Search(
        space, RESPONSE, runner=SurfaceRunner(space, clock), recorder=Notes(),
        judge=QualityJudge(space, QUALITY_LEVELS["any"], None, observer=lambda _: None),
        digest_of=lambda engine, label: label, budget=Budget.begin(clock, 10.0), trials=3, seed=0,
        observer=lambda _: None,
    )  # fmt: skip
    search.run(space.default("simulated"))
    assert search.front() == []
