"""A year of ticks on a made-up machine: what is real is found, what is not is left alone."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.daemon.decide import Limits
from service.daemon.memory import Memory
from service.daemon.tick import Rules, Watcher
from tests.support.years import Year

DAYS = 365
LIMITS = Limits(check_s=20 * 3600, retry_s=600, daily_s=3600, patience=3)


def lived(seed: int) -> Year:
    year = Year(seed)

    async def live() -> None:
        watcher = Watcher(year, Memory(), Rules(LIMITS))
        await watcher.begin()
        for day in range(DAYS):
            year.dawn(day)
            await watcher.tick()
            if watcher.memory.slow_sets:
                for event in year.open:
                    event.is_told = event.is_told or event.kind == "slow machine"
            year.dusk()

    asyncio.run(live())
    return year


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_a_year_of_upgrades_neighbours_and_regressions(seed: int):
    year = lived(seed)
    assert year.false_promotions == []
    for event, day in year.answered:
        allowed = 2 if event.kind != "slow machine" else 2 + LIMITS.patience
        assert event.quiet_days <= allowed, (event, day)
    for event in year.open:
        assert event.quiet_days <= (2 if event.kind != "slow machine" else 2 + LIMITS.patience), event
    months = Counter(day // 30 for day in year.false_searches)
    assert max(months.values(), default=0) <= 1, year.false_searches
