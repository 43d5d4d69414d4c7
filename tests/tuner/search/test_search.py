"""A whole search on a response surface: what it finds, what it spends, what it leaves alone."""

import pytest

from profiles.vocabulary import WORKLOADS, Objective, TrialStatus
from tests.support.lab import Lab
from tests.support.surface import SurfaceRunner, space_of
from tuner.engines.base import Phase
from tuner.errors import ModelFileError, NothingFeasibleError, WorkerError
from tuner.search.proposer import Proposer


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_best_feasible_configuration(space, seed):
    lab = Lab(space, seed=seed)
    leaders = lab.run()
    assert lab.regret(leaders[0].config) < 0.02
    assert all(leader.config.variant != "q4_0" for leader in leaders)
    assert lab.clock.now_s < 60


def test_the_first_provisional_leader_comes_within_fifteen_seconds_of_sixty(space):
    lab = Lab(space)
    lab.run()
    assert lab.first_leader_s < 15


def test_the_same_seed_does_the_same(space):
    one, two = Lab(space, seed=3), Lab(space, seed=3)
    assert one.run() == two.run()
    assert one.notes.begun == two.notes.begun


def test_trials_are_bounded(space):
    lab = Lab(space, trials=9, budget_s=600)
    lab.run()
    assert len(lab.notes.begun) <= 9


def test_it_stops_early_when_nothing_better_is_likely(space):
    lab = Lab(space, budget_s=3600)
    leaders = lab.run()
    assert lab.clock.now_s < 600
    why = "nothing more than 1 % better is likely"
    assert any(event.message == why for event in lab.events)
    assert lab.search.ended == why
    assert lab.regret(leaders[0].config) < 0.02


def test_every_variant_is_seen_once_before_any_is_judged_but_the_file_itself(space):
    lab = Lab(space)
    lab.run()
    order = [e.kind for e in lab.events if e.kind in ("trial", "quality", "stage")]
    # The baseline, then four variants of which one round each is measured.
    assert order[:2] == ["stage", "trial"]
    assert order.index("quality") > 4
    variants = [config.variant for config in lab.notes.begun[1:5]]
    assert sorted(variants) == ["bf16", "q4_0", "q8_0", "source"]


def test_quality_is_judged_lazily(space):
    lab = Lab(space)
    lab.run()
    assert len(lab.asked) == len(set(lab.asked)) <= 6


def test_a_resumed_search_repeats_nothing(space):
    lab = Lab(space, trials=12)
    lab.run()
    again = Lab(space, trials=12, seed=1)
    for config, status, _, measured in lab.notes.ended:
        again.search.remember(config, measured.rounds if measured else (), status)
    again.run()
    done = [(phase, lab.space.phase_part(c, phase)) for c in lab.notes.begun for phase in Phase]
    for config in again.notes.begun:
        parts = [(phase, lab.space.phase_part(config, phase)) for phase in Phase]
        combined = config not in lab.notes.begun and all(part in done for part in parts)
        assert combined or not all(part in done for part in parts)
    assert not set(lab.notes.begun) & set(again.notes.begun)


def test_s01_a_crashing_value_is_left_alone_after_three_and_the_search_goes_on(space):
    def fault(config):
        if config.get("flash_attn") == "on":
            raise WorkerError(TrialStatus.CRASH, "SIGSEGV")

    lab = Lab(space, fault=fault)
    leaders = lab.run()
    assert leaders[0].config.get("flash_attn") == "off"
    crashed = [config for config, status, *_ in lab.notes.ended if status is TrialStatus.CRASH]
    assert 1 <= len(crashed) <= 4


def test_a_variant_that_cannot_be_made_is_left_out(space):
    def digest_of(engine, label):
        if label == "q8_0":
            raise ModelFileError("no such tensor")
        return label

    lab = Lab(space, digest_of=digest_of)
    leaders = lab.run()
    assert all(config.variant != "q8_0" for config in lab.notes.begun)
    assert leaders


