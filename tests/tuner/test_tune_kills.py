"""S02: kill -9 of the searching process at named points, and what the next search makes of it."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from profiles.records import StudyStatus
from profiles.vocabulary import TrialStatus
from tests.support.flow import Flow
from tests.support.kills import living_in, searched

OPTIONS = {"trials": 2, "variants": ("source", "bf16")}
SEARCHING = (
    "open_study:1", "start_trial:1", "finish_trial:1", "start_trial:2", "finish_trial:2", "save_variant:2",
    "save_quality:1",
)  # fmt: skip
CONFIRMING = (
    "start_comparison:1",
    "add_rounds:1",
    "add_pair:2",
    "finish_comparison:1",
    "publish:1",
    "finish_study:1",
)
CHAINS = {
    "before each commit": [f"verb:{verb}:before" for verb in (*SEARCHING, *CONFIRMING)],
    "after each commit": [f"verb:{verb}:after" for verb in (*SEARCHING, "add_pair:1", "publish:1")],
    "between": [
        "making",
        "round:2",
        "event:trial:1",
        "round:4",
        "event:quality:1",
        "round:9",
        "index:before",
    ],
}
DEATH_S = 5.0


@pytest.mark.parametrize("chain", CHAINS)
def test_s02_s05_a_search_that_is_killed_again_and_again_comes_to_its_end(
    chain: str, flow: Flow, tmp_path: Path
):
    """Each search goes on where the one before it was killed, until one is not."""
    pids = tmp_path / "pids"
    environment = {name: os.environ[name] for name in ("CPUTUNE_HOME", "CPUTUNE_LOCK")}
    finished: dict[int, tuple[object, ...]] = {}
    killed = 0
    for point in [*CHAINS[chain], None]:
        code = searched(flow.home.root, flow.model, point, pids, environment, OPTIONS)
        # A point that an earlier search of the chain has passed for good is not met again.
        assert code in ((0,) if point is None else (0, -9)), point
        killed += code == -9
        check_nothing_is_left(pids, point)
        finished = check_the_store(flow, finished, point, ended=code == 0)
    assert killed >= len(CHAINS[chain]) - 3, f"only {killed} of the points were met"
    assert flow.study().status in {StudyStatus.PROVISIONAL, StudyStatus.NO_GAIN}
    statuses = {trial.status for trial in flow.trials()}
    assert statuses <= {TrialStatus.COMPLETE, TrialStatus.PRUNED, TrialStatus.INTERRUPTED}


def check_nothing_is_left(pids: Path, point: str | None) -> None:
    """Neither the workers nor anything of their process groups."""
    until = time.monotonic() + DEATH_S
    groups = set(map(int, pids.read_text().split()))
    while left := living_in(groups):
        assert time.monotonic() < until, f"processes {left} outlived their parent at {point}"
        os.sched_yield()
    pids.write_text("")


def check_the_store(
    flow: Flow, before: dict[int, tuple[object, ...]], point: str | None, *, ended: bool
) -> dict[int, tuple[object, ...]]:
    """The trials that are finished now, with what they measured; those of before are still among them."""
    with closing(sqlite3.connect(flow.home.database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], point
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == [], point
    with flow.store() as store:
        studies = store.studies()
        assert len(studies) <= 1, point
        trials = store.trials(studies[0].id) if studies else ()
        now = {
            trial.id: (trial.number, trial.config, trial.status, trial.objective_value,
                       store.trial_rounds(trial.id))
            for trial in trials
            if trial.status not in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)
        }  # fmt: skip
        interrupted = [trial for trial in trials if trial.status is TrialStatus.INTERRUPTED]
    assert all(trial.status is not TrialStatus.RUNNING for trial in trials), point
    assert {number: now.get(number) for number in before} == before, f"{point}: a finished trial was lost"
    keys = [values[1].key for values in now.values()]
    assert len(keys) == len(set(keys)), f"{point}: a finished configuration was measured again"
    if ended:
        assert all(trial.finished_at is not None for trial in interrupted), point
    return now
