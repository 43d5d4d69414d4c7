"""S03: a setting that always crashes costs a search three trials at most, whatever its scope."""

from collections.abc import Callable

import pytest

from profiles.vocabulary import QUALITY_LEVELS, Config, Setting, TrialStatus
from tests.support.surface import LOSSLESS, FakeClock, SurfaceRunner
from tuner.errors import WorkerError
from tuner.search.blame import FAILURES
from tuner.search.budget import Budget
from tuner.search.judge import QualityJudge
from tuner.search.objectives import objective_of
from tuner.search.search import Search
from tuner.search.space import Space


class Ends:
    """A recorder that remembers how trials ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[Config, TrialStatus]] = []

    def begin(self, config):
        return len(self.ended)

    def finish(self, trial, config, status, reason, value, measured):
        self.ended.append((config, status))

    def more_rounds(self, config, rounds):
        pass


def searched(space: Space, fault: Callable[[Config], None]) -> tuple[Ends, Config]:
    clock, ends = FakeClock(), Ends()
    search = Search(
        space,
        objective_of(space.workload),
        runner=SurfaceRunner(space, clock, noise=0.01, fault=fault),
        recorder=ends,
        judge=QualityJudge(space, QUALITY_LEVELS["any"], lambda _: LOSSLESS, observer=lambda _: None),
        digest_of=lambda _, label: label,
        budget=Budget.begin(clock, 120.0),
        trials=40,
        seed=0,
        observer=lambda _: None,
    )
    leaders = search.run(space.default("simulated"))
    return ends, leaders[0].config


CRASHES: dict[str, dict[str, Setting]] = {
    "run": {"n_threads": 3},
    "context": {"flash_attn": "on"},
    "load": {"repack": False},
    "process": {"wait_policy": "passive"},
    "variant": {"variant": "q4_0"},
    "pair in a context": {"flash_attn": "on", "type_k": "q8_0"},
    "pair of run and process": {"n_threads": 4, "wait_policy": "short_spin"},
    "pair of variant and context": {"variant": "q8_0", "flash_attn": "on"},
}


@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_s03_what_always_crashes_costs_three_trials_at_most(space: Space, crash: dict[str, Setting]):
    def fault(config: Config) -> None:
        held = {"variant": config.variant, **config.as_dict()}
        if all(held[name] == value for name, value in crash.items()):
            raise WorkerError(TrialStatus.CRASH, "SIGSEGV")

    ends, best = searched(space, fault)
    crashed = [config for config, status in ends.ended if status is TrialStatus.CRASH]
    assert 1 <= len(crashed) <= FAILURES
    assert len(ends.ended) > 20
    assert any({"variant": best.variant, **best.as_dict()}[name] != value for name, value in crash.items())
