"""Confirmation judges pairs of processes, never samples of the search."""

import math
from dataclasses import replace

import pytest

from profiles.vocabulary import Objective, RoundSamples, TrialStatus
from tests.support.surface import FakeClock, SurfaceRunner
from tuner.errors import WorkerError
from tuner.events import ignore
from tuner.search.budget import Budget, confirmation_share
from tuner.search.confirm import Pair, Plan, confirm, judge, speedup_log

RESPONSE = Objective("response_ms")


def value(rounds: tuple[RoundSamples, ...]) -> float:
    return sum(r.response_ms[0] for r in rounds) / len(rounds)


def test_eight_agreeing_pairs_confirm():
    interval, status = judge([math.log(1.2)] * 8, final=False)
    assert status == "confirmed"
    assert interval.confidence == pytest.approx(0.992, abs=0.001)
    assert interval.estimate == pytest.approx(1.2)


def test_six_pairs_at_the_end_are_provisional_and_seven_wait():
    assert judge([0.1] * 6, final=False) is None
    interval, status = judge([0.1 + i / 1000 for i in range(6)], final=True)
    assert status == "provisional"
    assert interval.confidence == pytest.approx(0.969, abs=0.001)
    assert judge([0.1] * 7, final=False) is None


def test_a_difference_that_is_not_shown_is_no_gain():
    interval, status = judge([0.1, -0.1, 0.05, -0.05, 0.02, -0.03], final=True)
    assert status == "no_gain"
    assert interval.low < 1 < interval.high


@pytest.mark.parametrize(
    ("ratios", "status"), [((2.1, 3.0, 2.5), "provisional"), ((1.9, 3.0, 2.5), "no_gain")]
)
def test_few_pairs_claim_only_what_is_obvious(ratios, status):
    found, said = judge([math.log(ratio) for ratio in ratios], final=True)
    assert said == status
    assert (found.low, found.high, found.confidence) == (
        pytest.approx(min(ratios)), pytest.approx(3.0), pytest.approx(0.75)
    )  # fmt: skip
    assert judge([math.log(2.5)] * 2, final=True)[1] == "no_gain"


def test_a_look_that_does_not_decide_goes_on():
    assert judge([0.1, -0.1] * 4, final=False) is None


def test_the_speedup_of_a_rate_is_inverted():
    assert speedup_log(Objective("decode_tps", "maximize"), Pair(default=100, best=200)) == pytest.approx(
        math.log(2)
    )
    assert speedup_log(RESPONSE, Pair(default=200, best=100)) == pytest.approx(math.log(2))


class Setting:
    def __init__(self, space, total_s: float, **options) -> None:
        self.clock = FakeClock()
        self.runner = SurfaceRunner(space, self.clock, **options)
        self.budget = Budget.begin(self.clock, total_s)
        self.default = space.default("simulated")
        self.best = space.make("simulated", "q8_0", {"n_threads": 4, "n_threads_batch": 4})
        self.kept: list[Pair] = []

    def confirm(self, **options):
        return confirm(
            self.runner,
            {"default": self.default, "best": self.best},
            RESPONSE,
            value,
            plan=Plan(rounds=2, pair_s=5.0),
            budget=self.budget,
            keep=lambda pair, _: self.kept.append(pair),
            observer=ignore,
            **options,
        )


def test_the_order_alternates_and_every_pair_is_kept(space):
    setting = Setting(space, 1000, noise=0.01)
    found = setting.confirm()
    order = [config for config, _, _ in setting.runner.measured]
    assert order[:4] == [setting.default, setting.best, setting.best, setting.default]
    assert list(found.pairs) == setting.kept
    assert found.status == "confirmed"


def test_the_budget_ends_it_provisionally(space):
    setting = Setting(space, 20, noise=0.01)
    found = setting.confirm()
    assert found.status == "provisional"
    assert 3 <= len(found.pairs) < 8
    assert setting.clock.now_s < 20 + 5


def test_an_interrupted_confirmation_goes_on_from_its_pairs(space):
    setting = Setting(space, 1000)
    true = Pair(setting.runner.response_ms(setting.default), setting.runner.response_ms(setting.best))
    found = setting.confirm(earlier=[true] * 7)
    assert len(setting.kept) == 1
    assert len(found.pairs) == 8


@pytest.mark.parametrize("side", ["default", "best", None])
def test_the_side_that_is_disturbed_more_often_is_named(space, side):
    setting = Setting(space, 1000)
    measure = setting.runner.measure

    def disturbed(config, **options):
        measured = measure(config, **options)
        if side is None or config != getattr(setting, side):
            return measured
        return replace(measured, rounds=tuple(replace(r, dropped="steal: 20 ms") for r in measured.rounds))

    setting.runner.measure = disturbed
    assert setting.confirm().sensitive == side


def test_a_candidate_whose_processes_fail_is_given_up_after_three(space):
    def fail(config):
        if config.variant == "q8_0":
            raise WorkerError(TrialStatus.CRASH, "SIGSEGV")

    setting = Setting(space, 1000, fault=fail)
    assert setting.confirm() is None
    assert sum(config == setting.best for config, _, _ in setting.runner.measured) == 0
    assert sum(config == setting.default for config, _, _ in setting.runner.measured) <= 3


@pytest.mark.parametrize(("total_s", "pair_s"), [(60, 4), (60, 8), (300, 5), (300, 30), (10, 5)])
def test_neither_search_nor_confirmation_starves(total_s, pair_s):
    share = confirmation_share(total_s, pair_s)
    assert 0.25 <= share <= 0.65
