"""A published answer is given again only while nothing under it has changed."""

from typing import Any

import pytest

from probes.machine import Machine, probe
from profiles.vocabulary import TrialStatus
from tests.support.flow import Flow
from tuner.known import known_answer
from tuner.outcome import Outcome
from tuner.setup import build_space, open_workshop
from tuner.workshop import Workshop


def known(flow: Flow, **changes: Any) -> dict[str, Any] | None:
    """The known answer to a request, or None."""
    request = flow.request(bounded=False, trials=None, **changes)
    with flow.store() as store:
        shop = open_workshop(request, probe(), store, flow.home, lambda _event: None)
        try:
            return known_answer(shop, build_space(request, shop), request)
        finally:
            shop.close()


def test_the_answer_is_known(flow_after: Flow, finished):
    answer = known(flow_after)
    assert answer is not None
    assert {**answer, "measured_now": True} == finished[1]


def test_another_engine_build_is_drift(flow_after: Flow, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Workshop, "build", lambda _shop, _engine: "simulated 2")
    assert known(flow_after) is None


def test_another_kernel_is_drift(flow_after: Flow, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Machine, "kernel", "99.0")
    assert known(flow_after) is None


def test_another_space_is_another_question(flow_after: Flow):
    assert known(flow_after, variants=("source", "q8_0")) is None


def test_s11_an_answer_on_an_invalidated_trial_is_not_given_again(flow_after: Flow, finished):
    with flow_after.store() as store:
        profile = store.profile(finished[1]["best"]["profile_id"])
        store.invalidate_trial(profile.trial_ids[0], "the fan was off")
        assert store.profile(profile.id).invalidated
    assert known(flow_after) is None


def test_where_no_gain_is_shown_the_default_is_published(flow: Flow, quick_quality):
    document = flow.search(trials=1, variants=("source",))
    assert document["best"]["config"] == document["baseline"]["config"]
    assert (document["speedup"]["low"], document["speedup"]["high"]) == (1.0, 1.0)


def test_an_outcome_without_a_confirmation_is_no_gain(flow_after: Flow):
    config = flow_after.trials()[0].config
    outcome = Outcome(config, config, (), None, None, "quiet", 0, 1.0)
    assert outcome.status == "no_gain"
    assert outcome.published == config


def test_the_trials_of_a_profile_are_its_evidence(flow_after: Flow, finished):
    with flow_after.store() as store:
        profile = store.profile(finished[1]["best"]["profile_id"])
        trials = [store.trial(trial) for trial in profile.trial_ids]
    assert {trial.config for trial in trials} <= {profile.config, profile.baseline_config}
    assert all(trial.status in (TrialStatus.COMPLETE, TrialStatus.PRUNED) for trial in trials)
