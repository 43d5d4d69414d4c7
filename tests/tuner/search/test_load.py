"""Where the machine is not quiet, that becomes the stated condition and measuring goes on."""

from dataclasses import replace
from typing import Any

import pytest

from profiles.vocabulary import RoundSamples
from tests.support.surface import FakeClock, SurfaceRunner
from tuner.events import Event
from tuner.measurement.bench import RETRIES
from tuner.measurement.contamination import STOPPED_NS
from tuner.measurement.measurement import Measurement
from tuner.search.load import FEWEST_ROUNDS, LoadAwareRunner

STEAL = "steal: the hypervisor took 20 ms"


class Disturbed:
    """A bench of which each round in turn is disturbed or not; disturbed ones are run again."""

    def __init__(self, space: Any, pattern: list[bool]) -> None:
        self._runner = SurfaceRunner(space, FakeClock())
        self._pattern = pattern
        self.retries: list[int] = []

    def measure(self, config: Any, *, rounds: int, retries: int, **options: Any) -> Measurement:
        self.retries.append(retries)
        options.pop("fresh", None)
        ran: list[RoundSamples] = []
        left = rounds + retries
        while left and sum(r.dropped is None for r in ran) < rounds:
            left -= 1
            dropped = self._pattern.pop(0) if self._pattern else False
            made = self._runner.measure(config, rounds=1, **options).rounds[0]
            ran.append(replace(made, dropped=STEAL if dropped else None))
        return replace(self._runner.measure(config, rounds=1), rounds=tuple(ran))


@pytest.fixture
def events() -> list[Event]:
    return []


def test_a_quiet_machine_drops_what_is_disturbed_now_and_then(space, events):
    runner = LoadAwareRunner(Disturbed(space, [True, False, False, False]), observer=events.append)
    for _ in range(10):
        measured = runner.measure(space.default("simulated"), rounds=1)
    assert runner.conditions == "quiet"
    assert (runner.dropped, events) == (1, [])
    assert measured.rounds[0].dropped is None


def test_past_a_third_the_load_is_the_condition_and_nothing_is_dropped_any_more(space, events):
    bench = Disturbed(space, [True, False] * 20)
    runner = LoadAwareRunner(bench, observer=events.append)
    while runner.rounds < FEWEST_ROUNDS + 1:
        measured = runner.measure(space.default("simulated"), rounds=1)
    assert runner.conditions == "loaded"
    assert all(r.dropped is None for r in measured.rounds)
    assert {"disturbed.steal": 1.0}.items() <= measured.rounds[0].facts.items()
    assert [event.kind for event in events] == ["note"]
    assert "under load" in events[0].message
    runner.measure(space.default("simulated"), rounds=1)
    assert (bench.retries[0], bench.retries[-1]) == (RETRIES, 0)


def test_a_measurement_without_one_clean_round_is_not_lost(space, events):
    """A default that was only disturbed does run: it is measured under load."""
    runner = LoadAwareRunner(Disturbed(space, [True] * 50), observer=events.append)
    measured = runner.measure(space.default("simulated"), rounds=3)
    assert len(measured.rounds) == 3 + RETRIES < FEWEST_ROUNDS
    assert all(r.dropped is None for r in measured.rounds)
    assert runner.conditions == "loaded"


def test_rounds_that_a_service_stopped_say_nothing_about_the_load(space, events):
    class Stopped(Disturbed):
        def measure(self, config: Any, **options: Any) -> Measurement:
            measured = super().measure(config, **options)
            facts = {STOPPED_NS: 1e9}
            marked = [replace(r, facts={**r.facts, **facts}) if r.dropped else r for r in measured.rounds]
            return replace(measured, rounds=tuple(marked))

    runner = LoadAwareRunner(Stopped(space, [True, False] * 30), observer=events.append)
    for _ in range(20):
        runner.measure(space.default("simulated"), rounds=1)
    assert (runner.conditions, runner.dropped, runner.rounds) == ("quiet", 0, 20)
