"""A real engine beside the neighbour: the block is slower, clean, and where it says that it ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.machine import probe
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, Workload
from tests.support.builds import demo_model
from tuner.crew import Crew
from tuner.events import ignore
from tuner.home import Home
from tuner.request import SearchRequest
from tuner.search.background import apart
from tuner.search.budget import Budget
from tuner.setup import build_space, open_study, open_workshop

pytestmark = pytest.mark.real


def test_a_real_engine_is_measured_quiet_and_beside_a_neighbour(tmp_path: Path):
    request = SearchRequest(
        str(demo_model()),
        Workload("tiny", prompt_tokens=32, output_tokens=12),
        QUALITY_LEVELS["any"],
        engines=("llama_cpp",),
        variants=("source",),
        busy_share=0.5,
    )
    with Store.open(tmp_path / "store.sqlite3") as store:
        shop = open_workshop(request, probe(), store, Home(tmp_path), ignore)
        space = build_space(request, shop)
        study = open_study(request, shop, space)
        with shop.bench(seed=0) as bench:
            crew = Crew(request, shop, space, study, bench, Budget.begin(lambda: 0.0, 60.0))
            default = space.default("llama_cpp")
            every = space.machine.effective.cpu_count
            # Passive: threads that spin would fight the neighbour for seconds.
            config = default.with_settings(n_threads=every, n_threads_batch=every, wait_policy="passive")
            measured = [crew.finals.runner.measure(config, rounds=1, fresh=True) for _ in range(3)]
        shop.close()
    for one in measured:
        quiet, busy = apart(one.rounds)
        assert quiet
        assert busy
        facts = busy[0].facts
        # It had some of a CPU, and not more than one.
        assert 0.05 * facts["wall_ns"] < facts["neighbour_ns"] < 1.2 * facts["wall_ns"]