def test_an_earlier_leader_whose_variant_can_not_be_made_any_more_is_left_out(space):
    """Dropped from the cache for room, and the disk is full now."""

    def digest_of(engine, label):
        if label == best.variant:
            raise ModelFileError("no room")
        return label

    lab = Lab(space)
    best = lab.run()[0].config
    assert best.variant != "source"
    again = Lab(space, digest_of=digest_of)
    for config, status, _, measured in lab.notes.ended:
        again.search.remember(config, measured.rounds if measured else (), status)
    leaders = again.run()
    assert leaders
    assert best.variant not in {leader.config.variant for leader in leaders}


def test_a_twin_is_measured_once(space):
    lab = Lab(space, digest_of=lambda engine, label: "same" if label in ("bf16", "q8_0") else label)
    lab.run()
    assert len({config.variant for config in lab.notes.begun} & {"bf16", "q8_0"}) == 1


def test_a_default_that_does_not_run_gives_way_to_its_nearest_neighbour(space):
    def fault(config):
        if config == space.default("simulated"):
            raise WorkerError(TrialStatus.CRASH, "boom")

    lab = Lab(space, fault=fault)
    lab.run()
    assert lab.search.default_failure == "boom"
    assert lab.search.baseline_estimate().config != lab.default


def crowded(lab):
    """Every thread that shares its CPU with the neighbour keeps all others waiting: such a default takes
    most of a budget, and is ended with what was allowed."""

    def fault(config):
        if 4 in (config.get("n_threads"), config.get("n_threads_batch")):
            allowed_s = lab.search.left_s
            lab.clock.now_s += min(allowed_s, lab.takes_s)
            if lab.takes_s > allowed_s:
                raise WorkerError(TrialStatus.RUN_TIMEOUT, f"no answer within {allowed_s:g} s")
            lab.conditions = "loaded"

    return fault


@pytest.mark.parametrize("takes_s", [20.0, 40.0])
def test_beside_a_neighbour_something_is_found_though_the_default_takes_most_of_the_budget(space, takes_s):
    lab = Lab(space)
    lab.takes_s = takes_s
    lab.runner._fault = crowded(lab)
    lab.runner.neighbours = 1
    default = lab.default.with_settings(n_threads=4, n_threads_batch=4)
    leaders = lab.search.run(default)
    assert lab.runner.response_ms(default) > 2 * lab.runner.response_ms(leaders[0].config)
    answered = lab.search.baseline_estimate().config
    if takes_s > 24:
        assert "no answer within 24 s" in lab.search.default_failure
        assert answered == default.with_settings(n_threads=3, n_threads_batch=3)
    else:
        assert answered == default


def test_nothing_that_runs_is_an_error(machine):
    def fault(_config):
        raise WorkerError(TrialStatus.CRASH, "boom")

    lab = Lab(space_of(machine, WORKLOADS["chat"], ("source",)), fault=fault)
    lab.run()
    with pytest.raises(NothingFeasibleError, match="boom"):
        lab.search.baseline_estimate()


def test_lucky_first_rounds_do_not_decide(space):
    """One round in ten is a third too fast, which no median of one round can tell."""

    class Lucky(SurfaceRunner):
        def _round(self, config, kind, phases):
            made = super()._round(config, kind, phases)
            if self._random.random() > 0.1:
                return made
            return type(made)(
                kind=made.kind,
                ttft_ms=tuple(0.67 * value for value in made.ttft_ms),
                gaps_ms=tuple(tuple(0.67 * gap for gap in stream) for stream in made.gaps_ms),
                wall_ms=made.wall_ms,
            )

    regrets = []
    for seed in range(3):
        lab = Lab(space, seed=seed)
        lab.search._trials._runner = Lucky(space, lab.clock, noise=0.01, seed=seed)
        regrets.append(lab.regret(lab.run()[0].config))
    assert sorted(regrets)[1] < 0.03
    assert max(regrets) < 0.1


