"""A bench switches as little as it can, times what was asked, and refuses what was not."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

import pytest

from profiles.vocabulary import Config, TrialStatus, Workload
from tuner.engines.base import Phase, Scope
from tuner.errors import WorkerError
from tuner.measurement.bench import RETRIES, Bench
from tuner.measurement.isolation import Worker

MakeBench = Callable[..., Bench]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, object]]]:
    """Every request that goes to a worker."""
    seen: list[tuple[str, Mapping[str, object]]] = []
    original = Worker.request

    def spy(self: Worker, op: str, payload: Mapping[str, object], *args: float, **named: float) -> object:
        seen.append((op, payload))
        return original(self, op, payload, *args, **named)

    monkeypatch.setattr(Worker, "request", spy)
    return seen


def test_a_change_makes_no_more_anew_than_its_scope_asks(
    make_bench: MakeBench, default: Config, asked: list[tuple[str, Mapping[str, object]]]
):
    bench = make_bench()
    q4 = replace(default, variant="q4_0")
    steps = [
        (default, Scope.PROCESS, ["hello", "load", "configure", "reset_peak", "round"]),
        (default, None, []),
        (default.with_settings(n_threads=1, n_threads_batch=1), Scope.RUN, ["configure"]),
        (default.with_settings(flash_attn="on"), Scope.CONTEXT, ["configure", "reset_peak", "round"]),
        (q4, Scope.LOAD, ["close", "hello", "load", "configure", "reset_peak", "round"]),
        (
            q4.with_settings(repack=False),
            Scope.LOAD,
            ["close", "hello", "load", "configure", "reset_peak", "round"],
        ),
        (
            q4.with_settings(repack=False, wait_policy="passive"),
            Scope.PROCESS,
            ["close", "hello", "load", "configure", "reset_peak", "round"],
        ),
    ]
    for config, scope, before in steps:
        asked.clear()
        measured = bench.measure(config, rounds=1)
        assert measured.switched is scope
        assert [op for op, _ in asked] == [*before, "round", "memory"]


def test_fresh_starts_a_process(make_bench: MakeBench, default: Config):
    bench = make_bench()
    bench.measure(default, rounds=1)
    assert bench.measure(default, rounds=1, fresh=True).switched is Scope.PROCESS


def test_s12_every_repetition_has_another_prompt_of_the_exact_length(
    make_bench: MakeBench, default: Config, workload: Workload, asked: list[tuple[str, Mapping[str, object]]]
):
    make_bench().measure(default, rounds=5)
    rounds = [payload for op, payload in asked if op == "round"]
    prompts = [tuple(payload["prompts"][0]) for payload in rounds]
    assert [len(prompt) for prompt in prompts] == [16] + [workload.prompt_tokens] * 5
    assert len(set(prompts)) == 6
    assert not any(payload["reuse_prefix"] for payload in rounds)
    assert all(20 <= token < 1004 for prompt in prompts for token in prompt)


def test_a_short_round_has_a_ttft_and_its_gaps(make_bench: MakeBench, default: Config):
    measured = make_bench().measure(default, rounds=3, short_tokens=10)
    for samples in measured.rounds:
        assert (samples.kind, samples.dropped, samples.response_ms) == ("short", None, ())
        assert len(samples.ttft_ms) == 1
        assert [len(gaps) for gaps in samples.gaps_ms] == [9]
        assert samples.ttft_ms[0] + sum(samples.gaps_ms[0]) == pytest.approx(samples.wall_ms)
    assert measured.load_ms == pytest.approx(80.0)
    assert measured.first_request_ms > 0
    # What was computed to get into the middle of the answer is in no token's time.
    seconds = sum(s.facts["wall_ns"] for s in measured.rounds) / 1e9
    assert measured.generation_seconds == pytest.approx(seconds)
    assert seconds > sum(s.wall_ms for s in measured.rounds) / 1000
    assert measured.memory["peak_rss_mib"] > measured.memory["peak_anon_mib"] > 1
    assert measured.unknown == ()


def test_a_full_round_runs_the_whole_workload(make_bench: MakeBench, default: Config, workload: Workload):
    samples = make_bench().measure(default, rounds=1, kind="full").rounds[0]
    assert len(samples.gaps_ms[0]) == workload.output_tokens - 1
    assert samples.response_ms == (pytest.approx(samples.wall_ms),)


def test_one_phase_alone_costs_only_that_phase(make_bench: MakeBench, default: Config):
    bench = make_bench()
    both = bench.measure(default, rounds=1).rounds[0]
    decode = bench.measure(default.with_settings(n_threads=1), rounds=2, phases=frozenset({Phase.DECODE}))
    prefill = bench.measure(default, rounds=1, phases=frozenset({Phase.PREFILL})).rounds[0]
    assert all(samples.ttft_ms == () for samples in decode.rounds)
    assert [len(samples.gaps_ms[0]) for samples in decode.rounds] == [19, 19]
    # A single token is computed before the first gap, not the prompt.
    assert decode.rounds[0].wall_ms < both.wall_ms - 0.9 * both.ttft_ms[0]
    assert prefill.gaps_ms == ((),)
    assert prefill.ttft_ms[0] == pytest.approx(both.ttft_ms[0], rel=0.01)


def test_streams_run_concurrently(make_bench: MakeBench, default: Config):
    bench = make_bench(workload=Workload("many", 32, 16, streams=4, objective="decode_tps"))
    samples = bench.measure(default, rounds=1, kind="full").rounds[0]
    assert (len(samples.ttft_ms), [len(gaps) for gaps in samples.gaps_ms]) == (4, [15] * 4)
    assert samples.facts["output_tokens"] == 64
    assert samples.wall_ms < sum(samples.response_ms) / 2


def test_equal_seeds_measure_equal_values(
    make_bench: MakeBench, default: Config, set_world: Callable[..., None]
):
    set_world(cpus=4, noise=0.05, seed=3)
    one, two = (make_bench(seed=5).measure(default, rounds=2).rounds for _ in range(2))
    assert [samples.gaps_ms for samples in one] == [samples.gaps_ms for samples in two]
    set_world(cpus=4, noise=0.05, seed=4)
    other = make_bench(seed=5).measure(default, rounds=2).rounds
    assert [samples.gaps_ms for samples in other] != [samples.gaps_ms for samples in one]


def test_s09_cold_first_requests_do_not_move_the_median(
    make_bench: MakeBench, default: Config, set_faults: Callable[..., None]
):
    quiet = make_bench().measure(default, rounds=1).rounds[0].ttft_ms[0]
    set_faults({"*": "slow_first_rounds"})
    ttft = [samples.ttft_ms[0] for samples in make_bench().measure(default, rounds=3).rounds]
    assert ttft[0] == pytest.approx(3 * quiet)
    assert median(ttft) == pytest.approx(quiet)


def test_s10_drift_within_a_process_shows_in_its_rounds(
    make_bench: MakeBench, default: Config, set_faults: Callable[..., None]
):
    set_faults({"*": "drift"})
    ttft = [samples.ttft_ms[0] for samples in make_bench().measure(default, rounds=3).rounds]
    assert ttft[1] / ttft[0] == pytest.approx(1.05, rel=1e-3)
    assert ttft[2] / ttft[1] == pytest.approx(1.05, rel=1e-3)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("effective_mismatch", "flash_attn=off was asked, the engine has on"),
        ("short_output", "ended a stream after 2 of 4 tokens"),
    ],
)
def test_e12_s11_what_was_not_asked_is_invalid(
    fault: str, words: str, make_bench: MakeBench, default: Config, set_faults: Callable[..., None]
):
    set_faults({"q8_0": fault})
    bench = make_bench()
    with pytest.raises(WorkerError) as caught:
        bench.measure(replace(default, variant="q8_0"), rounds=1)
    assert caught.value.status is TrialStatus.INVALID
    assert words in caught.value.reason
    assert bench.measure(default, rounds=1).switched is Scope.PROCESS


def test_a_contaminated_round_is_repeated_and_kept_with_its_cause(
    make_bench: MakeBench, default: Config, set_faults: Callable[..., None]
):
    set_faults({"*": "neighbour"})
    rounds = make_bench().measure(default, rounds=4).rounds
    dropped = [samples for samples in rounds if samples.dropped is not None]
    assert (len(rounds), len(dropped)) == (6, 2)
    assert all("run delay" in (samples.dropped or "") for samples in dropped)


def test_retries_are_bounded(make_bench: MakeBench, default: Config, set_faults: Callable[..., None]):
    set_faults({"*": "neighbour"})
    assert len(make_bench().measure(default, rounds=20).rounds) == 20 + RETRIES


def test_a_round_that_is_long_for_the_time_left_is_not_repeated(
    make_bench: MakeBench, default: Config, set_faults: Callable[..., None]
):
    set_faults({"*": "neighbour"})
    slow = Workload("slow", prompt_tokens=8000, output_tokens=8)
    usual_s = make_bench(workload=slow).measure(default, rounds=1).rounds[-1].facts["wall_ns"] / 1e9
    for left_s, rounds in ((9 * usual_s, 10), (1000 * usual_s, 10 + RETRIES)):
        bench = make_bench(workload=slow, remaining_s=lambda left_s=left_s: left_s)
        assert len(bench.measure(default, rounds=10).rounds) == rounds


def test_e11_a_prompt_longer_than_the_ubatch_is_part_of_every_trial(
    make_bench: MakeBench, default: Config, workload: Workload
):
    config = default.with_settings(n_ubatch=16)
    assert workload.prompt_tokens > 16
    assert make_bench().measure(config, rounds=1).rounds[0].ttft_ms


def test_s15_a_worker_stays_flat_over_contexts(make_bench: MakeBench, default: Config):
    bench = make_bench()
    seen = []
    for number in range(10):
        config = default.with_settings(n_ubatch=(16, 32)[number % 2])
        seen.append(bench.measure(config, rounds=1).memory["peak_anon_mib"])
    assert seen[-1] - seen[1] < 1.0


def test_a_joined_measurement_has_the_rounds_of_both(make_bench: MakeBench, default: Config):
    bench = make_bench()
    one, two = bench.measure(default, rounds=1), bench.measure(default, rounds=2)
    both = one.joined(two)
    assert both.rounds == one.rounds + two.rounds
    assert both.switched is Scope.PROCESS
    assert both.seconds == one.seconds + two.seconds


def test_a_full_round_of_one_phase_is_refused(make_bench: MakeBench, default: Config):
    with pytest.raises(ValueError, match="both phases"):
        make_bench().measure(default, rounds=1, kind="full", phases=frozenset({Phase.DECODE}))
