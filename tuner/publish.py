"""The answer to a search: the profile that is published and the document that is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles import select
from profiles.metrics import flat_name
from profiles.records import (
    Conditions,
    Profile,
    ProfileRecord,
    ProfileStatus,
    StudyRecord,
    StudyStatus,
)
from profiles.vocabulary import Config, Interval, TrialStatus
from tuner.events import Event
from tuner.from_command import about
from tuner.measurement.bench import Measurement
from tuner.measurement.metrics import summarise
from tuner.request import SearchRequest
from tuner.search.confirm import Confirmation
from tuner.search.judge import QualityJudge, quality_metrics
from tuner.search.ledger import Estimate
from tuner.search.limits import Broken, Metrics
from tuner.search.objectives import predictions
from tuner.search.policy import Tried
from tuner.search.space import Space
from tuner.workshop import Workshop

SAME = Interval(1.0, 1.0, 1.0, 1.0)
"""The speed-up of the default over itself."""


@dataclass(frozen=True)
class Outcome:
    """What a search came to. `confirmation` is None where the default itself is the best that was found.

    `known` holds what is measured once a process (memory, load) by configuration. `default_unkept` says why
    the default may not be published, `nearest` which configuration breaks the limits by the least.
    """

    baseline: Config
    best: Config
    runners_up: tuple[Estimate, ...]
    confirmation: Confirmation | None
    comparison_id: int | None
    conditions: Conditions
    dropped_rounds: int
    elapsed_s: float
    busy_share: float = 0.0
    """The weight of times beside a busy neighbour in what was made best."""
    default_failure: str | None = None
    """Why the default itself does not run; `baseline` is the nearest that does then."""
    known: Mapping[Config, Metrics] = field(default_factory=dict)
    default_unkept: tuple[str, ...] = ()
    unconfirmed: str | None = None
    """Why leaders could not be confirmed, where the default is published for that."""
    nearest: tuple[Config, tuple[Broken, ...]] | None = None
    throttling: Mapping[str, float] = field(default_factory=dict)
    """How often heat or a quota slowed the CPUs while it ran (`tuner.environment`)."""
    policies: tuple[Tried, ...] = ()
    """Mapping and locking, as tried around the winner."""
    front: tuple[tuple[Config, Metrics], ...] = ()
    """With two objectives: what no other one betters in both, by the search's own rounds."""

    @property
    def status(self) -> ProfileStatus:
        """Of the profile that is published."""
        return ProfileStatus(self.confirmation.status if self.confirmation else "no_gain")

    @property
    def profile_conditions(self) -> Conditions:
        """Of the profile: where other work disturbed even the quiet rounds, that is what it says."""
        return "background" if self.busy_share and self.conditions == "quiet" else self.conditions

    @property
    def published(self) -> Config:
        """The best, or the default where no gain is shown."""
        return self.baseline if self.status is ProfileStatus.NO_GAIN else self.best

    @property
    def is_infeasible(self) -> bool:
        """Whether nothing may be published."""
        return self.published == self.baseline and bool(self.default_unkept)


@dataclass(frozen=True)
class Beside:
    """Numbers that stand beside the answer and decide nothing (`tuner.beside`); None where there are none."""

    everyday: Mapping[str, float] | None = None
    ceiling: Mapping[str, float] | None = None


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
    if request.command is not None and _keeps_default(outcome):
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
        "policies": [tried.to_json() for tried in outcome.policies],
        "unconfirmed": outcome.unconfirmed,
        "trials": trial_counts(shop, study),
        "dropped_rounds": outcome.dropped_rounds,
        "elapsed_s": round(outcome.elapsed_s, 1),
        "throttling": dict(outcome.throttling),
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


def metrics_of(shop: Workshop, config: Config, conditions: Conditions, known: Metrics) -> dict[str, float]:
    """From the rounds that ran the whole workload where there are any, else from the search's short ones.

    `known` gives what no round tells: memory, load. Nothing where no clean round is stored.
    """
    rounds = [r for r in shop.store.rounds(shop.identify(config, conditions).key) if r.dropped is None]
    full = [r for r in rounds if r.kind == "full"]
    if not rounds:
        return {}
    once = {name: value for name, value in known.items() if "." not in name}
    return once | summary(shop, config, full or rounds, None)


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


