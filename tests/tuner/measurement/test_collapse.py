"""A collapse is told by its signature, ends the round at once, and waits for a quiet machine."""

import time
from collections.abc import Callable

import pytest

from profiles.vocabulary import Config
from tests.support.builds import demo_model, safe
from tuner.measurement import collapse
from tuner.measurement.asked import ABORTED
from tuner.measurement.bench import Bench
from tuner.measurement.collapse import CollapseError, Watch, wait_for_quiet
from tuner.measurement.rounds import Interruptible, run_round

MS = 1_000_000


class Steps:
    """A clock and a CPU counter that pass as told."""

    def __init__(self, threads: int = 2, usual_ms: float | None = None) -> None:
        self.now_ns = 0
        self.cpu_ns = 0.0
        self.reads = 0
        self.watch = Watch(threads, self._cpu, usual_ns=None if usual_ms is None else usual_ms * MS)
        self.watch.begin(0, 20)

    def _cpu(self) -> float:
        self.reads += 1
        return self.cpu_ns

    def pass_ms(self, *gaps_ms: float, busy: float) -> None:
        for gap in gaps_ms:
            self.now_ns += int(gap * MS)
            self.cpu_ns += gap * MS * busy
            self.watch.step(self.now_ns)


def test_slow_steps_with_busy_threads_are_a_collapse():
    steps = Steps()
    steps.pass_ms(*[10] * 6, busy=2.0)
    with pytest.raises(CollapseError, match="40 times slower while all threads were busy"):
        steps.pass_ms(*[400] * 3, busy=1.9)


@pytest.mark.parametrize(
    ("gaps_ms", "busy"),
    [
        ([400] * 10, 0.6),  # waiting threads that sleep: another detector's matter
        ([400, 400, 10] * 4, 2.0),  # an engine's own spikes
        ([29] * 10, 2.0),  # slower, but not that much
    ],
)
def test_anything_else_is_none(gaps_ms: list[float], busy: float):
    steps = Steps()
    steps.pass_ms(*[10] * 5, busy=2.0)
    steps.pass_ms(*gaps_ms, busy=busy)


def test_a_round_that_is_slow_from_its_first_token_is_compared_with_earlier_ones():
    Steps().pass_ms(*[400] * 20, busy=2.0)
    with pytest.raises(CollapseError):
        Steps(usual_ms=10).pass_ms(*[400] * 3, busy=2.0)


def test_nothing_is_read_while_all_is_well():
    steps = Steps(usual_ms=10)
    steps.pass_ms(*[11] * 100, busy=2.0)
    assert steps.reads == 0


def test_a_collapsed_round_is_given_up_kept_with_its_cause_and_repeated(
    make_bench: Callable[..., Bench],
    default: Config,
    set_faults: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
):
    waited = []
    monkeypatch.setattr(collapse, "wait_for_quiet", lambda *_, **limits: waited.append(limits))
    set_faults({"*": "collapse"})
    config = default.with_settings(n_threads=2)
    if make_bench()._machine.effective.cpu_count < 2:
        pytest.skip("one CPU has no threads that wait for each other")
    measured = make_bench().measure(config, rounds=3)
    # The fifth request is the second round's later part.
    assert [ABORTED in samples.facts for samples in measured.rounds] == [False, True, False, False]
    given_up = measured.rounds[1]
    assert given_up.dropped is not None
    assert given_up.dropped.startswith("collapse: tokens came 40 times slower")
    assert len(given_up.gaps_ms[0]) < len(measured.rounds[0].gaps_ms[0])
    assert len(waited) == 1


def test_under_a_stated_load_every_round_runs_to_its_end(
    make_bench: Callable[..., Bench], default: Config, set_faults: Callable[..., None]
):
    set_faults({"*": "collapse"})
    measured = make_bench().measure(default.with_settings(n_threads=2), rounds=3, retries=0)
    assert not any(ABORTED in samples.facts for samples in measured.rounds)
    assert len({len(samples.gaps_ms[0]) for samples in measured.rounds}) == 1


@pytest.mark.parametrize(("busy_windows", "is_quiet"), [(0, True), (3, True), (100, False)])
def test_it_waits_for_half_a_second_of_quiet(busy_windows: int, is_quiet: bool):
    now, busy, naps = [0.0], [0], []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds
        # A busy window has one CPU's whole time; a quiet one what a tick's rounding may show.
        busy[0] += int(seconds * 1e9) if len(naps) <= busy_windows else 10 * MS

    found = wait_for_quiet(lambda: busy[0], 2, 10 * MS, limit_s=5.0, clock=lambda: now[0], sleep=sleep)
    assert found is is_quiet
    assert naps == [0.5] * (busy_windows + 1 if is_quiet else 10)


@pytest.mark.real
def test_a_step_that_does_not_end_is_stopped_by_the_engines_own_callback(monkeypatch: pytest.MonkeyPatch):
    from tuner.engines.llama_cpp.session import LlamaSession

    monkeypatch.setattr(collapse, "LEAST_WATCHED_S", 0.05)
    # A busy machine may leave this test less than a whole CPU.
    monkeypatch.setattr(collapse, "BUSY_SHARE", 0.0)
    plain = {"n_threads": 1, "n_threads_batch": 1, "n_ubatch": 512, "flash_attn": "off", "repack": True}
    settings = safe("llama_cpp", plain)
    session = LlamaSession()
    session.load(demo_model(), settings)
    session.configure(settings, 1024, 1)
    prompt = [30 + n % 500 for n in range(512)]
    assert isinstance(session, Interruptible)
    with Watch(1, time.process_time_ns, usual_ns=1.0, interrupt=session.interrupt) as watch:
        number = session.add(prompt, 2, ignore_eos=True)
        watch.begin(session.now_ns(), 1)
        # The prompt fits into one step, which would have given a token.
        assert session.step() == []
        with pytest.raises(CollapseError, match="a step did not end"):
            watch.step(session.now_ns())
    session.cancel(number)
    # Nothing is left behind: the next round is as exact as ever.
    assert [len(times) for times in run_round(session, [prompt[:20]], 4).token_ns] == [4]
    session.close()


def test_a_sound_round_is_not_interrupted():
    stopped = []
    with Watch(1, time.process_time_ns, usual_ns=1e6, interrupt=lambda: stopped.append(1)) as watch:
        watch.begin(0, 20)
    assert stopped == []
    assert watch._guard is not None
    assert not watch._guard.is_alive()
