"""Objectives are predicted from phases and measured from rounds; limits decide what may be published."""

import math

import pytest

from profiles.vocabulary import (
    QUALITY_LEVELS,
    WORKLOADS,
    Limit,
    Objective,
    Quality,
    RoundSamples,
    TrialStatus,
    Workload,
)
from tests.support.surface import LOSSLESS, RUINED, FakeClock, SurfaceRunner
from tuner.errors import UsageError, WorkerError
from tuner.events import ignore
from tuner.search.judge import QualityJudge, quality_metrics
from tuner.search.limits import Broken, Gauge, broken, nearest, seen, unkept
from tuner.search.objectives import measured_value, objective_named, predict, predictions

CHAT, BATCH = WORKLOADS["chat"], WORKLOADS["batch"]


# --- objectives ---------------------------------------------------------------------------------


def test_a_single_stream_adds_up():
    assert predict(Objective("response_ms"), CHAT, 100.0, 5.0) == 100 + 127 * 5
    assert predict(Objective("decode_tps", "maximize"), CHAT, 100.0, 5.0) == pytest.approx(200.0)
    assert predict(Objective("prefill_tps", "maximize"), CHAT, 100.0, 5.0) == pytest.approx(1280.0)


def several(first_ms: float, last_ms: float, itl_ms: float) -> RoundSamples:
    """Eight streams whose prompts take two steps; the first four get a token in the second one."""
    early = (last_ms - first_ms, *(itl_ms,) * 126)
    late = (itl_ms,) * 127
    return RoundSamples(
        kind="full",
        ttft_ms=(first_ms,) * 4 + (last_ms,) * 4,
        gaps_ms=(early,) * 4 + (late,) * 4,
        response_ms=(first_ms + sum(early),) * 4 + (last_ms + sum(late),) * 4,
    )


@pytest.mark.parametrize("metric", ["response_ms", "decode_tps", "prefill_tps", "ttft_ms", "itl_ms"])
def test_several_streams_are_predicted_as_they_are_measured(metric):
    objective = objective_named(metric)
    rounds = [several(1000.0, 2000.0, 14.0)]
    found = predict(objective, BATCH, 1500.0, 14.0)
    assert found == pytest.approx(measured_value(objective, BATCH, rounds), rel=0.01)


def test_a_rate_is_measured_over_all_streams():
    rounds = [several(1000.0, 2000.0, 10.0)]
    # 1016 gaps and four first tokens, from the first token of any to the last of any.
    rate = measured_value(Objective("decode_tps", "maximize"), BATCH, rounds)
    assert rate == pytest.approx(1020 / 2.27, rel=1e-3)


def test_the_objective_of_a_process_is_the_metric_that_reports_show():
    one = RoundSamples("full", (100.0,), ((5.0,) * 127,), (735.0,))
    two = RoundSamples("full", (120.0,), ((5.0,) * 127,), (755.0,))
    lost = RoundSamples("full", (900.0,), ((50.0,) * 127,), (7250.0,), dropped="steal")
    assert measured_value(Objective("response_ms"), CHAT, [one, two, lost]) == 745.0
    with pytest.raises(WorkerError, match="steal"):
        measured_value(Objective("response_ms"), CHAT, [lost])


def test_only_what_can_be_predicted_is_an_objective():
    assert set(predictions(CHAT, 100.0, 5.0)) == {
        f"{name}.p50" for name in ("response_ms", "ttft_ms", "itl_ms", "tpot_ms", "prefill_tps", "decode_tps")
    }
    with pytest.raises(UsageError, match="peak_rss_mib"):
        objective_named("peak_rss_mib")
    with pytest.raises(UsageError, match=r"response_ms\.p95"):
        objective_named("response_ms.p95")


# --- limits -------------------------------------------------------------------------------------

TTFT, RATE = Limit("ttft_ms", "<=", 100.0), Limit("decode_tps", ">=", 50.0)


def test_a_limit_is_broken_by_what_was_seen_only():
    assert broken((TTFT, RATE), {}) == ()
    assert [b.seen for b in unkept((TTFT, RATE), {})] == [None, None]
    assert broken((TTFT, RATE), {"ttft_ms.p50": 101.0, "decode_tps.p50": 49.0}) == (
        Broken(TTFT, 101.0),
        Broken(RATE, 49.0),
    )
    assert unkept((TTFT, RATE), {"ttft_ms.p50": 100.0, "decode_tps.p50": 50.0}) == ()


def test_s07_a_number_that_is_none_keeps_no_limit():
    assert len(unkept((TTFT,), {"ttft_ms.p50": math.nan})) == 1


def test_a_p95_counts_only_when_earned():
    limit = Limit("itl_ms.p95", "<=", 10.0)
    assert seen(limit, {"itl_ms.p95": 9.0, "itl_ms.max_of_n": 12.0}) is None
    assert seen(limit, {"itl_ms.p95": 9.0}) == 9.0
    (missing,) = unkept((limit,), {"itl_ms.p95": 9.0, "itl_ms.max_of_n": 9.0})
    assert "59" in str(missing)


