"""Live latencies: what counts, and how shifts are judged."""

from __future__ import annotations

import random

import pytest

from service.daemon.live import KEPT, Ear, Live, depth_class, joined, shift_between
from service.generator.requests import End
from tests.support.serving import Served
from tests.support.waiting import wait_for


def end(tokens: int = 32, prompt: int = 100, tpot_ms: float | None = 10.0) -> End:
    return End("length", prompt, 0, tokens, 50.0, tpot_ms)


def values(seed: int, centre: float, count: int = 20) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(centre, 0.04) for _ in range(count)]


def test_only_like_requests_are_kept():
    live = Live()
    live.ended(end(), alone=True)
    live.ended(end(), alone=False)
    live.ended(end(tokens=3), alone=True)
    live.ended(end(tpot_ms=None), alone=True)
    live.ended(end(prompt=1000), alone=True)
    counts = {depth: len(found) for depth, found in live.take().items()}
    assert counts == {depth_class(116): 1, depth_class(1016): 1}
    assert live.take() == {}


def test_requests_that_overlap_are_not_alone():
    live = Live()
    ear = Ear(live, lambda: None, busy_share=0.1)
    first, second = ear.begin(), ear.begin()
    first(end())
    second(end())
    assert live.take() == {}
    ear.begin()(end())
    assert sum(map(len, live.take().values())) == 1


@pytest.mark.parametrize(("others_s", "kept"), [(0.5, 0), (0.05, 1)])
def test_a_request_beside_other_work_does_not_count(others_s: float, kept: int):
    told = iter([(10.0, 100.0), (10.0 + others_s, 102.0)])
    live = Live()
    Ear(live, lambda: next(told), busy_share=0.1).begin()(end())
    assert sum(map(len, live.take().values())) == kept


def test_a_shift_is_measured_at_equal_depths():
    before = {7: values(1, 2.0), 9: values(2, 3.0), 11: values(3, 9.0)}
    after = {7: values(4, 2.2), 9: values(5, 3.2), 10: values(6, 0.0)}
    shift = shift_between(before, after)
    assert shift is not None
    assert shift.log_ratio == pytest.approx(0.2, abs=0.04)
    assert shift.values == 40
    assert 0.005 < shift.error < 0.03


def test_too_few_values_say_nothing():
    assert shift_between({7: values(1, 2.0)}, {7: values(2, 5.0, count=5)}) is None
    assert shift_between({7: values(1, 2.0)}, {8: values(2, 5.0)}) is None


def test_the_last_values_of_a_depth_are_kept():
    assert joined({7: [1.0] * KEPT}, {7: [2.0], 8: [3.0]}) == {7: [1.0] * (KEPT - 1) + [2.0], 8: [3.0]}


def test_what_somebody_tries_by_hand_is_not_heard(simulated: Served):
    heard: list[End | None] = []
    state = simulated.state
    settings = state.settings
    state.on_request = lambda: heard.append
    try:
        for number, profile in enumerate(("p-1", "default"), start=1):
            state.settings = settings.model_copy(update={"profile": profile})
            simulated.text()
            # A request ends a moment after its answer.
            wait_for(lambda number=number: len(heard) == number)
    finally:
        state.on_request, state.settings = None, settings
    assert [end is not None for end in heard] == [False, True]
