"""Summaries of rounds with values worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiles.metrics import METRICS, base_name
from profiles.vocabulary import Objective, RoundSamples, TrialStatus, Workload
from tuner.errors import WorkerError
from tuner.measurement import metrics

CHAT = Workload("chat", 128, 5)
FULL = RoundSamples("full", (50.0,), ((10.0, 10.0, 10.0, 14.0),), (94.0,))
SHORT = RoundSamples("short", (60.0,), ((10.0, 20.0),))


def summary(*rounds, workload=CHAT, **known):
    return metrics.summarise(rounds, workload, **{"effective_cpus": 2, "variant_bytes": 3 * 2**20, **known})


def test_one_full_round():
    found = summary(FULL)
    assert found["ttft_ms.p50"] == 50.0
    assert found["itl_ms.p50"] == 10.0
    assert found["tpot_ms.p50"] == 11.0
    assert found["response_ms.p50"] == 94.0
    assert found["prefill_tps.p50"] == 2560.0
    assert found["decode_tps.p50"] == pytest.approx(4 / 0.044)
    assert found["model_file_mib"] == 3.0


def test_every_name_is_registered():
    facts = {
        "wall_ns": 1e8,
        "cpu_ns": 1e8,
        "voluntary_switches": 1.0,
        "involuntary_switches": 3.0,
        "minor_faults": 9.0,
        "major_faults": 1.0,
    }
    found = summary(
        replace(FULL, facts=facts),
        load_ms=80.0,
        first_request_ms=200.0,
        memory={"peak_rss_mib": 300.0, "peak_anon_mib": 100.0, "peak_file_mib": 200.0, "swap_mib": 0.0},
    )
    assert {base_name(name) for name in found} <= set(METRICS)
    assert {"load_ms", "first_request_ms", "peak_rss_mib"} <= set(found)
    assert found["cpu_utilisation"] == pytest.approx(0.5)
    assert found["cpu_s_per_token"] == pytest.approx(0.02)
    assert found["switches_per_token"] == pytest.approx(0.8)
    assert found["page_faults_per_token"] == pytest.approx(2.0)


def test_what_was_not_seen_is_absent():
    found = summary(FULL)
    assert not {"load_ms", "peak_rss_mib", "cpu_utilisation", "cpu_s_per_token"} & set(found)


def test_short_rounds_of_one_stream_predict_the_response():
    found = summary(SHORT)
    assert found["response_ms.p50"] == 60.0 + 4 * 15.0
    assert "response_ms.max_of_n" not in found


def test_phases_measured_in_separate_rounds_still_predict():
    prefill = RoundSamples("short", (60.0,), ())
    decode = RoundSamples("short", (), ((10.0, 20.0),))
    assert summary(prefill, decode)["response_ms.p50"] == 120.0
    assert "response_ms.p50" not in summary(prefill)


def test_a_measured_response_wins_over_a_predicted_one():
    assert summary(SHORT, FULL)["response_ms.p50"] == 94.0


def test_several_streams_are_counted_together():
    pair = Workload("pair", 100, 3, streams=2)
    # Tokens at 50, 60, 70 and 80, 90, 100: five of six after the first, in 50 ms.
    found = summary(RoundSamples("short", (50.0, 80.0), ((10.0, 10.0), (10.0, 10.0))), workload=pair)
    assert found["decode_tps.p50"] == pytest.approx(5 / 0.050)
    assert found["prefill_tps.p50"] == pytest.approx(200 / 0.080)
    assert "response_ms.p50" not in found
    lockstep = RoundSamples("short", (50.0, 50.0), ((10.0, 10.0), (10.0, 10.0)))
    assert summary(lockstep, workload=pair)["decode_tps.p50"] == pytest.approx(4 / 0.020)


def test_dropped_rounds_do_not_count():
    spoiled = replace(FULL, ttft_ms=(900.0,), dropped="run delay")
    assert summary(FULL, spoiled) == summary(FULL)


def test_a_round_counts_once_in_the_median_gap():
    long = RoundSamples("short", (50.0,), ((30.0,) * 9,))
    brief = RoundSamples("short", (50.0,), ((10.0,) * 3,))
    found = summary(brief, brief, long)
    assert found["itl_ms.p50"] == 10.0


@pytest.mark.parametrize(
    ("count", "has_p95", "has_max"),
    [(19, False, True), (20, True, True), (58, True, True), (59, True, False)],
)
def test_p95_is_a_claim_from_59_samples_on(count, has_p95, has_max):
    found = summary(RoundSamples("short", (50.0,), ((10.0,) * (count - 1) + (40.0,),)))
    assert ("itl_ms.p95" in found, "itl_ms.max_of_n" in found) == (has_p95, has_max)
    assert found.get("itl_ms.max_of_n", 40.0) == 40.0


@pytest.mark.parametrize("bad", [math.nan, 0.0, -1.0, math.inf])
@pytest.mark.parametrize("place", ["ttft_ms", "gaps_ms", "response_ms"])
def test_s07_s11_a_time_that_is_no_time_makes_the_trial_invalid(bad, place):
    values = {"ttft_ms": (bad,), "gaps_ms": ((10.0, 10.0, 10.0, bad),), "response_ms": (bad,)}
    with pytest.raises(WorkerError, match="a time is a positive number") as caught:
        summary(replace(FULL, **{place: values[place]}))
    assert caught.value.status is TrialStatus.INVALID
    assert place in caught.value.reason


def test_s11_a_short_output_makes_the_trial_invalid():
    with pytest.raises(WorkerError, match="3 output tokens in a round: exactly 5"):
        summary(replace(FULL, gaps_ms=((10.0, 10.0),)))
    with pytest.raises(WorkerError, match="without a token"):
        summary(RoundSamples("short", (), ((),)))
    with pytest.raises(WorkerError, match="2 first tokens but 1 streams"):
        summary(replace(SHORT, ttft_ms=(50.0, 50.0)))


def test_no_clean_round_names_the_causes():
    with pytest.raises(WorkerError, match="no clean round of 1: steal"):
        summary(replace(FULL, dropped="steal"))
    with pytest.raises(WorkerError, match="none was run"):
        summary()


def test_objective_value_takes_the_bare_name_as_its_median():
    found = summary(FULL)
    assert metrics.objective_value(found, Objective("response_ms")) == 94.0
    assert metrics.objective_value(found, Objective("itl_ms.max_of_n")) == 14.0
    assert metrics.objective_value(found, Objective("model_file_mib")) == 3.0


def test_s07_an_objective_is_never_missing_or_nan():
    with pytest.raises(WorkerError, match=r"objective itl_ms\.p95 was not measured; measured are decode_tps"):
        metrics.objective_value(summary(FULL), Objective("itl_ms.p95"))
    with pytest.raises(WorkerError, match="is nan"):
        metrics.objective_value({"ttft_ms.p50": math.nan}, Objective("ttft_ms"))
