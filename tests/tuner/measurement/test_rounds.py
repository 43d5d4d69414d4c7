"""A round is silent, exact, and refuses less than what was asked."""

import gc
from pathlib import Path

import pytest

from tuner.engines.base import Token
from tuner.engines.simulated.session import SimulatedSession
from tuner.measurement import counters
from tuner.measurement.rounds import InvalidRoundError, run_round

SETTINGS = {
    "n_threads": 1, "n_threads_batch": 1, "n_ubatch": 64, "flash_attn": "off", "type_k": "f16",
    "type_v": "f16",
}  # fmt: skip


@pytest.fixture
def session(tmp_path: Path) -> SimulatedSession:
    path = tmp_path / "model"
    path.write_bytes(b"model")
    session = SimulatedSession()
    session.load(path, {})
    session.configure(SETTINGS, 512, 2)
    return session


class Real(SimulatedSession):
    """A session on the machine's clock: it hides that its own is virtual."""

    counters = None


def test_each_stream_has_a_time_for_each_token(session: SimulatedSession):
    trace = run_round(session, [[6] * 40, [7] * 100], 9)
    assert [len(times) for times in trace.token_ns] == [9, 9]
    for times in trace.token_ns:
        assert list(times) == sorted(set(times))
        assert times[0] > 0


def test_s11_a_stream_that_makes_no_headway_ends(session: SimulatedSession, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "step", list)
    with pytest.raises(InvalidRoundError, match="0 of 4 tokens"):
        run_round(session, [[5, 6]], 4)


def test_s11_tokens_of_a_foreign_sequence_do_not_count(
    session: SimulatedSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session, "step", lambda: [Token(999, 5)])
    with pytest.raises(InvalidRoundError, match="no headway"):
        run_round(session, [[5, 6]], 4)


def test_a_failed_round_frees_its_streams(session: SimulatedSession, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(session, "step", list)
        with pytest.raises(InvalidRoundError):
            run_round(session, [[5, 6]] * 2, 4)
    assert run_round(session, [[5, 6]] * 2, 4).token_ns


def test_the_observer_is_silent_during_a_round(session: SimulatedSession, monkeypatch: pytest.MonkeyPatch):
    enabled = []
    step = session.step
    monkeypatch.setattr(session, "step", lambda: (enabled.append(gc.isenabled()), step())[1])
    run_round(session, [[5, 6]], 4)
    assert set(enabled) == {False}
    assert gc.isenabled()


def test_p01_a_real_round_has_the_kernels_counters(session: SimulatedSession):
    session.__class__ = Real
    try:
        facts = run_round(session, [[5, 6]], 4).facts
    finally:
        session.__class__ = SimulatedSession
    expected = {
        "wall_ns",
        "cpu_ns",
        "voluntary_switches",
        "minor_faults",
        "busy_ns",
        "steal_ns",
        "canary_hash_ns",
    }
    assert expected <= set(facts)
    assert facts["wall_ns"] > 0


def test_deltas_are_differences_and_the_worst_threads_delay():
    base = {"cpu_ns": 5, "involuntary_switches": 2}
    before = counters.Snapshot({**base, "wall_ns": 10}, {1: 100, 2: 50}, {1: 0, 2: 7})
    after = counters.Snapshot(
        {name: 2 * value for name, value in base.items()} | {"wall_ns": 30, "throttled_periods": 1},
        {1: 130, 3: 90},
        {1: 15, 2: 8, 3: 1},
    )
    found = counters.deltas(before, after)
    assert (found["wall_ns"], found["cpu_ns"], found["involuntary_switches"]) == (20, 5, 2)
    assert found["max_run_delay_ns"] == 90
    assert found["busy_threads"] == 1
    assert "throttled_periods" not in found


def test_a_thread_that_ends_while_it_is_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch):
    def look(task: int) -> set[int]:
        if task == 2:
            raise ProcessLookupError(3, "No such process")
        return {task}

    monkeypatch.setattr(counters, "_tasks", lambda: [1, 2, 3])
    monkeypatch.setattr("os.sched_getaffinity", look)
    assert counters.thread_affinities() == [[1], [3]]
