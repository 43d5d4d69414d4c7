"""The answer to a search: the profile that is published and the document that is printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.metrics import flat_name
from profiles.records import Conditions, Profile, StudyRecord, StudyStatus
from profiles.vocabulary import Config, TrialStatus
from tuner.from_command import about
from tuner.measured import metrics_of
from tuner.outcome import Beside, Outcome
from tuner.request import SearchRequest
from tuner.search.by_engine import EngineBest
from tuner.search.judge import QualityJudge, quality_metrics
from tuner.search.ledger import Estimate
from tuner.search.limits import Metrics
from tuner.search.objectives import predictions
from tuner.workshop import Workshop


def publish(
    shop: Workshop,
    judge: QualityJudge,
    request: SearchRequest,
    study: StudyRecord,
    outcome: Outcome,
    beside: Beside,
) -> dict[str, Any]:
    """Publish the outcome's profile, end the study, and return the document of `search --json`.

    Where nothing is feasible nothing is published, and the document says what came nearest.
    """
    document = describe(shop, judge, request, study, outcome)
    document |= {"everyday": beside.everyday, "ceiling": beside.ceiling}
    if outcome.is_infeasible:
        shop.store.finish_study(study.id, StudyStatus.INFEASIBLE, document)
        return {**document, "measured_now": True}
    if request.command is not None and outcome.keeps_default:
        # The user's command is an answer to the user alone: nobody else is to be given it as the best.
        shop.store.finish_study(study.id, StudyStatus(str(outcome.status)), document)
        return {**document, "best": {**document["best"], "profile_id": None}, "measured_now": True}
    record = shop.store.publish(_profile(shop, judge, request, study, outcome, document))
    # The profile's id is known only now; the stored document goes without it.
    document["best"]["profile_id"] = record.id
    shop.store.finish_study(study.id, StudyStatus(str(outcome.status)), document)
    return {**document, "measured_now": True}


def describe(
    shop: Workshop, judge: QualityJudge, request: SearchRequest, study: StudyRecord, outcome: Outcome
) -> dict[str, Any]:
    """The document of a search's answer, without the id of the profile."""
    infeasible = outcome.is_infeasible
    return {
        "study": study.id,
        "status": "infeasible" if infeasible else str(outcome.status),
        "conditions": outcome.profile_conditions,
        "load": _load(shop, study, outcome),
        "machine": {
            "fingerprint": shop.machine.fingerprint,
            "label": shop.machine.model_name or shop.machine.arch,
            "effective_cpus": shop.machine.effective.cpu_count,
            "limited_by": shop.machine.effective.limited_by,
        },
        "model": {"name": shop.model.name, "digest": shop.model.digest, "source": shop.source.spec},
        "workload": shop.workload.to_json(),
        "objective": study.objectives[0].metric,
        "objectives": [objective.metric for objective in study.objectives],
        "quality": request.quality.name,
        "limits": [str(limit) for limit in request.limits],
        "options": request.options(),
        "from": about(request.command, shop.workload, shop.machine) if request.command else None,
        # Made for whoever asks: a new command has the secrets of the old one.
        "flags": None,
        "baseline": result(shop, judge, outcome, outcome.baseline),
        "best": None if infeasible else result(shop, judge, outcome, outcome.published),
        "runners_up": [result(shop, judge, outcome, estimate.config) for estimate in outcome.runners_up],
        "speedup": None if infeasible or outcome.unconfirmed else _speedup(outcome),
        "engines": [_of_engine(shop, judge, outcome, one) for one in outcome.engines],
        "reference": _reference(shop, judge, outcome),
        "pareto": [_on_front(shop, judge, outcome, *member) for member in outcome.pareto],
        "policies": [tried.to_json() for tried in outcome.policies],
        "unconfirmed": outcome.unconfirmed,
        "trials": trial_counts(shop, study),
        "dropped_rounds": outcome.dropped_rounds,
        "elapsed_s": round(outcome.elapsed_s, 1),
        "ended": outcome.ended,
        "throttling": dict(outcome.throttling),
        "sensitive": outcome.confirmation.sensitive if outcome.confirmation else None,
        "default_failure": outcome.default_failure,
        "default_unkept": list(outcome.default_unkept),
        "nearest": _nearest(shop, judge, outcome) if infeasible else None,
        "judged": _judged(judge),
        "front": [_on_front(shop, judge, outcome, *member) for member in outcome.front],
    }


def _on_front(
    shop: Workshop, judge: QualityJudge, outcome: Outcome, config: Config, metrics: Metrics
) -> dict[str, Any]:
    known = {**metrics, **quality_metrics(judge.known(config))}
    return {**result(shop, judge, outcome, config), "metrics": known}


def _of_engine(shop: Workshop, judge: QualityJudge, outcome: Outcome, one: EngineBest) -> dict[str, Any]:
    """An engine's best by the search's own rounds, with what it lost by."""
    best = one.estimate
    return {
        "engine": one.engine,
        "best": best and _by_rounds(shop, judge, outcome, best),
        "is_judged": one.is_judged,
        "over_best": one.over_best,
        "lost": one.lost if outcome.is_infeasible else one.lost_to(outcome.published.engine),
    }


