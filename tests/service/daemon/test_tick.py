"""What one tick does, on a made-up machine whose days are told what to bring."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI

from profiles.errors import NotFoundError
from profiles.records import PromotionAction
from service.daemon.daemon import Daemon
from service.daemon.decide import Action, Limits
from service.daemon.memory import Memory, Trial
from service.daemon.ports import CouldNotError, Gain, Pairs
from service.daemon.routes import router_of
from service.daemon.settings import Configuration
from service.daemon.tick import Rules, Watcher
from tests.support.years import QUESTION, Year
from tuner.home import Home

LIMITS = Limits(check_s=20 * 3600, retry_s=600, daily_s=3600, patience=3)


class Calm(Year):
    """Nothing happens but what a test does; `a` is the best, the defaults are slow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.true = dict.fromkeys(self.true, 0.0) | {"a": -0.3, "b": -0.25}
        self.fails = 0
        self.has_users = False

    def dawn(self, day: int) -> None:
        self.day, self.visible, self.hidden = day, False, 0.0

    def live(self) -> dict[int, list[float]]:
        return super().live() if self.has_users else {}

    async def search(self) -> None:
        if self.fails:
            self.fails -= 1
            raise CouldNotError("the search ended with exit code 1")
        self.random.seed(self.day)
        while True:
            state = self.random.getstate()
            if self.random.random() >= 0.05:
                self.random.setstate(state)
                return await super().search()


@pytest.fixture
def year() -> Calm:
    return Calm(seed=1)


@pytest.fixture
def watcher(year: Calm) -> Watcher:
    """It runs `a`, promoted on day 0."""
    watcher = Watcher(year, Memory(), Rules(LIMITS))

    async def begin() -> None:
        year.dawn(0)
        await watcher.begin()
        await watcher.tick()

    asyncio.run(begin())
    assert year.config(watcher.running) == "a"
    return watcher


def ticks(watcher: Watcher, year: Year, days: range, meanwhile: Callable[[int], None] = lambda _: None):
    async def live() -> list[list[Action]]:
        found = []
        for day in days:
            year.dawn(day)
            meanwhile(day)
            found.append([decision.action for decision in await watcher.tick()])
        return found

    return asyncio.run(live())


def test_the_first_search_is_promoted_over_the_defaults_with_its_numbers(watcher: Watcher, year: Calm):
    (entry,) = year.log
    assert (entry.action, entry.running_id, entry.other_id) == (PromotionAction.PROMOTED, "p-0", None)
    assert "1.3" in entry.reason
    assert "8 pairs" in entry.reason
    assert year.running == "p-0"


def test_calm_days_cost_a_check_each(watcher: Watcher, year: Calm):
    assert ticks(watcher, year, range(1, 6)) == [[Action.CHECK, Action.WAIT]] * 5


def test_a_regression_is_confirmed_searched_and_replaced_in_one_tick(watcher: Watcher, year: Calm):
    def slower(day: int) -> None:
        year.true["a"] = 0.0 if day >= 3 else -0.3

    found = ticks(watcher, year, range(1, 4), slower)
    assert found[2] == [
        Action.CHECK, Action.CONFIRM, Action.SEARCH, Action.COMPARE, Action.CHECK, Action.WAIT,
    ]  # fmt: skip
    assert year.config(watcher.running) == "b"
    assert year.log[0].other_id == "p-0"


def test_a_failed_search_is_tried_again_later(watcher: Watcher, year: Calm):
    year.fails = 2
    year.build += 1
    found = ticks(watcher, year, range(1, 5))
    assert [Action.SEARCH in day for day in found[:3]] == [True, True, True]
    assert found[0].count(Action.SEARCH) == 1
    assert watcher.memory.failed == {}
    assert Action.SEARCH not in found[3]


def test_the_days_time_is_not_overdrawn(watcher: Watcher, year: Calm):
    watcher.rules = Rules(replace(LIMITS, daily_s=100.0))
    year.build += 1

    def other_builds(day: int) -> None:
        year.build += 1

    (first, second) = ticks(watcher, year, range(1, 3), other_builds)
    assert first == [Action.SEARCH, Action.ADOPT, Action.WAIT]
    assert second == [Action.SEARCH, Action.ADOPT, Action.WAIT]
    assert "minutes are spent" in (watcher.last.waits_for or "")


def test_a_candidate_that_is_not_faster_stays_out_and_is_said(watcher: Watcher, year: Calm):
    circumstances, reference = year.origin("p-0")
    year.profiles["p-1"] = ("b", circumstances, reference)
    found = ticks(watcher, year, range(1, 3))
    assert found[0][0] is Action.COMPARE
    assert Action.COMPARE not in found[1]
    entry = year.log[0]
    assert (entry.action, entry.running_id, entry.other_id) == (PromotionAction.REFUSED, "p-0", "p-1")
    assert "not shown to gain more than 2%" in entry.reason


