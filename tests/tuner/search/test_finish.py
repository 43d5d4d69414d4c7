"""The best leader that runs is confirmed; every pair is kept as it ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.records import Measurement as MeasurementKey
from profiles.records import StudySpec
from profiles.store import Store, owner_token
from profiles.vocabulary import Objective, TrialStatus
from tests.support.surface import MODEL, FakeClock, SurfaceRunner
from tuner.errors import WorkerError
from tuner.events import Event
from tuner.search.budget import Budget
from tuner.search.finish import Finish
from tuner.search.ledger import Estimate
from tuner.search.tie import TIE_PAIRS, decide_tie, is_cheaper

RESPONSE = Objective("response_ms")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "cputune.sqlite3") as store:
        yield store


class Setting:
    """A finish on the simulated surface; `bad` variants crash."""

    def __init__(
        self,
        store: Store,
        space: Any,
        *,
        total_s: float = 1000.0,
        bad: tuple[str, ...] = (),
        cheaper: Callable[[Any, Any], bool] = lambda *_: False,
    ) -> None:
        def fault(config: Any) -> None:
            if config.variant in bad:
                raise WorkerError(TrialStatus.CRASH, "SIGSEGV")

        clock = FakeClock()
        self.events: list[Event] = []
        self.runner = SurfaceRunner(space, clock, noise=0.005, fault=fault)
        store.save_machine(space.machine, "here")
        store.save_model(MODEL, "tiny.gguf", "tiny")
        self.study = store.open_study(
            StudySpec(
                fingerprint=space.machine.fingerprint, model_digest=MODEL.digest, workload=space.workload,
                engines=("simulated",), space_hash=space.digest, storage_name="tiny", name="tiny",
                objectives=(RESPONSE,), quality_level="any", seed=1, sampler="tpe",
                engine_builds={"simulated": "1"},
            ),
            owner_token(),
        )  # fmt: skip
        self.store = store
        self.finish = Finish(
            store, self.study, self.runner, RESPONSE, space.workload,
            lambda c: MeasurementKey(space.machine.fingerprint, "1", c.variant, c, space.workload),
            Budget.begin(clock, total_s), self.events.append, cheaper=cheaper,
        )  # fmt: skip
        self.default = self.estimate(space.default("simulated"))
        self.leaders = [
            self.estimate(space.make("simulated", variant, {"n_threads": 4, "n_threads_batch": 4}))
            for variant in ("bf16", "q8_0")
        ]

    def estimate(self, config: Any) -> Estimate:
        ttft_ms, itl_ms = self.runner.true_ms(config)
        value = self.runner.response_ms(config)
        return Estimate(config, value, value, ttft_ms, itl_ms, 5)


def test_the_best_leader_is_confirmed_and_its_pairs_are_kept(store, space):
    setting = Setting(store, space)
    decided = setting.finish.first_that_runs(setting.default, setting.leaders, 0.5)
    assert decided.best == setting.leaders[0].config
    assert decided.confirmation.status == "confirmed"
    (comparison,) = store.comparisons(setting.study.id)
    assert comparison.id == decided.comparison_id
    assert len(store.pairs(comparison.id)) == len(decided.confirmation.pairs) == 8
    true = setting.default.value / setting.leaders[0].value
    assert decided.confirmation.speedup.low <= true * 1.02
    assert decided.confirmation.speedup.high >= true * 0.98


def test_a_leader_whose_processes_fail_gives_way_to_the_next(store, space):
    setting = Setting(store, space, bad=("bf16",))
    decided = setting.finish.first_that_runs(setting.default, setting.leaders, 0.5)
    assert decided.best.variant == "q8_0"
    assert [c.verdict for c in store.comparisons(setting.study.id)].count("failed") == 1
    assert any("SIGSEGV" in event.message for event in setting.events)


def test_the_default_is_left_where_no_leader_runs(store, space):
    setting = Setting(store, space, bad=("bf16", "q8_0"))
    decided = setting.finish.first_that_runs(setting.default, setting.leaders, 0.5)
    assert (decided.best, decided.confirmation, decided.comparison_id) == (setting.default.config, None, None)


def test_a_default_that_leads_is_not_compared_with_itself(store, space):
    setting = Setting(store, space)
    decided = setting.finish.first_that_runs(setting.default, [setting.default, *setting.leaders], 0.5)
    assert decided.confirmation is None
    assert setting.runner.measured == []


def test_s02_an_interrupted_comparison_goes_on_from_its_pairs(store, space):
    setting = Setting(store, space)
    kept = store.start_comparison(
        setting.study.id, setting.default.config, setting.leaders[0].config, RESPONSE.metric
    )
    for _ in range(6):
        store.add_pair(kept.id, [setting.default.value], [setting.leaders[0].value])
    decided = setting.finish.first_that_runs(setting.default, setting.leaders, 0.5)
    assert decided.comparison_id == kept.id
    assert len(setting.runner.measured) == 2 * 2
    assert len(store.pairs(kept.id)) == 8


# --- ties -------------------------------------------------------------------------------------------


def tied(setting: Setting, space: Any, *, thread_cost: float = 1.0) -> list[Estimate]:
    """A leader, and one with a thread less that takes `thread_cost` times as long, in truth."""
    leader = setting.leaders[1]
    rival = space.make("simulated", "q8_0", {**leader.config.as_dict(), "n_threads": 3})
    true_ms = setting.runner.true_ms
    leader_ms = true_ms(leader.config)

    def true(config: Any) -> tuple[float, float]:
        return (
            (leader_ms[0] * thread_cost, leader_ms[1] * thread_cost) if config == rival else true_ms(config)
        )

    setting.runner.true_ms = true
    return [leader, setting.estimate(rival)]


def fewer_threads(one: Any, other: Any) -> bool:
    return one.get("n_threads") < other.get("n_threads")


def test_a_cheaper_one_that_is_shown_no_worse_takes_the_first_place(store, space):
    setting = Setting(store, space, cheaper=fewer_threads)
    leader, rival = tied(setting, space)
    decided = setting.finish.first_that_runs(setting.default, [leader, rival], 0.5)
    assert decided.best == rival.config
    assert decided.confirmation.status == "confirmed"
    verdicts = {c.config_b.key: c.verdict for c in store.comparisons(setting.study.id)}
    assert verdicts[rival.config.key] in ("no worse", "confirmed")
    tie = next(c for c in store.comparisons(setting.study.id) if c.config_a == leader.config)
    assert tie.verdict == "no worse"
    assert len(store.pairs(tie.id)) == TIE_PAIRS


def test_a_cheaper_one_that_is_two_percent_slower_does_not(store, space):
    setting = Setting(store, space, cheaper=fewer_threads)
    leader, rival = tied(setting, space, thread_cost=1.02)
    decided = setting.finish.first_that_runs(setting.default, [leader, rival], 0.5)
    assert decided.best == leader.config


def test_a_tie_takes_no_time_from_the_confirmation(store, space):
    setting = Setting(store, space, total_s=60.0, cheaper=fewer_threads)
    decided = setting.finish.first_that_runs(setting.default, tied(setting, space), 0.5)
    assert [c.config_a for c in store.comparisons(setting.study.id)] == [setting.default.config]
    assert decided.confirmation is not None


def test_a_tie_is_shown_never_assumed():
    assert decide_tie([0.0] * (TIE_PAIRS - 1), False) is None
    assert decide_tie([0.001, -0.001] * (TIE_PAIRS // 2), False) is True
    # Nothing here says that it is slower, nor that it is not.
    assert decide_tie([0.1, -0.1] * (TIE_PAIRS // 2), False) is False
    assert decide_tie([0.0] * 3, True) is False


def test_cheaper_means_less_of_one_and_more_of_none(space):
    def config(**settings: Any) -> Any:
        return space.make("simulated", "q8_0", {"n_threads": 4, "n_threads_batch": 4, **settings})

    memory = {
        config(): 100.0,
        config(n_threads=3): 101.0,
        config(n_ubatch=16): 90.0,
        config(n_ubatch=32): 99.0,
    }
    memory |= {config(n_threads=3, n_ubatch=64): 120.0}

    def cheaper(one: Any, other: Any) -> bool:
        return is_cheaper(space, lambda c: {"peak_rss_mib": memory[c]}, one, other)

    assert cheaper(config(n_threads=3), config())
    assert not cheaper(config(), config(n_threads=3))
    assert cheaper(config(n_ubatch=16), config())
    assert not cheaper(config(n_ubatch=32), config())
    assert not cheaper(config(n_threads=3, n_ubatch=64), config())
    assert is_cheaper(space, lambda _: {}, config(n_threads=3), config())


def test_what_an_interrupted_confirmation_had_begun_is_confirmed_though_the_default_leads(store, space):
    setting = Setting(store, space)
    rival = setting.leaders[0]
    comparison = store.start_comparison(
        setting.study.id, setting.default.config, rival.config, RESPONSE.metric
    )
    store.add_pair(comparison.id, [2000.0], [1000.0])
    decided = setting.finish.first_that_runs(setting.default, [setting.default], 0.5)
    assert decided.best == rival.config
    assert decided.comparison_id == comparison.id
    assert decided.confirmation is not None


def test_a_default_that_leads_stays_where_nothing_was_begun(store, space):
    setting = Setting(store, space)
    decided = setting.finish.first_that_runs(setting.default, [setting.default, *setting.leaders], 0.5)
    assert (decided.best, decided.confirmation) == (setting.default.config, None)
