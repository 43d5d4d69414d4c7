"""Writes the store, or a part of it, as the documents of a bundle (`profiles.bundle`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from sqlalchemy import ColumnElement, true
from sqlmodel import Session, col, or_, select

from profiles.bundle import (
    ComparisonDocument,
    EndDocument,
    MeasurementDocument,
    MeasurementsDocument,
    ModelDocument,
    PairDocument,
    QualitiesDocument,
    QualityDocument,
    RoundDocument,
    RoundsDocument,
    StartDocument,
    StudyDocument,
    TrialDocument,
    VariantDocument,
)
from profiles.documents import ConfigDocument, machine_document, profile_document
from profiles.records import Conditions, Measurement, StudyRecord
from profiles.store.catalog import machine_record
from profiles.store.comparisons import comparison_record, pair_record
from profiles.store.database import Database
from profiles.store.published import find_profile, profile_records
from profiles.store.studies import find_study, study_record
from profiles.store.trials import samples_of, trial_record
from profiles.store.verbs import batches, moment
from profiles.tables import (
    ComparisonRow,
    Document,
    MachineRow,
    MeasurementRow,
    ModelRow,
    PairRow,
    ProfileRow,
    QualityRow,
    RoundRow,
    StudyRow,
    TrialRow,
    VariantRow,
)
from profiles.vocabulary import Config

_CONDITIONS: tuple[Conditions, ...] = get_args(Conditions)


@dataclass(frozen=True)
class _Part:
    """What goes out, by primary keys; `whole` is everything there is."""

    machines: frozenset[str]
    models: frozenset[str]
    studies: Mapping[str, None]
    """In order, each once."""
    profiles: tuple[str, ...]
    whole: bool = False


def bundle(database: Database, wanted: Sequence[str] = ()) -> Iterator[dict[str, object]]:
    """The documents of some studies, profiles and machines by id or name, with all that they rest on;
    without a name, of the whole store. The last one says how many there are.

    They show one state of the store, whoever writes meanwhile. Raises NotFoundError for an unknown name.
    """
    with database.reading() as session:
        yield StartDocument().plain()
        count = 0
        for document in _documents(session, _chosen(session, wanted)):
            count += 1
            yield document
        yield EndDocument(documents=count).plain()


def _chosen(session: Session, wanted: Sequence[str]) -> _Part:
    if not wanted:
        return _Part(
            frozenset(session.exec(select(MachineRow.fingerprint))),
            frozenset(session.exec(select(ModelRow.digest))),
            dict.fromkeys(session.exec(select(StudyRow.id).order_by(col(StudyRow.created_at)))),
            tuple(session.exec(select(ProfileRow.id).order_by(col(ProfileRow.created_at)))),
            whole=True,
        )
    studies: list[str] = []
    machines: set[str] = set()
    models: set[str] = set()
    profiles: list[str] = []
    for name in wanted:
        if session.get(MachineRow, name) is not None:
            machines.add(name)
            continue
        profile = find_profile(session, name) if name.startswith("p-") else None
        if profile is not None and profile.study_id is None:
            profiles.append(profile.id)
            machines.add(profile.fingerprint)
            models.add(profile.model_digest)
            continue
        study = find_study(session, profile.study_id if profile and profile.study_id else name)
        studies.append(study.id)
        machines.add(study.fingerprint)
        models.add(study.model_digest)
        profiles += session.exec(
            select(ProfileRow.id).where(ProfileRow.study_id == study.id).order_by(col(ProfileRow.created_at))
        )
    return _Part(
        frozenset(machines),
        frozenset(models),
        dict.fromkeys(studies),
        tuple(dict.fromkeys(profiles)),
    )


def _documents(session: Session, part: _Part) -> Iterator[Document]:
    for fingerprint in sorted(part.machines):
        yield _machine(session, fingerprint)
    for digest in sorted(part.models):
        yield _model(session, digest)
    yield from _qualities(session, part)
    yield from _measurements(session, part)
    for study_id in part.studies:
        yield _study(session, study_id)
    yield from _rounds(session, part)
    for profile_id in part.profiles:
        yield _profile(session, profile_id)


def _machine(session: Session, fingerprint: str) -> Document:
    from probes.machine import Machine

    row = session.get_one(MachineRow, fingerprint)
    machine = Machine.from_json(machine_record(row).document)
    return {**machine_document(machine), "label": row.label, "created_at": row.created_at}


def _model(session: Session, digest: str) -> Document:
    row = session.get_one(ModelRow, digest)
    variants = session.exec(
        select(VariantRow)
        .where(VariantRow.model_digest == digest)
        .order_by(col(VariantRow.engine), col(VariantRow.label))
    )
    return ModelDocument(
        digest=row.digest,
        name=row.name,
        source=row.source,
        info=row.info,
        created_at=moment(row.created_at),
        variants=tuple(
            VariantDocument(
                engine=variant.engine,
                label=variant.label,
                digest=variant.digest,
                tensor_mix=variant.tensor_mix,
                bits_per_weight=variant.bits_per_weight,
                file_bytes=variant.file_bytes,
                recipe=variant.recipe,
                created_at=moment(variant.created_at),
            )
            for variant in variants
        ),
    ).plain()


def _qualities(session: Session, part: _Part) -> Iterator[Document]:
    query = select(QualityRow).order_by(col(QualityRow.key))
    if not part.whole:
        digests = select(VariantRow.digest).where(col(VariantRow.model_digest).in_(part.models))
        query = query.where(col(QualityRow.variant_digest).in_(digests))
    for rows in batches(session.exec(query)):
        yield QualitiesDocument(
            qualities=tuple(
                QualityDocument(**{**row.model_dump(), "created_at": moment(row.created_at)}) for row in rows
            )
        ).plain()


def _measurements(session: Session, part: _Part) -> Iterator[Document]:
    for keys in batches(_keys(session, part)):
        rows = session.exec(select(MeasurementRow).where(col(MeasurementRow.key).in_(keys)))
        documents = tuple(
            MeasurementDocument(
                key=row.key,
                machine=row.fingerprint,
                engine_build=row.engine_build,
                variant_digest=row.variant_digest,
                config=ConfigDocument.of(Config.from_json(row.config)),
                workload=row.workload,
                conditions=row.conditions,
                created_at=moment(row.created_at),
            )
            for row in rows
        )
        if documents:
            yield MeasurementsDocument(measurements=documents).plain()


def _keys(session: Session, part: _Part) -> list[str]:
    """Of the measurements that go out; some may have no row."""
    if part.whole:
        return list(session.exec(select(MeasurementRow.key).order_by(col(MeasurementRow.key))))
    keys: set[str] = set()
    for study_id in part.studies:
        keys |= _keys_of(session, study_record(session.get_one(StudyRow, study_id)))
    return sorted(keys)


def _keys_of(session: Session, study: StudyRecord) -> set[str]:
    """What a study's trials measured, and what its races and confirmations may have filed without a trial."""
    trials = session.exec(
        select(TrialRow.measurement_key, TrialRow.config).where(TrialRow.study_id == study.id)
    ).all()
    sides = session.exec(
        select(ComparisonRow.config_a, ComparisonRow.config_b).where(ComparisonRow.study_id == study.id)
    )
    configs = {Config.from_json(config) for _, config in trials}
    configs |= {Config.from_json(config) for pair in sides for config in pair}
    digests: dict[str, list[str]] = {}
    for variant in session.exec(select(VariantRow).where(VariantRow.model_digest == study.model_digest)):
        digests.setdefault(variant.label, []).append(variant.digest)
    keys = {key for key, _ in trials if key is not None}
    for config in configs:
        for digest in digests.get(config.variant, ()):
            build = study.engine_builds.get(config.engine, "")
            quiet = Measurement(study.fingerprint, build, digest, config, study.workload)
            keys |= {replace(quiet, conditions=conditions).key for conditions in _CONDITIONS}
    return keys


