"""The explanation of a study's answer as a document: settings, rivals, lost trials, what would help next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profiles.vocabulary import Config
from tuner.engines.base import Phase
from tuner.search.explain import Explained, lost, worth
from tuner.search.ledger import Estimate
from tuner.search.objectives import weights
from tuner.search.recorded import Recorded
from tuner.search.space import VARIANT

NEAR_CEILING = 0.8
"""From here on settings have little left to gain in decode."""
NOTABLE = 1.02
Document = Mapping[str, Any]


def explanation(found: Recorded, best: Config | None, answer: Document) -> dict[str, Any]:
    """Why `best` won, from what the study measured and its `answer` (empty for one that has not ended).

    Without an estimate of `best` there are only the lost trials.
    """
    objective = found.study.objectives[0]
    document: dict[str, Any] = {
        "best": None,
        "metric": objective.metric,
        "phase_shares": {},
        "settings": [],
        "rivals": [],
        "ceiling": answer.get("ceiling"),
        "lost": [one.to_json() for one in lost(found.trials)],
        "next": [],
    }
    estimate = found.ledger.estimate(best) if best else None
    if best is None or estimate is None:
        return document
    settings = worth(found.space, found.ledger, objective, best)
    rivals = list(_rivals(found, estimate))
    return document | {
        "best": {"engine": best.engine, "variant": best.variant, "config": best.as_dict()},
        "phase_shares": _phase_shares(found, estimate),
        "settings": [_setting(found, one) for one in settings],
        "rivals": rivals,
        "next": list(_next(answer, settings, rivals)),
    }


def _setting(found: Recorded, one: Explained) -> dict[str, Any]:
    alternatives = [{**other.to_json(), "reason": found.against(other.config)} for other in one.alternatives]
    return {**one.to_json(), "alternatives": alternatives}


def _phase_shares(found: Recorded, estimate: Estimate) -> dict[str, float]:
    parts = weights(found.study.objectives[0], found.space.workload)
    times = estimate.ttft_ms, estimate.itl_ms
    return {
        str(phase): part * ms / estimate.cost for phase, part, ms in zip(Phase, parts, times, strict=True)
    }


def _rivals(found: Recorded, best: Estimate) -> Iterator[dict[str, Any]]:
    """The best of each other kind of answers (variant and what else changes them), fastest first."""
    seen = {found.space.quality_key(best.config)}
    for estimate in found.ledger.ranked():
        key = found.space.quality_key(estimate.config)
        if key in seen:
            continue
        seen.add(key)
        yield {
            "engine": estimate.config.engine,
            "variant": estimate.config.variant,
            "config": estimate.config.as_dict(),
            "changes": {
                name: value for name, value in key.settings if best.config.get(name) not in (None, value)
            },
            "speed": best.cost / estimate.cost,
            "rounds": estimate.rounds,
            "reason": found.against(estimate.config),
        }


def _next(
    answer: Document, settings: Sequence[Explained], rivals: Sequence[Document]
) -> Iterator[dict[str, str]]:
    """What would help, one `kind` and sentence each."""
    for rival in rivals:
        if rival["speed"] >= NOTABLE:
            yield {"kind": "rival", "text": _rival_text(rival)}
    ceiling = answer.get("ceiling")
    if ceiling:
        yield {"kind": "ceiling", "text": _ceiling_text(ceiling["reached"])}
    still_open = [
        f"{one.setting}={_word(value)}"
        for one in settings
        for value in one.not_measured
        if one.setting != VARIANT
    ]
    if still_open:
        more = f" and {len(still_open) - 4} more" if len(still_open) > 4 else ""
        listed = ", ".join(still_open[:4])
        yield {
            "kind": "budget",
            "text": f"a longer budget: not measured around the best are {listed}{more}",
        }
    if answer.get("status") == "provisional":
        yield {"kind": "budget", "text": "a longer budget: more pairs of processes make the answer surer"}
    if answer.get("conditions") == "loaded":
        yield {"kind": "load", "text": "a quiet machine: this was measured under load"}


def _rival_text(rival: Document) -> str:
    changes = "".join(f" with {name}={_word(value)}" for name, value in rival["changes"].items())
    name = f"{rival['variant']}{changes}"
    if rival["reason"]:
        return f"{name} would be {rival['speed']:.2f}x as fast but {rival['reason']}"
    return f"{name} looked {rival['speed']:.2f}x as fast in {rival['rounds']} rounds but was not confirmed"


def _ceiling_text(reached: float) -> str:
    share = f"decode reaches {100 * reached:.0f} % of what the memory allows"
    if reached >= NEAR_CEILING:
        return f"{share}: only a smaller variant helps it"
    return f"{share}: threads, placement or another engine may still help it"


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