def trial_counts(shop: Workshop, study: StudyRecord) -> dict[str, int]:
    """How the study's trials ended, over all of its runs."""
    counts = shop.store.trial_counts([study.id])[study.id]
    named = (TrialStatus.COMPLETE, TrialStatus.PRUNED, TrialStatus.INFEASIBLE)
    return {
        **{str(status): counts.get(status, 0) for status in named},
        "failed": sum(count for status, count in counts.items() if status.failed),
    }


def _interval(outcome: Outcome) -> Interval:
    return outcome.confirmation.speedup if outcome.confirmation else SAME


def _speedup(outcome: Outcome) -> dict[str, float]:
    interval = _interval(outcome)
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
        speedup=None if outcome.unconfirmed else _interval(outcome),
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

    Another engine build or kernel is drift: then the answer is stale. So is one from another space, which
    more variants or fewer cores make.
    """
    if request.command is not None:
        kept = _kept_command(shop, space, request)
        if kept is not None:
            return kept
    current = [record for record in _answers(shop, request) if _is_current(shop, space, record)]
    record = select.best(current, engines=tuple(shop.available))
    document = record.facts.get("document") if record else None
    if record is None or not isinstance(document, dict):
        for doubted in (profile for profile in current if profile.invalidated is not None):
            shop.observer(Event("note", f"{doubted.id} {doubted.invalidated}: measuring anew"))
        return None
    return {**document, "best": {**document["best"], "profile_id": record.id}, "measured_now": False}


def _keeps_default(outcome: Outcome) -> bool:
    """Whether the answer is to change nothing."""
    return outcome.status is ProfileStatus.NO_GAIN and outcome.default_failure is None


def _kept_command(shop: Workshop, space: Space, request: SearchRequest) -> dict[str, Any] | None:
    """The last answer to this question where it was to keep the command, for which nothing is published."""
    asked = {
        "status": str(ProfileStatus.NO_GAIN),
        "workload": shop.workload.to_json(),
        "objectives": [objective.metric for objective in request.objectives],
        "quality": request.quality.name,
        "limits": [str(limit) for limit in request.limits],
        "default_failure": None,
    }
    for study in shop.store.studies(fingerprint=shop.machine.fingerprint, model_digest=shop.model.digest):
        if study.space_hash != space.digest or not study.result:
            continue
        builds = {name: shop.build(name) for name in shop.available}
        same = (study.engine_builds, study.environment.get("kernel")) == (builds, shop.machine.kernel)
        same = same and study.request.get("load") == request.to_json()["load"]
        if not same or any(study.result.get(key) != value for key, value in asked.items()):
            return None
        best = study.result["best"]
        assert isinstance(best, dict)
        return {**study.result, "best": {**best, "profile_id": None}, "measured_now": False}
    return None


def _answers(shop: Workshop, request: SearchRequest) -> list[ProfileRecord]:
    """What was published for exactly this question."""
    limits = {str(limit) for limit in request.limits}
    every = shop.store.profiles(
        fingerprint=shop.machine.fingerprint, model_digest=shop.model.digest, workload=shop.workload
    )
    return [
        record
        for record in every
        if record.objectives == request.objectives
        and record.quality_level == request.quality.name
        and {str(limit) for limit in record.limits} == limits
        and _busy_share(record) == request.busy_share
    ]


def _busy_share(record: ProfileRecord) -> float:
    document = record.facts.get("document")
    load = document.get("load") if isinstance(document, dict) else None
    return float(load.get("busy_share", 0.0)) if isinstance(load, dict) else 0.0


def _is_current(shop: Workshop, space: Space, record: ProfileRecord) -> bool:
    return (
        record.study_id is not None
        and record.config.engine in shop.available
        and record.engine_build == shop.build(record.config.engine)
        and record.kernel == (shop.machine.kernel or "")
        and shop.store.study(record.study_id).space_hash == space.digest
    )
