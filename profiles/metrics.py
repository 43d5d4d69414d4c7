"""One registry of metrics: name, unit, direction and format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A metric's description; `digits` are those after the point when printed."""

    name: str
    unit: str
    direction: Literal["minimize", "maximize"]
    description: str
    digits: int = 1

    def format(self, value: float) -> str:
        """`value` with its unit, as tables print it."""
        return f"{value:.{self.digits}f} {self.unit}".rstrip()


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ttft_ms", "ms", "minimize", "time to first token: prompt submitted to first token"),
        Metric("itl_ms", "ms", "minimize", "inter-token latency: the gap between two tokens", 2),
        Metric("tpot_ms", "ms", "minimize", "time per output token of a request", 2),
        Metric("response_ms", "ms", "minimize", "prompt submitted to last token"),
        Metric("prefill_tps", "tokens/s", "maximize", "prompt tokens per second of TTFT"),
        Metric("decode_tps", "tokens/s", "maximize", "output tokens per second, all streams together"),
        Metric("load_ms", "ms", "minimize", "model file opened to ready"),
        Metric("first_request_ms", "ms", "minimize", "response time of a process's first request"),
        Metric("peak_rss_mib", "MiB", "minimize", "peak resident memory of the worker", 0),
        Metric("peak_anon_mib", "MiB", "minimize", "peak anonymous resident memory", 0),
        Metric("peak_file_mib", "MiB", "minimize", "peak file-backed resident memory", 0),
        Metric("huge_pages_mib", "MiB", "maximize", "anonymous memory that lies in huge pages", 0),
        Metric("model_file_mib", "MiB", "minimize", "size of the model file", 0),
        Metric("cpu_utilisation", "", "minimize", "share of the effective CPUs used", 2),
        Metric("cpu_s_per_token", "s", "minimize", "CPU seconds per output token", 4),
        Metric("switches_per_token", "", "minimize", "context switches per output token", 2),
        Metric("page_faults_per_token", "", "minimize", "page faults per output token", 2),
        Metric("kl_divergence", "", "minimize", "mean KL divergence from the reference", 4),
        Metric("top1_agreement", "", "maximize", "share of equal most likely tokens", 3),
        Metric("perplexity_ratio", "", "minimize", "perplexity over the reference's", 3),
    )
}
AGGREGATES = ("p50", "p95", "max_of_n")


def flat_name(name: str) -> str:
    """The key in RESULT's flat metrics: a bare name of a distribution means its p50."""
    return name if "." in name or name not in DISTRIBUTIONS else f"{name}.p50"


DISTRIBUTIONS = frozenset({"ttft_ms", "itl_ms", "tpot_ms", "response_ms", "prefill_tps", "decode_tps"})
"""Metrics with many samples, which carry an aggregate in their flat name."""


def base_name(name: str) -> str:
    """The metric of a flat name: "ttft_ms.p50" -> "ttft_ms"."""
    return name.partition(".")[0]


def is_metric(name: str) -> bool:
    """Whether `name` is a registered metric, bare or with a known aggregate."""
    base, dot, aggregate = name.partition(".")
    return base in METRICS and (not dot or (base in DISTRIBUTIONS and aggregate in AGGREGATES))
