"""What disturbs a round is named; what is the process's own environment is not held against it."""

import pytest

from tuner.measurement.contamination import CANARY_HISTORY, causes, detector, judge

TICK_NS = 1e7
CLEAN = {
    "wall_ns": 1e9, "cpu_ns": 1.9e9, "busy_ns": 1.9e9, "steal_ns": 0.0, "max_run_delay_ns": 1e6, "cpus": 2.0,
    "canary_hash_ns": 1e6, "canary_memory_ns": 1e6, "throttled_periods": 0.0, "pressure_io_ns": 0.0,
}  # fmt: skip


def verdict(**changes: float) -> str | None:
    return judge({**CLEAN, **changes}, [CLEAN] * CANARY_HISTORY, tick_ns=TICK_NS)


def test_threads_that_crowd_their_own_cpus_are_not_a_neighbours_doing():
    assert verdict(max_run_delay_ns=5e8, busy_threads=3.0) is None
    assert "run delay" in (verdict(max_run_delay_ns=5e8, busy_threads=2.0) or "")
    assert "others' CPU" in (verdict(max_run_delay_ns=5e8, busy_threads=3.0, busy_ns=2.9e9) or "")


def test_a_quiet_round_is_clean():
    assert verdict() is None
    assert judge({}) is None


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"max_run_delay_ns": 30.1e6}, "run delay"),
        ({"busy_ns": 1.9e9 + 0.03e9 + 2.1 * TICK_NS}, "others' CPU"),
        ({"steal_ns": 4 * TICK_NS}, "steal"),
        ({"steal_ns": 0.21e9, "wall_ns": 5e9, "busy_ns": 1e9, "cpu_ns": 1e9}, "steal"),
        ({"pressure_io_ns": 0.06e9}, "io pressure"),
        ({"pressure_memory_ns": 0.06e9}, "memory pressure"),
        ({"canary_hash_ns": 1.3e6}, "canary"),
        ({"canary_memory_ns": 1.6e6}, "canary"),
    ],
)
def test_each_cause_is_named(changes: dict[str, float], cause: str):
    found = verdict(**changes)
    assert found is not None
    assert cause in found


@pytest.mark.parametrize(
    "changes",
    [
        {"max_run_delay_ns": 9.9e6},
        # Below 2 ms a delay is no more than a timer's work, whatever its share.
        {"max_run_delay_ns": 1.9e6, "wall_ns": 1e7},
        {"busy_ns": 1.9e9 + 0.03e9 + 1.9 * TICK_NS},
        {"steal_ns": 1 * TICK_NS},
        {"canary_hash_ns": 1.2e6},
    ],
)
def test_below_its_threshold_nothing_is_a_cause(changes: dict[str, float]):
    assert verdict(**changes) is None


def test_p01_throttling_by_the_own_quota_is_never_a_reason_to_drop():
    assert verdict(throttled_periods=3.0, max_run_delay_ns=5e8) is None


def test_a_canary_needs_a_history():
    assert judge({**CLEAN, "canary_hash_ns": 9e6}, [CLEAN] * (CANARY_HISTORY - 1), tick_ns=TICK_NS) is None


def test_every_detector_that_strikes_is_told():
    found = causes({**CLEAN, "max_run_delay_ns": 5e8, "steal_ns": 1e8, "busy_ns": 2.9e9}, tick_ns=TICK_NS)
    assert [detector(cause) for cause in found] == ["run delay", "others' CPU", "steal"]


def test_a_neighbour_of_our_own_is_no_contamination():
    """It had half of a CPU; a thread waited for it, and a canary ran beside it."""
    beside = {"neighbour_ns": 5e8, "max_run_delay_ns": 5e8, "busy_ns": 2.4e9, "canary_hash_ns": 9e6}
    assert verdict(**beside) is None
    # As many threads as CPUs: two of them may have shared the one that was free.
    assert verdict(**{**beside, "max_run_delay_ns": 9e8, "busy_threads": 2.0}) is None


def test_others_beside_our_neighbour_still_are():
    assert "others' CPU" in (verdict(neighbour_ns=5e8, busy_ns=2.6e9) or "")
    assert "run delay" in (verdict(neighbour_ns=5e8, busy_ns=2.4e9, max_run_delay_ns=6e8) or "")
