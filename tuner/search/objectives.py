"""What a search optimizes: an objective from the two phases of a request."""

from __future__ import annotations

from profiles.metrics import METRICS, base_name
from profiles.vocabulary import Objective, Workload
from tuner.errors import UsageError

PREDICTABLE = ("response_ms", "ttft_ms", "itl_ms", "tpot_ms", "prefill_tps", "decode_tps")


def objective_of(workload: Workload) -> Objective:
    """The workload's own objective."""
    return objective_named(workload.objective)


def objective_named(name: str) -> Objective:
    """An objective by its metric's name; UsageError for one that no search can optimize."""
    if base_name(name) not in PREDICTABLE:
        raise UsageError(f"objective '{name}' is not allowed: choose one of {', '.join(PREDICTABLE)}")
    return Objective(name, METRICS[base_name(name)].direction)


def predict(objective: Objective, workload: Workload, ttft_ms: float, itl_ms: float) -> float:
    """The objective's value for given phase times in milliseconds.

    A single stream's response is TTFT + (n - 1) x ITL, which is why the phases can be searched apart.
    For several streams `itl_ms` is the time of a step that gives every stream a token.
    """
    match base_name(objective.metric):
        case "response_ms":
            return ttft_ms + (workload.output_tokens - 1) * itl_ms
        case "ttft_ms":
            return ttft_ms
        case "prefill_tps":
            return 1000.0 * workload.prompt_tokens * workload.streams / ttft_ms
        case "decode_tps":
            return 1000.0 * workload.streams / itl_ms
        case _:
            return itl_ms


def cost(objective: Objective, value: float) -> float:
    """The value as something to minimize that is positive and has the same ratios."""
    return value if objective.direction == "minimize" else 1.0 / value