def _study(session: Session, study_id: str) -> Document:
    row = session.get_one(StudyRow, study_id)
    study = study_record(row)
    trials = session.exec(
        select(TrialRow).where(TrialRow.study_id == study_id).order_by(col(TrialRow.number))
    )
    comparisons = session.exec(
        select(ComparisonRow).where(ComparisonRow.study_id == study_id).order_by(col(ComparisonRow.id))
    ).all()
    return StudyDocument(
        id=study.id,
        key=study.lineage,
        attempt=row.attempt,
        storage_name=study.storage_name,
        name=study.name,
        machine=study.fingerprint,
        model=study.model_digest,
        workload=study.workload,
        engines=study.engines,
        space_hash=study.space_hash,
        objectives=study.objectives,
        quality_level=study.quality_level,
        limits=study.limits,
        seed=study.seed,
        sampler=study.sampler,
        status=study.status,
        owner=study.owner,
        request=dict(study.request),
        environment=dict(study.environment),
        engine_builds=dict(study.engine_builds),
        result=dict(study.result),
        created_at=study.created_at,
        updated_at=study.updated_at,
        trials=tuple(_trial(trial) for trial in trials),
        comparisons=tuple(_comparison(session, comparison) for comparison in comparisons),
    ).plain()


def _trial(row: TrialRow) -> TrialDocument:
    trial = trial_record(row)
    return TrialDocument(
        number=trial.number,
        stage=trial.stage,
        config=ConfigDocument.of(trial.config),
        status=trial.status,
        reason=trial.reason,
        objective_value=trial.objective_value,
        effective=dict(trial.effective),
        metrics=dict(trial.metrics),
        measurement_key=trial.measurement_key,
        facts=dict(trial.facts),
        owner=trial.owner,
        started_at=trial.started_at,
        finished_at=trial.finished_at,
        invalidated_at=trial.invalidated_at,
    )


