"""Charts of studies as they are met: of several engines, and while a search still runs."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from profiles.records import TrialRecord
from profiles.vocabulary import Config, Objective, RoundSamples, TrialStatus
from tuner.search.ledger import Ledger
from tuner.search.recorded import Recorded
from tuner.search.space import Space

pytest.importorskip("plotly")
RESPONSE = Objective("response_ms")


def measured(ledger: Ledger, config: Config, itl_ms: float) -> None:
    ledger.add(config, [RoundSamples("short", (100.0,), ((itl_ms,) * 19,))])


def study(**result: Any) -> Any:
    """What the charts ask of one."""
    return SimpleNamespace(objectives=(RESPONSE,), limits=(), quality_level="any", result=result)


def trial(number: int, config: Config, status: TrialStatus) -> TrialRecord:
    return TrialRecord(
        id=number, study_id="s", number=number, stage="", config=config, status=status, reason=None,
        objective_value=None, effective={}, metrics={}, measurement_key=None, facts={}, owner="",
        started_at=datetime.now(UTC), finished_at=None, invalidated_at=None,
    )  # fmt: skip


def test_a_variant_of_one_engine_is_not_taken_for_that_of_another(space: Space) -> None:
    from tuner.search.plots import figures

    another: Any = copy.copy(space.engines[0].engine)
    another.name = "another"
    both = replace(space, engines=(*space.engines, replace(space.engines[0], engine=another)))
    ledger, own = Ledger(both, RESPONSE), space.default("simulated")
    measured(ledger, own, 10.0)
    measured(ledger, replace(own, engine="another"), 20.0)
    _, decode = figures(Recorded(study(), both, ledger, ()), None)["variants"].data
    assert dict(zip(decode.x, decode.y, strict=True)) == {"simulated source": 100.0, "another source": 50.0}


def test_a_trial_that_still_runs_is_not_drawn(space: Space) -> None:
    """Both of its phases may be known from others, and its quality from an earlier search."""
    from tuner.search.plots import figures

    ledger, configs = Ledger(space, RESPONSE), []
    judged = []
    for place, variant in enumerate(("source", "q8_0", "bf16")):
        config = space.make("simulated", variant, {})
        assert config is not None
        configs.append(config)
        measured(ledger, config, 10.0 + place)
        key = space.quality_key(config)
        metrics = {"kl_divergence": 0.01 * place, "top1_agreement": 0.99}
        judged.append(
            {"engine": key.engine, "variant": key.variant, "config": key.as_dict(), "metrics": metrics,
             "keeps": True}
        )  # fmt: skip
    statuses = (TrialStatus.COMPLETE, TrialStatus.COMPLETE, TrialStatus.RUNNING)
    trials = tuple(trial(n, c, s) for n, (c, s) in enumerate(zip(configs, statuses, strict=True)))
    made = figures(Recorded(study(judged=judged), space, ledger, trials), None)
    drawn = {trace.name for trace in made["quality"].data}
    assert drawn == {"source", "q8_0", "Pareto front"}