def test_the_nearest_is_the_one_whose_worst_limit_is_off_by_the_least(space):
    far = space.make("simulated", "source", {"n_threads": 1})
    near = space.make("simulated", "source", {"n_threads": 2})
    unknown = space.make("simulated", "source", {"n_threads": 3})
    fine = space.make("simulated", "source", {"n_threads": 4})
    found = nearest(
        (TTFT, RATE),
        [
            (far, {"ttft_ms.p50": 101.0, "decode_tps.p50": 10.0}),
            (near, {"ttft_ms.p50": 130.0, "decode_tps.p50": 49.0}),
            (unknown, {}),
            (fine, {"ttft_ms.p50": 1.0, "decode_tps.p50": 99.0}),
        ],
    )
    assert found is not None
    assert found[0] == near
    assert str(found[1][0]) == "ttft_ms<=100: it is 130.0 ms"


def test_the_gauge_adds_up_what_a_configuration_measured(space):
    runner = SurfaceRunner(space, FakeClock())
    summarised = []

    def summarise(_config, measured):
        summarised.append(len(measured.rounds))
        return {"rounds": float(len(measured.rounds)), **measured.memory}

    gauge = Gauge(runner, summarise)
    config = space.default("simulated")
    gauge.remember(config, {"load_ms": 7.0, "ttft_ms.max_of_n": 3.0})
    assert gauge.metrics(config)["load_ms"] == 7.0
    gauge.measure(config, rounds=2)
    gauge.measure(config, rounds=1)
    assert gauge.metrics(config) == {"load_ms": 7.0, "rounds": 3.0, "peak_rss_mib": 100.0}
    gauge.metrics(config)
    assert summarised == [3]
    gauge.measure(config, rounds=2, kind="full")
    assert gauge.metrics(config)["rounds"] == 2.0
    assert gauge.configs == (config,)


def test_the_gauge_survives_a_measurement_without_a_clean_round(space):
    def summarise(_config, _measured):
        raise WorkerError(TrialStatus.INVALID, "no clean round")

    gauge = Gauge(SurfaceRunner(space, FakeClock()), summarise)
    config = space.default("simulated")
    gauge.measure(config, rounds=1)
    assert gauge.metrics(config) == {}


# --- feasibility --------------------------------------------------------------------------------


def judge_of(space, level="near-lossless", quality=LOSSLESS, **options):
    asked = []

    def measure(key):
        asked.append(key.variant)
        return RUINED if key.variant == "q4_0" else quality

    return QualityJudge(space, QUALITY_LEVELS[level], measure, observer=ignore, **options), asked


def test_what_breaks_a_limit_is_ruled_out_before_quality_is_measured(space):
    config = space.make("simulated", "q8_0", {})
    judge, asked = judge_of(space, limits=(TTFT,), metrics_of=lambda _: {"ttft_ms.p50": 101.0})
    assert judge.known_bad(config)
    assert not judge.feasible(config)
    assert not judge.misses_level(config)
    assert asked == []


def test_the_default_may_break_a_limit_too(space):
    judge, _ = judge_of(space, limits=(TTFT,), metrics_of=lambda _: {"ttft_ms.p50": 101.0})
    assert not judge.feasible(space.default("simulated"))


def test_what_is_not_measured_yet_may_be_tried_but_not_published(space):
    config = space.make("simulated", "q8_0", {})
    judge, _ = judge_of(space, limits=(TTFT,))
    assert judge.feasible(config)
    assert judge.unkept(config, {}) == ("ttft_ms<=100: not measured",)
    assert judge.unkept(config, {"ttft_ms.p50": 99.0}) == ()


def test_a_limit_on_quality_is_judged_at_every_level(space):
    limits = (Limit("kl_divergence", "<=", 0.0005),)
    judge, asked = judge_of(space, "any", limits=limits)
    assert not judge.feasible(space.make("simulated", "q8_0", {}))
    # The file as given is held to it, too.
    assert not judge.feasible(space.default("simulated"))
    assert asked == ["q8_0", "source"]
    kept, _ = judge_of(space, "any", limits=(Limit("kl_divergence", "<=", 0.01),))
    assert kept.feasible(space.make("simulated", "q8_0", {}))
    assert kept.unkept(space.make("simulated", "q8_0", {}), {}) == ()


def test_a_limit_on_quality_that_can_not_be_measured_is_kept_by_nothing(space):
    judge = QualityJudge(
        space,
        QUALITY_LEVELS["near-lossless"],
        None,
        observer=ignore,
        limits=(Limit("kl_divergence", "<=", 1.0),),
    )
    assert not judge.feasible(space.default("simulated"))
    assert judge.unkept(space.default("simulated"), {}) == ("kl_divergence<=1: not measured",)


def test_what_is_refused_is_never_published(space):
    judge, _ = judge_of(space, refuses=lambda config: f"too many {config.get('n_threads')}")
    config = space.make("simulated", "q8_0", {"n_threads": 2})
    assert not judge.feasible(config)
    assert not judge.known_bad(config)
    assert judge.unkept(config, {}) == ("too many 2",)


def test_s07_quality_that_is_no_number_is_not_a_metric():
    found = quality_metrics(Quality(math.nan, math.inf, 0.9, 0.8, math.inf, 10))
    assert found == {"top1_agreement": 0.9}
    assert quality_metrics(None) == {}


def test_lengths_that_fill_one_batch_are_prefilled_in_one_step():
    short = Workload("short", 16, 8, streams=4)
    assert predict(Objective("response_ms"), short, 100.0, 5.0) == 100 + 7 * 5