def _comparison(session: Session, row: ComparisonRow) -> ComparisonDocument:
    found = comparison_record(row)
    pairs = session.exec(select(PairRow).where(PairRow.comparison_id == row.id).order_by(col(PairRow.number)))
    return ComparisonDocument(
        config_a=ConfigDocument.of(found.config_a),
        config_b=ConfigDocument.of(found.config_b),
        metric=found.metric,
        interval=found.interval,
        verdict=found.verdict,
        started_at=found.started_at,
        finished_at=found.finished_at,
        pairs=tuple(
            PairDocument(
                number=pair.number,
                a_values=pair.a_values,
                b_values=pair.b_values,
                dropped=pair.dropped,
                facts=dict(pair.facts),
                created_at=moment(pair_row.created_at),
            )
            for pair_row, pair in ((pair_row, pair_record(pair_row)) for pair_row in pairs)
        ),
    )


def _rounds(session: Session, part: _Part) -> Iterator[Document]:
    """The rounds of the measurements; not those of another study's trial that was declared wrong."""
    for keys in batches(_keys(session, part)):
        query = (
            select(RoundRow, TrialRow.study_id, TrialRow.number)
            .join(TrialRow, col(TrialRow.id) == RoundRow.trial_id, isouter=True)
            .where(col(RoundRow.measurement_key).in_(keys), _goes_out(part))
            .order_by(col(RoundRow.id))
        )
        for rows in batches(session.exec(query)):
            yield RoundsDocument(rounds=tuple(_round(part, *row) for row in rows)).plain()


def _goes_out(part: _Part) -> ColumnElement[bool]:
    if part.whole:
        return true()
    return or_(
        col(TrialRow.id).is_(None),
        col(TrialRow.invalidated_at).is_(None),
        col(TrialRow.study_id).in_(part.studies),
    )


def _round(part: _Part, row: RoundRow, study: str | None, number: int | None) -> RoundDocument:
    samples = samples_of(row)
    told = study in part.studies
    return RoundDocument(
        measurement=row.measurement_key,
        study=study if told else None,
        trial=number if told else None,
        kind=samples.kind,
        ttft_ms=samples.ttft_ms,
        gaps_ms=samples.gaps_ms,
        response_ms=samples.response_ms,
        wall_ms=samples.wall_ms,
        dropped=samples.dropped,
        facts=dict(samples.facts),
        created_at=moment(row.created_at),
    )


def _profile(session: Session, profile_id: str) -> Document:
    (profile,) = profile_records(session, [session.get_one(ProfileRow, profile_id)])
    numbers: Iterable[int] = session.exec(
        select(TrialRow.number)
        .where(col(TrialRow.id).in_(profile.trial_ids), TrialRow.study_id == profile.study_id)
        .order_by(col(TrialRow.number))
    )
    comparison = None if profile.comparison_id is None else session.get(ComparisonRow, profile.comparison_id)
    return profile_document(
        profile, tuple(numbers), None if comparison is None else moment(comparison.started_at)
    )
