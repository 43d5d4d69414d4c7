"""The answer to a search: the profile that is published and the document that is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.records import (
    Conditions,
    Profile,
    ProfileStatus,
    StudyRecord,
    StudyStatus,
)
from profiles.vocabulary import Config, Interval, Quality, TrialStatus
from tuner.measurement.bench import Measurement
from tuner.measurement.metrics import summarise
from tuner.request import SearchRequest
from tuner.search.confirm import Confirmation
from tuner.search.judge import QualityJudge
from tuner.search.ledger import Estimate
from tuner.search.objectives import objective_of
from tuner.search.space import Space
from tuner.workshop import Workshop

SAME = Interval(1.0, 1.0, 1.0, 1.0)
"""The speed-up of the default over itself."""


@dataclass(frozen=True)
class Outcome:
    """What a search came to. `confirmation` is None where the default itself is the best that was found."""

    baseline: Config
    best: Config
    runners_up: tuple[Estimate, ...]
    confirmation: Confirmation | None
    comparison_id: int | None
    conditions: Conditions
    dropped_rounds: int
    elapsed_s: float
    default_failure: str | None = None
    """Why the default itself does not run; `baseline` is the nearest that does then."""

    @property
    def status(self) -> ProfileStatus:
        """Of the profile that is published."""
        return ProfileStatus(self.confirmation.status if self.confirmation else "no_gain")

    @property
    def published(self) -> Config:
        """The best, or the default where no gain is shown."""
        return self.baseline if self.status is ProfileStatus.NO_GAIN else self.best


def publish(
    shop: Workshop, judge: QualityJudge, request: SearchRequest, study: StudyRecord, outcome: Outcome
) -> dict[str, Any]:
    """Publish the outcome's profile, end the study, and return the document of `search --json`."""
    document = describe(shop, judge, request, study, outcome)
    record = shop.store.publish(_profile(shop, judge, request, study, outcome, document))
    # The profile's id is known only now; the stored document goes without it.
    document["best"]["profile_id"] = record.id
    shop.store.finish_study(study.id, StudyStatus(str(outcome.status)), document)
    return {**document, "measured_now": True}


def describe(
    shop: Workshop, judge: QualityJudge, request: SearchRequest, study: StudyRecord, outcome: Outcome
) -> dict[str, Any]:
    """The document of a search's answer, without the id of the profile."""
    return {
        "study": study.id,
        "status": str(outcome.status),
        "conditions": outcome.conditions,
        "machine": {
            "fingerprint": shop.machine.fingerprint,
            "label": shop.machine.model_name or shop.machine.arch,
            "effective_cpus": shop.machine.effective.cpu_count,
        },
        "model": {"name": shop.model.name, "digest": shop.model.digest, "source": shop.source.spec},
        "workload": shop.workload.to_json(),
        "objective": study.objectives[0].metric,
        "quality": request.quality.name,
        "baseline": result(shop, judge, outcome, outcome.baseline),
        "best": result(shop, judge, outcome, outcome.published),
        "runners_up": [result(shop, judge, outcome, estimate.config) for estimate in outcome.runners_up],
        "speedup": _speedup(outcome),
        "trials": trial_counts(shop, study),
        "dropped_rounds": outcome.dropped_rounds,
        "elapsed_s": round(outcome.elapsed_s, 1),
        "default_failure": outcome.default_failure,
    }


def result(shop: Workshop, judge: QualityJudge, outcome: Outcome, config: Config) -> dict[str, Any]:
    """One RESULT: a configuration with its metrics, quality among them where it was measured."""
    variant = shop.variant(config.engine, config.variant)
    quality = judge.known(config)
    return {
        "engine": config.engine,
        "variant": config.variant,
        "bits_per_weight": variant.bits_per_weight,
        "config": config.as_dict(),
        "metrics": metrics_of(shop, outcome, config) | quality_metrics(quality),
    }


def metrics_of(shop: Workshop, outcome: Outcome, config: Config) -> dict[str, float]:
    """From the rounds that ran the whole workload where there are any, else from the search's short ones.

    A configuration that was put together from two measured ones has no rounds: its estimate is given.
    """
    rounds = shop.store.rounds(shop.identify(config, outcome.conditions).key)
    full = [r for r in rounds if r.kind == "full" and r.dropped is None]
    short = [r for r in rounds if r.dropped is None]
    measured = _last_process(outcome, config)
    if full or short:
        return summary(shop, config, full or short, measured)
    estimate = next((e for e in outcome.runners_up if e.config == config), None)
    if estimate is None:
        return {}
    return {"ttft_ms.p50": estimate.ttft_ms, "itl_ms.p50": estimate.itl_ms}