def test_live_latencies_that_are_worse_twice_roll_back(watcher: Watcher, year: Calm):
    """`b` is shown to be faster side by side, and is slower when it serves."""
    year.has_users = True
    circumstances, reference = year.origin("p-0")
    ticks(watcher, year, range(1, 3))
    year.profiles["p-1"] = ("b", circumstances, reference)
    year.true["b"] = -0.6
    ticks(watcher, year, range(3, 4))
    assert year.config(watcher.running) == "b"
    assert isinstance(watcher.memory.trial, Trial)
    year.tax["b"] = 0.7
    found = ticks(watcher, year, range(4, 6))
    assert [Action.ROLL_BACK in day for day in found] == [False, True]
    assert year.running == watcher.running == "p-0"
    entry = year.log[0]
    assert (entry.action, entry.running_id, entry.other_id) == (PromotionAction.ROLLED_BACK, "p-0", "p-1")
    assert "live latencies are worse" in entry.reason
    assert all(Action.COMPARE not in day for day in ticks(watcher, year, range(6, 9)))


def test_a_promotion_without_a_doubt_is_settled(watcher: Watcher, year: Calm):
    year.has_users = True
    circumstances, reference = year.origin("p-0")
    ticks(watcher, year, range(1, 3))
    year.profiles["p-1"] = ("b", circumstances, reference)
    year.true["b"] = -0.6
    ticks(watcher, year, range(3, 8))
    assert watcher.memory.trial is None
    assert watcher.running == "p-1"


def test_what_somebody_else_decided_is_run(watcher: Watcher, year: Calm):
    decided = year.record(QUESTION, PromotionAction.ROLLED_BACK, None, "p-0", "asked for by command")
    asyncio.run(decided)

    async def follow() -> list[bool]:
        return [await watcher.follow(), await watcher.follow()]

    assert asyncio.run(follow()) == [True, False]
    assert watcher.running is year.running is None


def test_a_rollback_by_hand_goes_to_what_ran_before_and_no_further(watcher: Watcher, year: Calm):
    asyncio.run(watcher.roll_back("it answers strangely"))
    assert watcher.running is None
    assert year.log[0].reason == "it answers strangely"
    with pytest.raises(NotFoundError, match="nothing before them"):
        asyncio.run(watcher.roll_back("again"))


def test_a_rollback_over_http_says_how_it_stands_then(
    watcher: Watcher, year: Calm, home: Path, monkeypatch: pytest.MonkeyPatch
):
    daemon = Daemon(Configuration(None, {}, Home(home)))
    daemon.watcher = watcher
    monkeypatch.setattr(daemon, "_service", SimpleNamespace(degraded=None))
    app = FastAPI()
    app.include_router(router_of(daemon))

    async def roll_back() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.post("/v1/rollback", json={"reason": "it answers strangely"})

    answer = asyncio.run(roll_back())
    assert answer.status_code == 200, answer.text
    assert answer.json()["running"] is None
    assert (year.log[0].action, year.log[0].reason) == (PromotionAction.ROLLED_BACK, "it answers strangely")


def test_a_rollback_during_a_comparison_makes_it_void(
    watcher: Watcher, year: Calm, monkeypatch: pytest.MonkeyPatch
):
    circumstances, reference = year.origin("p-0")
    year.profiles["p-1"] = ("b", circumstances, reference)
    year.true["b"] = -0.9
    compare: Callable[[str | None, str], Awaitable[Gain]] = year.compare

    async def interrupted(running: str | None, candidate: str) -> Gain:
        gain = await compare(running, candidate)
        if running == "p-0":
            await watcher.roll_back("by hand")
        return gain

    monkeypatch.setattr(year, "compare", interrupted)
    ticks(watcher, year, range(1, 2))
    assert [entry.action for entry in year.log[1:]] == [PromotionAction.ROLLED_BACK, PromotionAction.PROMOTED]
    assert (year.log[0].running_id, year.log[0].other_id) == ("p-1", None)


def test_a_rollback_during_a_check_makes_it_void(
    watcher: Watcher, year: Calm, monkeypatch: pytest.MonkeyPatch
):
    measure_set: Callable[[str | None], Awaitable[Pairs]] = year.measure_set

    async def interrupted(running: str | None) -> Pairs:
        pairs = await measure_set(running)
        await watcher.roll_back("by hand")
        return pairs

    monkeypatch.setattr(year, "measure_set", interrupted)
    assert ticks(watcher, year, range(1, 2)) == [[Action.CHECK, Action.WAIT]]
    assert "another profile was made to run meanwhile" in watcher.last.reason
    assert watcher.memory.reference is None


def test_another_machine_runs_its_own_profile_and_searches_where_none_is(watcher: Watcher, year: Calm):
    watcher.question = ("beef", "m0")
    found = ticks(watcher, year, range(1, 2))
    assert found[0][0] is Action.ADOPT
    assert watcher.question == QUESTION
    assert year.log[0].other_id is None
    assert "own profile is known" in year.log[0].reason


def test_a_second_start_runs_what_the_history_says(watcher: Watcher, year: Calm):
    again = Watcher(year, year.memory or Memory(), Rules(LIMITS))
    assert asyncio.run(again.begin()) == "p-0"
    assert len(year.log) == 1
    assert ticks(again, year, range(1, 2)) == [[Action.CHECK, Action.WAIT]]


def test_a_lost_side_file_costs_no_search(watcher: Watcher, year: Calm):
    again = Watcher(year, Memory(), Rules(LIMITS))
    asyncio.run(again.begin())
    assert Action.SEARCH not in ticks(again, year, range(1, 2))[0]
