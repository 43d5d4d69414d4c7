"""Takes in the documents of a bundle from another store."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmodel import Session, col, select

from profiles import bundle
from profiles.documents import ProfileDocument, profile_of
from profiles.errors import DocumentError
from profiles.records import digest_of
from profiles.store.database import Database
from profiles.store.incoming_studies import known_measurements, take_in_study
from profiles.store.published import profile_row
from profiles.store.taken import Taken
from profiles.store.verbs import new_id, now, stored
from profiles.tables import (
    ComparisonRow,
    MachineRow,
    MeasurementRow,
    ModelRow,
    ProfileRow,
    ProfileTrialRow,
    QualityRow,
    RoundRow,
    StudyRow,
    TrialRow,
    VariantRow,
)


def take_in(database: Database, document: bundle.Document, place: str) -> tuple[Taken, ...]:
    """Store a document in one commit; what is here already stays as it is, and nothing is stored twice.

    A conflict is refused and said. Raises DocumentError, naming `place`, for what refers to something
    that is neither here nor came before.
    """
    with database.writing() as session:
        match document:
            case bundle.MachineDocument():
                return (_machine(session, document),)
            case bundle.ModelDocument():
                return tuple(_model(session, document))
            case bundle.QualitiesDocument():
                return (_qualities(session, document),)
            case bundle.MeasurementsDocument():
                return (_measurements(session, document),)
            case bundle.StudyDocument():
                return (take_in_study(session, document, place),)
            case bundle.RoundsDocument():
                return (_rounds(session, document, place),)
            case ProfileDocument():
                return (_profile(session, document, place),)


def _machine(session: Session, document: bundle.MachineDocument) -> Taken:
    fingerprint = document.machine.fingerprint
    if session.get(MachineRow, fingerprint) is not None:
        return Taken("machine", fingerprint, "known")
    created_at = now() if document.created_at is None else stored(document.created_at)
    session.add(
        MachineRow(
            fingerprint=fingerprint,
            label=document.label,
            document=document.machine.to_json(),
            created_at=created_at,
        )
    )
    return Taken("machine", fingerprint, "added")


def _model(session: Session, document: bundle.ModelDocument) -> Iterable[Taken]:
    if session.get(ModelRow, document.digest) is None:
        taken = session.exec(select(ModelRow).where(ModelRow.name == document.name)).first()
        name = document.name if taken is None else f"{document.name}@{document.digest[:12]}"
        session.add(
            ModelRow(
                digest=document.digest,
                name=name,
                source=document.source,
                info=document.info,
                created_at=stored(document.created_at),
            )
        )
        session.flush()
        note = "" if taken is None else f"'{document.name}' is another model here"
        yield Taken("model", name, "added", note)
    else:
        yield Taken("model", document.name, "known")
    rows = session.exec(select(VariantRow).where(VariantRow.model_digest == document.digest))
    here = {(row.engine, row.label): row.digest for row in rows}
    for variant in document.variants:
        name = f"{variant.engine} {variant.label} of {document.name}".strip()
        known = here.get((variant.engine, variant.label))
        if known is None:
            fields = variant.model_dump(exclude={"created_at"})
            created_at = stored(variant.created_at)
            session.add(VariantRow(model_digest=document.digest, created_at=created_at, **fields))
            yield Taken("variant", name, "added")
        elif known != variant.digest:
            yield Taken("variant", name, "refused", "it was made otherwise here")
        else:
            yield Taken("variant", name, "known")


def _qualities(session: Session, document: bundle.QualitiesDocument) -> Taken:
    keys = [quality.key for quality in document.qualities]
    here = set(session.exec(select(QualityRow.key).where(col(QualityRow.key).in_(keys))))
    for quality in document.qualities:
        if quality.key not in here:
            fields = quality.model_dump(exclude={"created_at"})
            session.add(QualityRow(created_at=stored(quality.created_at), **fields))
    return _counted("quality results", len(keys), len(here))


def _measurements(session: Session, document: bundle.MeasurementsDocument) -> Taken:
    here = known_measurements(session, (measurement.key for measurement in document.measurements))
    for one in document.measurements:
        if one.key not in here:
            session.add(
                MeasurementRow(
                    key=one.key,
                    fingerprint=one.machine,
                    engine_build=one.engine_build,
                    variant_digest=one.variant_digest,
                    config=one.config.value().to_json(),
                    workload=one.workload,
                    conditions=one.conditions,
                    created_at=stored(one.created_at),
                )
            )
    return _counted("measurements", len(document.measurements), len(here))


def _counted(what: str, all_of_them: int, here: int) -> Taken:
    added = all_of_them - here
    return Taken(what, str(added or here), "added" if added else "known")


# --- rounds and profiles -------------------------------------------------------------------------


def _rounds(session: Session, document: bundle.RoundsDocument, place: str) -> Taken:
    keys = {one.measurement for one in document.rounds}
    missing = keys - known_measurements(session, keys)
    if missing:
        index = next(i for i, one in enumerate(document.rounds) if one.measurement in missing)
        raise DocumentError(
            f"{place}: rounds.{index}.measurement: no such measurement",
            seen=document.rounds[index].measurement,
        )
    trials = _trial_ids(session, document)
    here = {
        _identity(row.measurement_key, row.samples, row.created_at): row
        for row in session.exec(select(RoundRow).where(col(RoundRow.measurement_key).in_(keys)))
    }
    known = 0
    for one in document.rounds:
        samples = [list(one.ttft_ms), [list(gaps) for gaps in one.gaps_ms], list(one.response_ms)]
        trial_id = trials.get((one.study, one.trial))
        row = here.get(_identity(one.measurement, samples, stored(one.created_at)))
        if row is not None:
            known += 1
            row.trial_id = row.trial_id or trial_id
            session.add(row)
            continue
        session.add(
            RoundRow(
                measurement_key=one.measurement,
                trial_id=trial_id,
                kind=one.kind,
                samples=samples,
                wall_ms=one.wall_ms,
                dropped=one.dropped,
                facts=one.facts,
                created_at=stored(one.created_at),
            )
        )
    return _counted("rounds", len(document.rounds), known)


def _identity(measurement: str, samples: object, created_at: str) -> str:
    """Rounds have no name of their own: the same samples at the same microsecond are one round."""
    return digest_of(measurement, samples, created_at)


def _trial_ids(session: Session, document: bundle.RoundsDocument) -> dict[tuple[str | None, int | None], int]:
    studies = {one.study for one in document.rounds if one.study is not None}
    found = session.exec(
        select(TrialRow.study_id, TrialRow.number, TrialRow.id).where(col(TrialRow.study_id).in_(studies))
    )
    return {(study, number): trial_id for study, number, trial_id in found if trial_id is not None}


def _profile(session: Session, document: ProfileDocument, place: str) -> Taken:
    for table, key, what in ((MachineRow, document.machine, "machine"), (ModelRow, document.model, "model")):
        if session.get(table, key) is None:
            raise DocumentError(
                f"{place}: {what}: not in this store",
                seen=key,
                hint=f"import the {what} first, or what `cputune db export` writes, which holds it",
            )
    study = None if document.study is None else session.get(StudyRow, document.study)
    profile = profile_of(document)
    profile_id = document.id or new_id(session, ProfileRow, "p")
    row = profile_row(profile, profile_id, profile_id if study is None else study.key)
    known = _same(session, document, row)
    if known is not None:
        return Taken("profile", known.id, "known")
    if document.id is not None and session.get(ProfileRow, document.id) is not None:
        return Taken("profile", document.id, "refused", "another profile has this id here")
    if document.created_at is not None:
        row.created_at = stored(document.created_at)
    if study is not None:
        row.study_id, row.facts = study.id, dict(document.facts)
        comparison = (
            document.comparison
            and session.exec(
                select(ComparisonRow.id).where(
                    ComparisonRow.study_id == study.id,
                    ComparisonRow.started_at == stored(document.comparison),
                )
            ).first()
        )
        row.comparison_id = comparison or None
    session.add(row)
    session.flush()
    if study is not None:
        trials = session.exec(
            select(TrialRow.id).where(
                TrialRow.study_id == study.id, col(TrialRow.number).in_(document.trials)
            )
        )
        session.add_all(ProfileTrialRow(profile_id=row.id, trial_id=trial or 0) for trial in trials)
    return Taken("profile", row.id, "added")


def _same(session: Session, document: ProfileDocument, row: ProfileRow) -> ProfileRow | None:
    """The profile that this one is: by id and time; by what it says where it has no id."""
    if document.id is not None:
        found = session.get(ProfileRow, document.id)
        same = found is not None and (
            document.created_at is None or found.created_at == stored(document.created_at)
        )
        return found if same else None
    query = select(ProfileRow).where(
        ProfileRow.fingerprint == row.fingerprint,
        ProfileRow.model_digest == row.model_digest,
        ProfileRow.workload_key == row.workload_key,
        ProfileRow.request_key == row.request_key,
    )
    said = ("status", "config", "metrics", "baseline_metrics", "speedup", "engine_build")
    return next((f for f in session.exec(query) if all(getattr(f, n) == getattr(row, n) for n in said)), None)
