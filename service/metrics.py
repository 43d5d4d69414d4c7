"""The service's own counters for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.generator.requests import End

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ServiceMetrics:
    """One registry for each application, so that two in one process don't meet."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "cputune_requests", "Generator requests by how they ended.", ["outcome"], registry=registry
        )
        self._prompt = Counter("cputune_prompt_tokens", "Prompt tokens, cached ones too.", registry=registry)
        self._cached = Counter(
            "cputune_cached_prompt_tokens", "Prompt tokens from the KV cache.", registry=registry
        )
        self._made = Counter("cputune_completion_tokens", "Generated tokens.", registry=registry)
        self._ttft = Histogram(
            "cputune_ttft_seconds", "Time to first token.", buckets=_SECONDS, registry=registry
        )
        self._tpot = Histogram(
            "cputune_tpot_seconds", "Time per output token.", buckets=_SECONDS, registry=registry
        )
        self._running = Gauge("cputune_running_requests", "Requests in the batch.", registry=registry)
        self._waiting = Gauge("cputune_waiting_requests", "Requests in the queue.", registry=registry)
        self._restarts = Gauge("cputune_worker_restarts", "Workers started again.", registry=registry)

    def ended(self, outcome: str, end: End | None) -> None:
        """Count a request: "stop", "length", "cancelled" or "failed"."""
        self._requests.labels(outcome).inc()
        if end is None:
            return
        self._prompt.inc(end.prompt_tokens)
        self._cached.inc(end.cached_tokens)
        self._made.inc(end.completion_tokens)
        self._ttft.observe(end.ttft_ms / 1000)
        if end.tpot_ms is not None:
            self._tpot.observe(end.tpot_ms / 1000)

    def exposition(self, running: int, waiting: int, restarts: int) -> bytes:
        """The text format of Prometheus."""
        self._running.set(running)
        self._waiting.set(waiting)
        self._restarts.set(restarts)
        return generate_latest(self._registry)
