"""Choosing among what is known: the best profile, the Pareto front; pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from profiles.metrics import flat_name
from profiles.records import Conditions, ProfileRecord, ProfileStatus

Direction = Literal["minimize", "maximize"]


def best(
    profiles: Iterable[ProfileRecord],
    *,
    prefer: Conditions = "quiet",
    engines: Collection[str] | None = None,
) -> ProfileRecord | None:
    """The profile to use among answers to one question; None when no feasible one is there.

    Of studies with equal identity only the newest answer speaks, so that a fresh search replaces what it
    repeats. Then the preferred conditions win over the others, confirmed (and no gain) over provisional,
    the better objective over the worse, the newer over the older.
    """
    usable = [p for p in profiles if feasible(p) and (engines is None or p.config.engine in engines)]
    if not usable:
        return None
    newest: dict[tuple[object, ...], ProfileRecord] = {}
    for profile in sorted(usable, key=lambda p: p.created_at):
        # A provisional answer does not displace a confirmed one of the same study, nor a loaded a quiet one.
        newest[profile.lineage, profile.conditions, _is_final(profile)] = profile
    return max(
        newest.values(),
        key=lambda p: (p.conditions == prefer, _is_final(p), _score(p), p.created_at),
    )


def feasible(profile: ProfileRecord) -> bool:
    """Whether a profile may be used: nothing under it was declared wrong, its objective is a finite
    number, and every limit is shown to be kept."""
    return (
        profile.invalidated is None
        and math.isfinite(_score(profile))
        and all(
            limit.violation(profile.metrics.get(flat_name(limit.metric), math.nan)) <= 0
            for limit in profile.limits
        )
    )


def pareto_front(vectors: Sequence[Sequence[float]], directions: Sequence[Direction]) -> tuple[int, ...]:
    """The indices, in order, of the vectors that no other one beats.

    One beats another when it is as good in every direction and better in one. Vectors that hold anything
    but finite numbers are never on the front; equal ones stand on it together. ValueError when a
    vector's length is not that of `directions`.
    """
    signs = [1.0 if direction == "minimize" else -1.0 for direction in directions]
    costs = [[sign * value for sign, value in zip(signs, v, strict=True)] for v in vectors]
    finite = [index for index, cost in enumerate(costs) if all(map(math.isfinite, cost))]
    # In lexicographic order only an earlier vector can beat a later one, and then one on the front does.
    front: list[int] = []
    for index in sorted(finite, key=lambda i: costs[i]):
        if not any(_beats(costs[other], costs[index]) for other in front):
            front.append(index)
    return tuple(sorted(front))


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _is_final(profile: ProfileRecord) -> bool:
    return profile.status is not ProfileStatus.PROVISIONAL


def _score(profile: ProfileRecord) -> float:
    objective = profile.objectives[0]
    value = profile.metrics.get(flat_name(objective.metric), math.nan)
    return -value if objective.direction == "minimize" else value