def trial_metrics(shop: Workshop, config: Config, measured: Measurement) -> dict[str, float]:
    """The flat metrics of a trial."""
    return summary(shop, config, measured.rounds, measured)


def summary(
    shop: Workshop, config: Config, rounds: Sequence[Any], measured: Measurement | None
) -> dict[str, float]:
    """Flat metrics of some rounds of a configuration."""
    return summarise(
        rounds,
        shop.workload,
        effective_cpus=shop.machine.effective.cpu_count,
        variant_bytes=shop.variant(config.engine, config.variant).file_bytes,
        load_ms=measured.load_ms if measured else None,
        first_request_ms=measured.first_request_ms if measured else None,
        memory=measured.memory if measured else None,
    )


def _last_process(outcome: Outcome, config: Config) -> Measurement | None:
    if outcome.confirmation is None:
        return None
    by_config = {"default": outcome.baseline, "best": outcome.best}
    sides = outcome.confirmation.measured.items()
    return next((measured for side, measured in sides if by_config[side] == config), None)


def quality_metrics(quality: Quality | None) -> dict[str, float]:
    """A quality as flat metrics; nothing where it was not measured."""
    if quality is None:
        return {}
    return {
        "kl_divergence": quality.kl_divergence,
        "top1_agreement": quality.top1_agreement,
        "perplexity_ratio": quality.perplexity_ratio,
    }


def trial_counts(shop: Workshop, study: StudyRecord) -> dict[str, int]:
    """How the study's trials ended, over all of its runs."""
    counts = shop.store.trial_counts([study.id])[study.id]
    named = (TrialStatus.COMPLETE, TrialStatus.PRUNED, TrialStatus.INFEASIBLE)
    return {
        **{str(status): counts.get(status, 0) for status in named},
        "failed": sum(count for status, count in counts.items() if status.failed),
    }


def _speedup(outcome: Outcome) -> dict[str, float]:
    interval = outcome.confirmation.speedup if outcome.confirmation else SAME
    return {
        "ratio": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "confidence": interval.confidence,
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
    trials = [trial.id for trial in shop.store.trials(study.id) if trial.config in (config, outcome.baseline)]
    return Profile(
        fingerprint=shop.machine.fingerprint,
        model_digest=shop.model.digest,
        workload=shop.workload,
        objectives=study.objectives,
        quality_level=request.quality.name,
        status=outcome.status,
        conditions=outcome.conditions,
        config=config,
        variant_digest=shop.variant(config.engine, config.variant).digest,
        bits_per_weight=best["bits_per_weight"],
        metrics=best["metrics"],
        baseline_config=outcome.baseline,
        baseline_metrics=document["baseline"]["metrics"],
        speedup=outcome.confirmation.speedup if outcome.confirmation else SAME,
        quality=judge.known(config),
        engine_build=shop.build(config.engine),
        kernel=shop.machine.kernel or "",
        study_id=study.id,
        comparison_id=outcome.comparison_id,
        trial_ids=tuple(trials),
        facts={"document": dict(document)},
    )


def known_answer(shop: Workshop, space: Space, request: SearchRequest) -> dict[str, Any] | None:
    """The document of a published answer that nothing has changed under since; None where there is none.

    Another engine build or kernel is drift: then the answer is stale.
    """
    record = shop.store.best_profile(
        shop.machine.fingerprint,
        shop.model.digest,
        shop.workload,
        (objective_of(shop.workload),),
        request.quality.name,
        engines=tuple(shop.available),
    )
    if record is None or record.study_id is None or record.invalidated is not None:
        return None
    same_build = record.engine_build == shop.build(record.config.engine)
    if not same_build or record.kernel != (shop.machine.kernel or ""):
        return None
    study = shop.store.study(record.study_id)
    document = record.facts.get("document")
    if study.space_hash != space.digest or not isinstance(document, dict):
        return None
    return {**document, "best": {**document["best"], "profile_id": record.id}, "measured_now": False}