def _by_rounds(shop: Workshop, judge: QualityJudge, outcome: Outcome, estimate: Estimate) -> dict[str, Any]:
    predicted = predictions(shop.workload, estimate.ttft_ms, estimate.itl_ms)
    known = outcome.known.get(estimate.config, {})
    return _on_front(shop, judge, outcome, estimate.config, {**known, **predicted})


def _reference(shop: Workshop, judge: QualityJudge, outcome: Outcome) -> dict[str, Any] | None:
    """The reference engine as it comes; `ratio` is the answer's speed over its, by the search's rounds."""
    if outcome.reference is None:
        return None
    config, ratio = outcome.reference
    return {**result(shop, judge, outcome, config), "ratio": ratio}


def _load(shop: Workshop, study: StudyRecord, outcome: Outcome) -> dict[str, Any]:
    """What the times under load are and weigh: the objective's median quiet and beside the neighbour."""
    if not outcome.busy_share:
        return {"mode": "quiet"}
    name = flat_name(study.objectives[0].metric)

    def both(config: Config) -> dict[str, float | None]:
        conditions: Mapping[str, Conditions] = {"quiet": outcome.conditions, "busy": "background"}
        return {word: metrics_of(shop, config, under, {}).get(name) for word, under in conditions.items()}

    sides = {"baseline": both(outcome.baseline), "best": both(outcome.published)}
    return {"mode": "background", "busy_share": outcome.busy_share, **sides}


def _judged(judge: QualityJudge) -> list[dict[str, Any]]:
    """What the search knows of quality, so that `show` can say why something faster did not win."""
    return [
        {
            "engine": key.engine,
            "variant": key.variant,
            "config": key.as_dict(),
            "metrics": quality_metrics(quality),
            "keeps": keeps,
        }
        for key, quality, keeps in judge.verdicts()
    ]


def _nearest(shop: Workshop, judge: QualityJudge, outcome: Outcome) -> dict[str, Any] | None:
    if outcome.nearest is None:
        return None
    config, breaks = outcome.nearest
    return {**result(shop, judge, outcome, config), "broken": [str(one) for one in breaks]}


def result(shop: Workshop, judge: QualityJudge, outcome: Outcome, config: Config) -> dict[str, Any]:
    """One RESULT: a configuration with its metrics, quality among them where it was measured."""
    variant = shop.variant(config.engine, config.variant)
    quality = judge.known(config)
    return {
        "engine": config.engine,
        "variant": config.variant,
        "bits_per_weight": variant.bits_per_weight,
        "config": shop.as_loaded(config).as_dict(),
        "metrics": _metrics(shop, outcome, config) | quality_metrics(quality),
    }


def _metrics(shop: Workshop, outcome: Outcome, config: Config) -> dict[str, float]:
    found = metrics_of(shop, config, outcome.conditions, outcome.known.get(config, {}))
    estimate = next((e for e in outcome.runners_up if e.config == config), None)
    if found or estimate is None:
        return found
    # It was put together from two measured configurations and has no rounds of its own.
    return predictions(shop.workload, estimate.ttft_ms, estimate.itl_ms)


def trial_counts(shop: Workshop, study: StudyRecord) -> dict[str, int]:
    """How the study's trials ended, over all of its runs."""
    counts = shop.store.trial_counts([study.id])[study.id]
    named = (TrialStatus.COMPLETE, TrialStatus.PRUNED, TrialStatus.INFEASIBLE)
    return {
        **{str(status): counts.get(status, 0) for status in named},
        "failed": sum(count for status, count in counts.items() if status.failed),
    }


def _speedup(outcome: Outcome) -> dict[str, float]:
    interval = outcome.speedup
    return {
        "ratio": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "confidence": interval.confidence,
        "pairs": len(outcome.confirmation.pairs) if outcome.confirmation else 0,
    }


def _profile(
    shop: Workshop,
    judge: QualityJudge,
    request: SearchRequest,
    study: StudyRecord,
    outcome: Outcome,
    document: Mapping[str, Any],
) -> Profile:
    best = document["best"]
    config = outcome.published
    trials = [
        trial.id
        for trial in shop.store.trials(study.id)
        if trial.config in (config, outcome.baseline) and trial.invalidated_at is None
    ]
    return Profile(
        fingerprint=shop.machine.fingerprint,
        model_digest=shop.model.digest,
        workload=shop.workload,
        objectives=study.objectives,
        quality_level=request.quality.name,
        limits=request.limits,
        status=outcome.status,
        conditions=outcome.profile_conditions,
        config=shop.as_loaded(config),
        variant_digest=shop.variant(config.engine, config.variant).digest,
        bits_per_weight=best["bits_per_weight"],
        metrics=best["metrics"],
        baseline_config=shop.as_loaded(outcome.baseline),
        baseline_metrics=document["baseline"]["metrics"],
        speedup=None if outcome.unconfirmed else outcome.speedup,
        quality=judge.known(config),
        engine_build=shop.build(config.engine),
        kernel=shop.machine.kernel or "",
        study_id=study.id,
        comparison_id=outcome.comparison_id,
        trial_ids=tuple(trials),
        facts={"document": dict(document)},
    )
