"""Round samples summarised to the flat metrics that trials, limits and tables share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median, quantiles

from profiles.metrics import METRICS, flat_name
from profiles.vocabulary import Objective, RoundSamples, TrialStatus, Workload
from tuner.errors import WorkerError

FEWEST_FOR_P95 = 20
"""Below this many samples a p95 is not even an estimate."""
FEWEST_FOR_P95_CLAIM = 59
"""0.95^59 < 5 %: from here on the largest of n samples bounds the 95th percentile with 95 % confidence."""
_MIB = 2.0**20


def summarise(
    rounds: Sequence[RoundSamples],
    workload: Workload,
    *,
    effective_cpus: int,
    variant_bytes: int,
    load_ms: float | None = None,
    first_request_ms: float | None = None,
    memory: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The flat metrics of a trial's clean rounds, "ttft_ms.p50" and the like; what was not seen is absent.

    `memory` holds metrics in MiB by name (peak_rss_mib, ...); other names are left out. A distribution has a
    p50; a p95 from 20 samples on; and below 59, where a p95 supports no limit, a `max_of_n`. So: a p95 may
    be claimed exactly where the `max_of_n` is absent.

    Each round counts once in itl_ms.p50, by the median of its gaps; itl_ms.p95 is over all gaps, so that
    spikes stay in it. Full rounds give response_ms as measured. From short ones of a single stream
    response_ms.p50 is predicted, TTFT + (n-1) x TPOT by medians, for n output tokens.

    Of `RoundSamples.facts` these deltas of the worker's own counters are used, where present: wall_ns,
    cpu_ns, voluntary_switches, involuntary_switches, minor_faults, major_faults.

    Raises WorkerError (invalid) when there is no clean round, or a time is not a positive number, or a
    full round has another number of tokens than the workload asks.
    """
    clean = clean_rounds(rounds)
    found = {"model_file_mib": variant_bytes / _MIB} | timings(rounds, workload)
    found |= _resources(clean, effective_cpus)
    for name, value in (("load_ms", load_ms), ("first_request_ms", first_request_ms)):
        if value is not None:
            found[name] = _positive(value, name)
    return found | {name: value for name, value in (memory or {}).items() if name in METRICS}


def timings(rounds: Sequence[RoundSamples], workload: Workload) -> dict[str, float]:
    """The flat metrics of time and rate of the clean rounds; raises WorkerError (invalid) as `summarise`."""
    clean = clean_rounds(rounds)
    for samples in clean:
        _check(samples, workload)
    found: dict[str, float] = {}
    ttft = [value for samples in clean for value in samples.ttft_ms]
    gaps = [gap for samples in clean for stream in samples.gaps_ms for gap in stream]
    tpot = [sum(s) / len(s) for samples in clean for s in samples.gaps_ms if s]
    found |= _distribution("ttft_ms", ttft) | _distribution("tpot_ms", tpot) | _distribution("itl_ms", gaps)
    if gaps:
        found["itl_ms.p50"] = median(_round_itl_ms(clean))
        found["decode_tps.p50"] = median([_decode_tps(s) for s in clean if any(s.gaps_ms)])
    if ttft:
        found["prefill_tps.p50"] = median(
            [1000.0 * len(s.ttft_ms) * workload.prompt_tokens / max(s.ttft_ms) for s in clean if s.ttft_ms]
        )
    response = [value for samples in clean for value in samples.response_ms]
    if response:
        found |= _distribution("response_ms", response)
    elif workload.streams == 1 and ttft and tpot:
        found["response_ms.p50"] = median(ttft) + (workload.output_tokens - 1) * median(tpot)
    return found


def clean_rounds(rounds: Sequence[RoundSamples]) -> list[RoundSamples]:
    """The rounds that no contamination spoiled; raises WorkerError (invalid) when there is none."""
    clean = [samples for samples in rounds if samples.dropped is None]
    if not clean:
        causes = ", ".join(sorted({str(samples.dropped) for samples in rounds})) or "none was run"
        raise WorkerError(TrialStatus.INVALID, f"no clean round of {len(rounds)}: {causes}")
    return clean


