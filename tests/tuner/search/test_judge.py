"""Quality is asked once for all configurations that answer alike, and only where it decides."""

from dataclasses import replace
from typing import Any

import pytest

from profiles.vocabulary import QUALITY_LEVELS, Config, Limit, Quality, TrialStatus
from tests.support.surface import LOSSLESS, RUINED
from tuner.errors import ModelFileError, WorkerError
from tuner.events import Event, ignore
from tuner.search.judge import QualityJudge

NEAR = QUALITY_LEVELS["near-lossless"]


class Scorer:
    """Counts what it is asked; q4_0 ruins the answers."""

    def __init__(self) -> None:
        self.asked: list[Config] = []

    def __call__(self, key: Config) -> Quality:
        self.asked.append(key)
        return RUINED if "q4_0" in (key.variant, *dict(key.settings).values()) else LOSSLESS


@pytest.fixture
def scorer() -> Scorer:
    return Scorer()


def test_speed_settings_are_not_judged_apart(space, scorer):
    judge = QualityJudge(space, NEAR, scorer, observer=ignore)
    for threads in (1, 2, 3):
        assert judge.feasible(space.make("simulated", "q8_0", {"n_threads": threads}))
    assert len(scorer.asked) == 1


def test_the_file_as_given_keeps_every_level_unmeasured(space, scorer):
    judge = QualityJudge(space, NEAR, scorer, observer=ignore)
    assert judge.feasible(space.default("simulated"))
    assert scorer.asked == []


def test_a_variant_that_misses_is_not_asked_again_with_a_coarser_cache(space, scorer):
    judge = QualityJudge(space, NEAR, scorer, observer=ignore)
    assert not judge.feasible(space.make("simulated", "q4_0", {}))
    assert not judge.feasible(space.make("simulated", "q4_0", {"type_k": "q8_0"}))
    assert len(scorer.asked) == 1


def test_a_coarser_cache_is_judged_for_itself(space, scorer):
    judge = QualityJudge(space, NEAR, scorer, observer=ignore)
    assert judge.feasible(space.make("simulated", "q8_0", {"type_k": "q8_0"}))
    assert not judge.feasible(space.make("simulated", "q8_0", {"type_k": "q4_0"}))


def test_known_bad_measures_nothing(space, scorer):
    judge = QualityJudge(space, NEAR, scorer, observer=ignore)
    ruined = space.make("simulated", "q4_0", {})
    assert not judge.known_bad(ruined)
    assert scorer.asked == []
    judge.feasible(ruined)
    assert judge.known_bad(ruined)


def test_any_quality_asks_nothing(space, scorer):
    judge = QualityJudge(space, QUALITY_LEVELS["any"], scorer, observer=ignore)
    assert judge.feasible(space.make("simulated", "q4_0", {}))
    assert scorer.asked == []
    assert judge.quality(space.make("simulated", "q4_0", {})) == RUINED


def test_random_weights_cannot_be_judged(space):
    judge = QualityJudge(space, NEAR, None, observer=ignore)
    assert judge.feasible(space.make("simulated", "q4_0", {}))
    assert judge.quality(space.default("simulated")) is None


@pytest.mark.parametrize(
    "failure", [WorkerError(TrialStatus.CRASH, "SIGSEGV"), ModelFileError("no room for it")]
)
def test_what_cannot_be_measured_is_not_feasible_and_said_once(space, failure):
    def fail(_key: Config) -> Quality:
        raise failure

    events: list[Event] = []
    judge = QualityJudge(space, NEAR, fail, observer=events.append)
    for _ in range(2):
        assert not judge.feasible(space.make("simulated", "q8_0", {}))
    assert len(events) == 1
    assert str(failure) in events[0].message


@pytest.mark.parametrize("field", ["kl_divergence_high", "top1_agreement_low"])
def test_s07_a_bound_that_is_no_number_keeps_no_level(space, field):
    broken = replace(LOSSLESS, **{field: float("nan")})
    judge = QualityJudge(space, NEAR, lambda _: broken, observer=ignore)
    assert not judge.feasible(space.make("simulated", "q8_0", {}))


def test_the_bounds_decide_and_not_the_estimates(space):
    unsure: dict[str, Any] = {"kl_divergence_high": NEAR.max_kl_divergence * 1.01}
    judge = QualityJudge(space, NEAR, lambda _: replace(LOSSLESS, **unsure), observer=ignore)
    assert not judge.feasible(space.make("simulated", "q8_0", {}))


def test_a_limit_rules_out_what_is_known_to_break_it(space, scorer):
    metrics = {"source": 900.0, "q8_0": 100.0}
    judge = QualityJudge(
        space, NEAR, scorer, observer=ignore, limits=(Limit("peak_rss_mib", "<=", 500.0),),
        metrics_of=lambda config: {"peak_rss_mib": metrics[config.variant]},
    )  # fmt: skip
    assert not judge.feasible(space.default("simulated"))
    assert judge.known_bad(space.default("simulated"))
    assert judge.feasible(space.make("simulated", "q8_0", {}))
