"""What a search optimizes: an objective from the two phases of a request, or as measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from profiles.metrics import METRICS, base_name
from profiles.vocabulary import Objective, RoundSamples, Workload
from tuner.errors import UsageError
from tuner.measurement.asked import BATCH_TOKENS
from tuner.measurement.metrics import objective_value, timings

PREDICTABLE = ("response_ms", "ttft_ms", "itl_ms", "tpot_ms", "prefill_tps", "decode_tps")
"""The metrics that can be an objective."""
MEASURED = ("peak_rss_mib", "model_file_mib")
"""Metrics of a configuration as a whole that can be the second objective."""
TAIL = "itl_ms.p95"
"""The one p95 that can be the second objective: each round has many gaps, but one TTFT and one response."""
SECOND = (*PREDICTABLE, *MEASURED, TAIL)


def objective_of(workload: Workload) -> Objective:
    """The workload's own objective."""
    return objective_named(workload.objective)


def objective_named(name: str) -> Objective:
    """An objective by its metric's name; UsageError for one that no search can optimize."""
    if name not in PREDICTABLE:
        raise UsageError(f"objective '{name}' is not allowed: choose one of {', '.join(PREDICTABLE)}")
    return Objective(name, METRICS[name].direction)


def second_named(name: str) -> Objective:
    """A second objective by its metric's name; UsageError for one that no search can optimize."""
    if name not in SECOND:
        raise UsageError(f"second objective '{name}' is not allowed: choose one of {', '.join(SECOND)}")
    return Objective(name, METRICS[base_name(name)].direction)


def predict(objective: Objective, workload: Workload, ttft_ms: float, itl_ms: float) -> float:
    """The objective's value for given phase times in milliseconds, medians over the streams.

    A single stream's response is TTFT + (n - 1) x ITL, which is why the phases can be searched apart. Several
    streams are prefilled in as many steps as their prompts fill batches: evenly spaced over the steps, the
    first tokens of c steps have their median at (c + 1) / 2c of the last one. Streams that are done early
    wait for the others, so that all end together; `itl_ms` is a step that gives every stream a token.
    """
    steps = math.ceil(workload.prompt_tokens * workload.streams / BATCH_TOKENS) if workload.streams > 1 else 1
    last_ms = ttft_ms * 2 * steps / (steps + 1)
    decoding_ms = (workload.output_tokens - 1) * itl_ms
    match base_name(objective.metric):
        case "response_ms":
            return last_ms + decoding_ms
        case "ttft_ms":
            return ttft_ms
        case "prefill_tps":
            return 1000.0 * workload.prompt_tokens * workload.streams / last_ms
        case "decode_tps":
            tokens = workload.streams * (workload.output_tokens - 1)
            return 1000.0 * tokens / (last_ms - last_ms / steps + decoding_ms)
        case _:
            return itl_ms


def predictions(workload: Workload, ttft_ms: float, itl_ms: float) -> dict[str, float]:
    """All flat metrics that can be predicted from phase times in milliseconds."""
    return {f"{name}.p50": predict(objective_named(name), workload, ttft_ms, itl_ms) for name in PREDICTABLE}


def measured_value(objective: Objective, workload: Workload, rounds: Sequence[RoundSamples]) -> float:
    """The objective as the rounds of one process measured it, the number that reports show.

    With several streams nothing is predicted: their prefill and decode overlap. Raises WorkerError
    (invalid) without a clean round.
    """
    return objective_value(timings(rounds, workload), objective)


def cost(objective: Objective, value: float) -> float:
    """The value as something to minimize that is positive and has the same ratios."""
    return value if objective.direction == "minimize" else 1.0 / value


def weights(objective: Objective, workload: Workload) -> tuple[float, float]:
    """What a millisecond of TTFT and of ITL add to the cost, which is linear in both."""
    at = [
        cost(objective, predict(objective, workload, *times))
        for times in ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0))
    ]
    return at[1] - at[0], at[2] - at[0]