def objective_value(metrics: Mapping[str, float], objective: Objective) -> float:
    """The objective's metric, in its own unit and sign; a bare name means its p50.

    Raises WorkerError (invalid) when it is missing or is not a finite number.
    """
    name = flat_name(objective.metric)
    if name not in metrics:
        known = ", ".join(sorted(metrics))
        raise WorkerError(TrialStatus.INVALID, f"objective {name} was not measured; measured are {known}")
    if not math.isfinite(metrics[name]):
        raise WorkerError(TrialStatus.INVALID, f"objective {name} is {metrics[name]}: not a finite number")
    return metrics[name]


def _distribution(name: str, samples: Sequence[float]) -> dict[str, float]:
    if not samples:
        return {}
    found = {f"{name}.p50": median(samples)}
    if len(samples) >= FEWEST_FOR_P95:
        # Interpolated linearly (type 7).
        found[f"{name}.p95"] = quantiles(samples, n=20, method="inclusive")[-1]
    if len(samples) < FEWEST_FOR_P95_CLAIM:
        found[f"{name}.max_of_n"] = max(samples)
    return found


def _round_itl_ms(clean: Sequence[RoundSamples]) -> list[float]:
    return [
        median([gap for stream in samples.gaps_ms for gap in stream])
        for samples in clean
        if any(samples.gaps_ms)
    ]


def _decode_tps(samples: RoundSamples) -> float:
    """Tokens per second of all streams, over the time from the first token of any to the last of any.

    Tokens at the very start of that time are not counted: nothing says how long they took. Streams are
    submitted together; without TTFT (a reused prefix) they start together.
    """
    starts = samples.ttft_ms or (0.0,) * len(samples.gaps_ms)
    first = min(starts)
    last = max(start + sum(gaps) for start, gaps in zip(starts, samples.gaps_ms, strict=True))
    tokens = sum(map(len, samples.gaps_ms)) + sum(start > first for start in starts)
    return 1000.0 * tokens / (last - first)


def _resources(clean: Sequence[RoundSamples], effective_cpus: int) -> dict[str, float]:
    found = {}
    wall_ns = sum(samples.facts["wall_ns"] for samples in clean if _has(samples, "wall_ns", "cpu_ns"))
    if wall_ns > 0:
        cpu_ns = sum(samples.facts["cpu_ns"] for samples in clean if _has(samples, "wall_ns", "cpu_ns"))
        found["cpu_utilisation"] = cpu_ns / (wall_ns * effective_cpus)
    for name, per_unit, facts in (
        ("cpu_s_per_token", 1e9, ("cpu_ns",)),
        ("switches_per_token", 1.0, ("voluntary_switches", "involuntary_switches")),
        ("page_faults_per_token", 1.0, ("minor_faults", "major_faults")),
    ):
        # A short round's share of prefill is not a request's: only whole ones count tokens fairly.
        counted = [samples for samples in clean if samples.kind == "full" and _has(samples, *facts)]
        if counted:
            total = sum(samples.facts[fact] for samples in counted for fact in facts)
            found[name] = total / per_unit / sum(map(_tokens, counted))
    return found


def _has(samples: RoundSamples, *facts: str) -> bool:
    return all(fact in samples.facts for fact in facts)


def _tokens(samples: RoundSamples) -> int:
    return len(samples.ttft_ms) + sum(map(len, samples.gaps_ms))


def _check(samples: RoundSamples, workload: Workload) -> None:
    for name, values in (
        ("ttft_ms", samples.ttft_ms),
        ("response_ms", samples.response_ms),
        *(("gaps_ms", gaps) for gaps in samples.gaps_ms),
    ):
        for value in values:
            _positive(value, name)
    if not _tokens(samples):
        raise WorkerError(TrialStatus.INVALID, "a round without a token: nothing was timed")
    if samples.ttft_ms and samples.gaps_ms and len(samples.ttft_ms) != len(samples.gaps_ms):
        raise WorkerError(
            TrialStatus.INVALID, f"{len(samples.ttft_ms)} first tokens but {len(samples.gaps_ms)} streams"
        )
    if samples.kind == "full":
        lengths = {len(gaps) + 1 for gaps in samples.gaps_ms}
        if lengths != {workload.output_tokens}:
            seen = ", ".join(map(str, sorted(lengths))) or "0"
            raise WorkerError(
                TrialStatus.INVALID,
                f"{seen} output tokens in a round: exactly {workload.output_tokens} were asked",
            )


def _positive(value: float, name: str) -> float:
    # Not `value <= 0`: that lets NaN through.
    if not (0.0 < value < math.inf):
        raise WorkerError(TrialStatus.INVALID, f"{name} of {value}: a time is a positive number")
    return value
