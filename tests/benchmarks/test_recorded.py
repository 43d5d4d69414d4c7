"""The search on the landscapes that were recorded: a change that makes it worse fails here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.report import HORIZON, MUST, regrets

RECORDED = sorted((Path(__file__).parent / "landscapes").glob("*.json.gz"))
SEEDS = 12


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_regret_at_a_tenth_of_the_grids_cost(path: Path) -> None:
    at_the_end = [regrets(str(path), "cputune", HORIZON, seed)[-1] for seed in range(SEEDS)]
    assert np.median(at_the_end) <= MUST["median"]
    assert np.quantile(at_the_end, 0.95) <= MUST["p95"]


def test_there_is_one() -> None:
    assert RECORDED