def test_several_streams_are_searched_as_wholes(machine):
    batch = space_of(machine, WORKLOADS["batch"], ("source", "q8_0"))
    lab = Lab(batch, ruined=set())
    leaders = lab.run()
    baseline = lab.search.baseline_estimate()
    assert leaders[0].value > 1.1 * baseline.value
    assert lab.search._objective == Objective("decode_tps", "maximize")


def test_a_kv_type_that_ruined_one_variant_is_not_soon_judged_for_another(space):
    lab = Lab(space)
    lab.run()
    trials = lab.search._trials
    variants = [v for v in ("source", "q8_0") if trials.odds(space.make("simulated", v, {})) == 1.0]
    assert variants
    fresh = Lab(space).search._trials
    coarse = space.make("simulated", "q8_0", {"type_k": "q4_0"})
    before = fresh.odds(coarse)
    for config in (
        space.make("simulated", "source", {}),
        space.make("simulated", "source", {"type_k": "q4_0"}),
    ):
        fresh._is_feasible(config)
    assert before == 0.5
    assert fresh.odds(coarse) < 0.2
    assert fresh.odds(space.make("simulated", "q8_0", {})) == 1.0


def test_a_single_round_may_be_looked_at_again_and_is_no_new_trial(space):
    lab = Lab(space)
    config = space.make("simulated", "q8_0", {})
    trials = lab.search._trials
    trials.attempt(config)
    trials.look(config)
    assert lab.search.ledger.estimate(config).rounds == 2
    assert trials.look(config) is None
    assert len(lab.notes.begun) == 1
    assert len(lab.notes.more) == 1


@pytest.mark.parametrize("is_late", [True, False])
def test_a_round_that_the_clock_ended_does_not_leave_a_leader_out(space, is_late):
    """The budget ended while it was measured once more; what breaks earlier is left alone."""

    def fault(config):
        if config.variant == "q8_0" and lab.runner.measured:
            lab.clock.now_s += 1000.0 * is_late
            raise WorkerError(TrialStatus.RUN_TIMEOUT, "no answer")

    lab = Lab(space, fault=fault)
    trials = lab.search._trials
    config = space.make("simulated", "q8_0", {})
    trials.attempt(config)
    assert trials.again(config) is None
    assert trials.is_excluded(config) is not is_late


def test_with_time_left_every_setting_is_measured_next_to_the_best(space):
    lab = Lab(space, budget_s=3600)
    best = lab.run()[0].config
    known = [other for other in space.around(best) if not lab.search._trials.is_excluded(other)]
    assert {name for other in known for name, value in other.settings if value != best.get(name)} >= {
        "n_threads", "n_threads_batch", "n_ubatch", "wait_policy",
    }  # fmt: skip
    assert [other for other in known if lab.search.ledger.missing(other)] == []


def test_when_load_becomes_the_condition_only_what_is_measured_under_it_counts(space):
    """What was measured before a neighbour came would lead for good."""

    def load(config):
        if len(lab.runner.measured) == 25:
            lab.conditions, lab.runner.neighbours = "loaded", 1

    lab = Lab(space, budget_s=120.0, fault=load)
    leaders = lab.search.run(lab.default)
    best = leaders[0].config
    # On four CPUs beside a neighbour, four threads that wait for each other are eight times as slow.
    assert best.get("n_threads") == 3
    assert leaders[0].value == pytest.approx(lab.runner.response_ms(best), rel=0.05)
    default = lab.search.baseline_estimate()
    assert default.value == pytest.approx(lab.runner.response_ms(lab.default), rel=0.05)
    assert [config for config, *_ in lab.notes.ended].count(lab.default) == 2


def test_a_full_budget_is_used_where_nothing_better_is_likely(space, monkeypatch):
    monkeypatch.setattr(Proposer, "is_settled", property(lambda _: True))
    short, full = (Lab(space, trials=40, full_budget=full) for full in (False, True))
    for lab in (short, full):
        lab.search.run(lab.default)
    assert any("nothing more than 1 % better" in event.message for event in short.events)
    assert len(full.notes.ended) > len(short.notes.ended)
