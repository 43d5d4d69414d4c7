"""The two-term ceiling of decode: a fixed cost per token plus its bytes over the memory's bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Decode:
    """One variant's measured decode: the bytes that a token reads and its inter-token latency."""

    bytes_per_token: int
    itl_ms: float


@dataclass(frozen=True)
class Ceiling:
    """The inter-token latency that no setting is expected to beat, and how near the best came.

    `itl_ms` = `fixed_ms` + bytes / `bandwidth_gbps`; `reached` is `itl_ms` over the best's measured one.
    """

    fixed_ms: float
    bandwidth_gbps: float
    bytes_per_token: int
    itl_ms: float
    reached: float

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return dict(self.__dict__)


def ceiling(best: Decode, measured: Sequence[Decode], bandwidth_gbps: float) -> Ceiling:
    """The ceiling for `best`, with the least fixed cost that any measured variant shows.

    Where the engine was seen to read faster than `bandwidth_gbps`, its own rate counts: a ceiling below
    what was measured would be none.
    """
    everything = (*measured, best)
    seen_gbps = max(d.bytes_per_token / d.itl_ms / 1e6 for d in everything)
    rate = max(bandwidth_gbps, seen_gbps)
    fixed_ms = min(d.itl_ms - d.bytes_per_token / rate / 1e6 for d in everything)
    itl_ms = fixed_ms + best.bytes_per_token / rate / 1e6
    return Ceiling(fixed_ms, rate, best.bytes_per_token, itl_ms, itl_ms / best.itl_ms)
