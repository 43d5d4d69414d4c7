"""Advice without measuring: the nearest that is known, brought to the machine that is asked about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from probes.errors import ProbeError
from probes.machine import Machine
from profiles import select
from profiles.metrics import flat_name
from profiles.nearest import FARTHEST, NEAR, Distance, between_machines, between_workloads
from profiles.records import ModelRecord, ProfileRecord, ProfileStatus, digest_of, workload_identity
from profiles.store import Store
from profiles.vocabulary import (
    QUALITY_LEVELS,
    Config,
    QualityLevel,
    Workload,
)
from tuner import engines as registry
from tuner.advice import Basis, Confidence, Question, Recommendation, label_of
from tuner.engines.base import SOURCE, Engine
from tuner.errors import EngineUnavailableError
from tuner.search.objectives import objective_of
from tuner.transfer import Place

__all__ = ["Question", "Recommendation", "label_of", "recommend"]

OWN_DEFAULT = "a default is not brought over: these are the settings of the default on this machine itself"


def recommend(store: Store, machine: Machine, question: Question) -> Recommendation:
    """The nearest that is known to a question about a machine; measures nothing, runs no engine.

    In this order: the published answer to exactly this question; this machine's answer to another workload or
    at another quality level; that of a machine within `FARTHEST`; the default of an engine that reads the
    model. Nothing is recommended whose quality is not shown to keep the level, that rests on a measurement
    declared wrong, or that can't run or fit there.

    Raises NotFoundError for an unknown model, UsageError for an unknown engine, EngineUnavailableError where
    no engine reads the model, NothingFeasibleError where no variant fits into the machine's memory.
    """
    return _Advice(store, machine, question).given()


@dataclass(frozen=True)
class _Candidate:
    """An answer to another question, and how far that is."""

    profile: ProfileRecord
    distance: Distance
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class _Advice:
    """One question about one machine, with what the store knows."""

    store: Store
    machine: Machine
    question: Question

    @cached_property
    def model(self) -> ModelRecord:
        return self.store.model(self.question.model)

    @cached_property
    def engines(self) -> Mapping[str, Engine]:
        """The engines that may be recommended and read the model."""
        named = self.question.engines or registry.default_names(self.model.info)
        every = {name: registry.get(name) for name in named}
        reading = {name: e for name, e in every.items() if registry.unread(e, self.model.info) is None}
        if not reading:
            raise EngineUnavailableError(
                f"no engine reads {self.model.info.format} files: asked were {', '.join(named)}"
            )
        return reading

    @cached_property
    def machines(self) -> Mapping[str, Machine]:
        """Every machine of the store that can be read, by its fingerprint."""
        found: dict[str, Machine] = {}
        for record in self.store.machines():
            try:
                found[record.fingerprint] = Machine.from_json(record.document)
            except ProbeError:
                continue
        return found

    @cached_property
    def answers(self) -> tuple[ProfileRecord, ...]:
        """The best answer to each question about this model, each on its own machine."""
        asked: dict[str, list[ProfileRecord]] = {}
        for profile in self.store.profiles(model_digest=self.model.info.digest):
            asked.setdefault(_question_key(profile), []).append(profile)
        best = (select.best(group, engines=tuple(self.engines)) for group in asked.values())
        return tuple(profile for profile in best if profile is not None)

    def given(self) -> Recommendation:
        """The first that can be used."""
        left_out: list[str] = [*self._distrusted()]
        for basis, candidate in self._candidates(left_out):
            profile = candidate.profile
            place = self._place(self.engines[profile.config.engine])
            is_default = basis != "exact" and _is_default(profile)
            if is_default:
                config, problem = place.own_default(profile.config.variant)
                changes: tuple[str, ...] = ()
            else:
                there = self.machines.get(profile.fingerprint)
                config, changes, problem = place.brought(profile.config, there)
            if problem is not None:
                left_out.append(f"left out: {profile.id}, because {problem}")
                continue
            return self._recommendation(
                basis,
                config,
                (*candidate.reasons, *([OWN_DEFAULT] if is_default else []), *left_out),
                profile.bits_per_weight or None,
                distance=candidate.distance.value,
                confidence=_confidence(basis, candidate),
                changes=changes,
                profile=profile,
            )
        return self._default(left_out)

    # --- candidates ----------------------------------------------------------------------------

    def _candidates(self, left_out: list[str]) -> Iterator[tuple[Basis, _Candidate]]:
        exact = next((p for p in self.answers if self._is_exact(p)), None)
        if exact is not None:
            yield "exact", _Candidate(exact, Distance(0.0), tuple(self._standing(exact)))
        others = [profile for profile in self.answers if profile is not exact]
        usable = [profile for profile in others if self._keeps(profile, left_out)]
        here = [p for p in usable if p.fingerprint == self.machine.fingerprint]
        for candidate in sorted((self._elsewhere(p) for p in here), key=_order):
            yield "same_machine", candidate
        near: list[_Candidate] = []
        far: list[_Candidate] = []
        for profile in usable:
            if profile.fingerprint != self.machine.fingerprint and profile.fingerprint in self.machines:
                candidate = self._elsewhere(profile)
                (near if candidate.distance.value <= FARTHEST else far).append(candidate)
        for candidate in sorted(near, key=_order):
            yield "similar", candidate
        if far:
            nearest = min(far, key=_order)
            left_out.append(
                f"left out: {len(far)} from machines farther than {FARTHEST:g}; the nearest is"
                f" {nearest.profile.id} of {self._label(nearest.profile)}, at {nearest.distance.value:.2f}"
            )

    def _is_exact(self, profile: ProfileRecord) -> bool:
        question = self.question
        return (
            profile.fingerprint == self.machine.fingerprint
            and workload_identity(profile.workload) == workload_identity(question.workload)
            and profile.objectives == (objective_of(question.workload),)
            and profile.quality_level == question.quality.name
            and {str(limit) for limit in profile.limits} == {str(limit) for limit in question.limits}
            and profile.conditions != "background"
        )

    def _keeps(self, profile: ProfileRecord, left_out: list[str]) -> bool:
        """Whether the quality level and the limits that were measured allow it."""
        level = self.question.quality
        if not _is_as_strict(profile.quality_level, level) and not (
            profile.quality is not None and profile.quality.meets(level)
        ):
            left_out.append(
                f"left out: {profile.id}, found at {profile.quality_level}: not shown to keep {level.name}"
            )
            return False
        broken = [
            str(limit)
            for limit in self.question.limits
            if limit.violation(profile.metrics.get(flat_name(limit.metric), limit.value)) > 0
        ]
        if broken:
            left_out.append(f"left out: {profile.id}, measured to break {', '.join(broken)}")
        return not broken

    def _elsewhere(self, profile: ProfileRecord) -> _Candidate:
        """An answer to another question, with every difference from the one asked."""
        question = self.question
        workload = between_workloads(profile.workload, question.workload)
        distance, reasons = workload, []
        if profile.fingerprint != self.machine.fingerprint:
            distance = between_machines(self.machines[profile.fingerprint], self.machine) + workload
            reasons.append(f"measured on another machine, {self._label(profile)} ({profile.fingerprint})")
        if workload.value:
            reasons.append(f"measured for {_named(profile.workload)}, not for {_named(question.workload)}")
        reasons += [*distance.reasons, *distance.unknown]
        if profile.quality_level != question.quality.name:
            why = "a stricter level than" if _is_as_strict(profile.quality_level, question.quality) else ""
            shown = "a laxer level, but its measured quality keeps"
            reasons.append(f"found at {profile.quality_level}, {why or shown} {question.quality.name}")
        asked, kept = ({str(limit) for limit in limits} for limits in (question.limits, profile.limits))
        if asked - kept:
            reasons.append(f"not measured against the limits {', '.join(sorted(asked - kept))}")
        if kept - asked:
            reasons.append(f"found under limits that were not asked: {', '.join(sorted(kept - asked))}")
        return _Candidate(profile, distance, (*reasons, *self._standing(profile)))

    def _standing(self, profile: ProfileRecord) -> Iterator[str]:
        """What stands behind a profile."""
        status = {
            ProfileStatus.CONFIRMED: "confirmed by pairs of fresh processes",
            ProfileStatus.PROVISIONAL: "provisional: more pairs are needed to confirm it",
            ProfileStatus.NO_GAIN: "the default itself: no gain over it was shown",
        }[profile.status]
        yield f"{profile.id} of {profile.created_at.date().isoformat()}: {status}"
        if profile.config.engine in registry.NEVER_BY_DEFAULT:
            yield f"the numbers of {profile.config.engine} are made up: they say nothing about your model"
        if profile.conditions != "quiet":
            loads = {"loaded": "under load: other work kept the CPUs busy"}
            yield f"it was measured {loads.get(profile.conditions, 'beside a background load')}"
        same = profile.fingerprint == self.machine.fingerprint
        kernels = profile.kernel, self.machine.kernel or ""
        if same and all(kernels) and kernels[0] != kernels[1]:
            yield f"it was measured under kernel {kernels[0]}, this machine runs {kernels[1]} now"

    def _distrusted(self) -> Iterator[str]:
        """Answers to this question that a wrong measurement took away."""
        for profile in self.store.profiles(
            fingerprint=self.machine.fingerprint,
            model_digest=self.model.info.digest,
            workload=self.question.workload,
        ):
            if profile.invalidated is not None and self._is_exact(profile):
                yield f"left out: {profile.id}, because it {profile.invalidated}"

    def _label(self, profile: ProfileRecord) -> str:
        machine = self.machines.get(profile.fingerprint)
        return profile.fingerprint if machine is None else label_of(machine)

    # --- default -------------------------------------------------------------------------------

    def _default(self, left_out: Iterable[str]) -> Recommendation:
        name, engine = next(iter(self.engines.items()))
        config, problems = self._place(engine).default()
        reasons = [
            f"nothing known of {self.model.name} can be used for {_named(self.question.workload)} on"
            f" {label_of(self.machine)}",
            f"these are {name}'s own defaults, threads by its rule of thumb for"
            f" {self.machine.effective.cpu_count} CPUs; nothing was measured",
            *left_out,
        ]
        if problems:
            reasons.append(f"{problems[0]}; the quality of {config.variant} was not measured")
        bits = self.model.info.bits_per_weight if config.variant == SOURCE else None
        return self._recommendation("default", config, reasons, bits)

    def _place(self, engine: Engine) -> Place:
        return Place(engine, self.machine, self.model.info, self.question.workload)

    def _recommendation(
        self,
        basis: Basis,
        config: Config,
        reasons: Iterable[str],
        bits_per_weight: float | None,
        *,
        distance: float | None = None,
        confidence: Confidence = "low",
        changes: tuple[str, ...] = (),
        profile: ProfileRecord | None = None,
    ) -> Recommendation:
        return Recommendation(
            basis=basis,
            distance=distance,
            confidence=confidence,
            reasons=tuple(reasons),
            changes=changes,
            config=config,
            bits_per_weight=bits_per_weight,
            profile=profile,
            measured_on=None if profile is None else self._label(profile),
            machine=self.machine,
            model=self.model,
            question=self.question,
        )


def _is_default(profile: ProfileRecord) -> bool:
    """Whether it says that the engine's default is best; not where a user's own command was."""
    document = profile.facts.get("document")
    is_command = isinstance(document, dict) and document.get("from") is not None
    return profile.status is ProfileStatus.NO_GAIN and not is_command


def _confidence(basis: Basis, candidate: _Candidate) -> Confidence:
    profile = candidate.profile
    sure = profile.status is not ProfileStatus.PROVISIONAL and profile.conditions == "quiet"
    if basis == "exact":
        return "high" if sure else "medium"
    return "medium" if sure and candidate.distance.value <= NEAR else "low"


def _order(candidate: _Candidate) -> tuple[float, bool, bool, float]:
    """The nearest first; then quiet, final, new ones."""
    profile = candidate.profile
    return (
        candidate.distance.value,
        profile.conditions != "quiet",
        profile.status is ProfileStatus.PROVISIONAL,
        -profile.created_at.timestamp(),
    )


def _question_key(profile: ProfileRecord) -> str:
    """Equal for profiles that answer one question."""
    return digest_of(
        profile.fingerprint,
        workload_identity(profile.workload),
        [objective.metric for objective in profile.objectives],
        profile.quality_level,
        sorted(str(limit) for limit in profile.limits),
        profile.conditions == "background",
    )


def _is_as_strict(name: str, level: QualityLevel) -> bool:
    strict = list(QUALITY_LEVELS)
    return name in QUALITY_LEVELS and strict.index(name) <= strict.index(level.name)


def _named(workload: Workload) -> str:
    streams = f" x {workload.streams}" if workload.streams > 1 else ""
    return f"{workload.name} ({workload.prompt_tokens}+{workload.output_tokens}{streams})"
