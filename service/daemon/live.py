"""The latencies of the running generator, kept apart by what makes them comparable."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from service.generator.requests import End
from tuner.measurement.statistics import spread

KEPT = 60
"""Values kept of one depth, the oldest go first."""
FEWEST_TOKENS = 16
"""Of an answer whose time per token says something."""
FEWEST_LIKE = 12
"""Values on either side that a comparison at one depth needs."""

Values = Mapping[int, Sequence[float]]
"""Depth class -> log of the time per token in ms."""


@dataclass(frozen=True)
class Shift:
    """How much slower `after` is than `before` in like conditions: a log ratio with its standard error."""

    log_ratio: float
    error: float
    values: int


@dataclass
class Live:
    """Times per token of requests that ran alone on an otherwise quiet machine, by depth class."""

    _values: dict[int, deque[float]] = field(default_factory=dict)

    def ended(self, end: End, *, alone: bool) -> None:
        """Take a request that ended; one that shared its batch, or was too short, says nothing."""
        if not alone or end.tpot_ms is None or end.tpot_ms <= 0 or end.completion_tokens < FEWEST_TOKENS:
            return
        depth = depth_class(end.prompt_tokens + end.completion_tokens // 2)
        self._values.setdefault(depth, deque(maxlen=KEPT)).append(math.log(end.tpot_ms))

    def take(self) -> dict[int, list[float]]:
        """What came since the last call."""
        taken = {depth: list(values) for depth, values in self._values.items()}
        self._values.clear()
        return taken


@dataclass
class _Request:
    before: tuple[float, float] | None
    is_alone: bool = True


class Ear:
    """Hears the requests of a service: those that ran alone, on a machine that did nothing else."""

    def __init__(
        self, live: Live, others: Callable[[], tuple[float, float] | None], busy_share: float
    ) -> None:
        """`others` tells the CPU seconds of other processes and of all CPUs so far, None where unknown."""
        self._live = live
        self._others = others
        self._busy_share = busy_share
        self._active: list[_Request] = []
        self.last_s = -math.inf
        """When the last request ended, on the monotonic clock."""

    def begin(self) -> Callable[[End | None], None]:
        """A request begins; call what this returns when it ends."""
        request = _Request(self._others())
        self._active.append(request)
        if len(self._active) > 1:
            for one in self._active:
                one.is_alone = False

        def ended(end: End | None) -> None:
            self._active.remove(request)
            self.last_s = time.monotonic()
            if end is not None:
                self._live.ended(end, alone=request.is_alone and self._was_quiet(request.before))

        return ended

    def _was_quiet(self, before: tuple[float, float] | None) -> bool:
        after = self._others()
        if before is None or after is None or after[1] <= before[1]:
            return True
        return (after[0] - before[0]) / (after[1] - before[1]) <= self._busy_share


def depth_class(tokens: int) -> int:
    """Equal for depths of one power of two: attention's share of a step grows with depth."""
    return max(tokens, 1).bit_length()


def joined(*parts: Values, kept: int = KEPT) -> dict[int, list[float]]:
    """All values by depth, of each depth the last `kept`."""
    depths: Iterable[int] = dict.fromkeys(depth for part in parts for depth in part)
    return {depth: [value for part in parts for value in part.get(depth, ())][-kept:] for depth in depths}


def shift_between(before: Values, after: Values) -> Shift | None:
    """By how much times grew at the depths that both sides have enough values of; None where there is none.

    Medians of logs by depth, weighted by how well each is known; a median's standard error is
    sqrt(pi/2) spread / sqrt(n), for normal values.
    """
    total = weights = 0.0
    count = 0
    for depth in before.keys() & after.keys():
        old, new = before[depth], after[depth]
        if min(len(old), len(new)) < FEWEST_LIKE:
            continue
        variance = math.pi / 2 * (spread(old) ** 2 / len(old) + spread(new) ** 2 / len(new))
        weight = 1 / max(variance, 1e-6)
        total += weight * (median(new) - median(old))
        weights += weight
        count += len(new)
    return Shift(total / weights, weights**-0.5, count) if weights else None
