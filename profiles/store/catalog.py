"""Verbs on what is measured: machines, models, their variants and the variants' quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlmodel import Session, col, delete, or_, select

from profiles.records import MachineRecord, ModelRecord, QualityKey, VariantRecord
from profiles.store.verbs import (
    Verbs,
    ambiguous,
    existing,
    moment,
    not_found,
    now,
    quality_document,
    quality_of,
)
from profiles.tables import MachineRow, ModelRow, ProfileRow, QualityRow, StudyRow, VariantRow
from profiles.vocabulary import ModelInfo, Quality

if TYPE_CHECKING:
    from probes.machine import Machine


class Catalog(Verbs):
    """What is measured."""

    def save_machine(self, machine: Machine, label: str) -> MachineRecord:
        """Store a machine, or renew the description and label of a known fingerprint.

        A bandwidth measured earlier is kept by a description that has none.
        """
        with self._database.writing() as session:
            row = session.get(MachineRow, machine.fingerprint)
            if row is None:
                row = MachineRow(fingerprint=machine.fingerprint, label=label, document={}, created_at=now())
            document = machine.to_json()
            if document.get("bandwidth") is None:
                document |= {name: row.document.get(name) for name in ("bandwidth", "bandwidth_gbps")}
            row.label, row.document = label, document
            session.add(row)
            return machine_record(row)

    def machine(self, fingerprint: str) -> MachineRecord:
        """A machine by its fingerprint; NotFoundError for an unknown one."""
        with self._database.reading() as session:
            return machine_record(existing(session, MachineRow, fingerprint, "machine"))

    def machines(self) -> tuple[MachineRecord, ...]:
        """Every machine, newest first."""
        with self._database.reading() as session:
            rows = session.exec(select(MachineRow).order_by(col(MachineRow.created_at).desc()))
            return tuple(machine_record(row) for row in rows)

    def save_model(self, info: ModelInfo, source: str, name: str) -> ModelRecord:
        """Register a model under a name, or renew the entry of a known digest.

        A name that another model holds goes to this one; the other is then `NAME@` and its digest.
        """
        with self._database.writing() as session:
            holder = session.exec(
                select(ModelRow).where(ModelRow.name == name, ModelRow.digest != info.digest)
            ).first()
            if holder is not None:
                holder.name = f"{name}@{holder.digest[:12]}"
                session.add(holder)
                session.flush()
            row = session.get(ModelRow, info.digest)
            if row is None:
                row = ModelRow(digest=info.digest, name=name, source=source, info={}, created_at=now())
            row.name, row.source, row.info = name, source, info.to_json()
            session.add(row)
            return model_record(row)

    def forget_model(self, digest: str) -> bool:
        """Take a model out of the registered ones; True where its row stays for the history.

        A model that studies or profiles speak of keeps its row without a source, found by its digest; adding
        it again registers it again. Raises NotFoundError for an unknown digest.
        """
        with self._database.writing() as session:
            row = existing(session, ModelRow, digest, "model")
            of_it = (select(table.id).where(table.model_digest == digest) for table in (StudyRow, ProfileRow))
            if any(session.exec(query.limit(1)).first() is not None for query in of_it):
                row.name, row.source = f"{row.name.partition('@')[0]}@{digest[:12]}", ""
                session.add(row)
                return True
            session.exec(delete(VariantRow).where(col(VariantRow.model_digest) == digest))
            session.delete(row)
            return False

    def models(self) -> tuple[ModelRecord, ...]:
        """Every registered model by name."""
        with self._database.reading() as session:
            rows = session.exec(select(ModelRow).where(ModelRow.source != "").order_by(col(ModelRow.name)))
            return tuple(model_record(row) for row in rows)

    def model(self, name_or_digest: str) -> ModelRecord:
        """A model by its name, its digest, or an unambiguous beginning of the digest.

        Raises NotFoundError, listing near names.
        """
        with self._database.reading() as session:
            return model_record(_find_model(session, name_or_digest))

    def save_variant(self, variant: VariantRecord) -> None:
        """Store a variant of a registered model, or renew the one of equal engine and label."""
        with self._database.writing() as session:
            existing(session, ModelRow, variant.model_digest, "model")
            row = session.exec(
                select(VariantRow).where(
                    VariantRow.model_digest == variant.model_digest,
                    VariantRow.engine == variant.engine,
                    VariantRow.label == variant.label,
                )
            ).first()
            session.merge(
                VariantRow(
                    id=row.id if row else None,
                    model_digest=variant.model_digest,
                    engine=variant.engine,
                    label=variant.label,
                    digest=variant.digest,
                    tensor_mix=dict(variant.tensor_mix),
                    bits_per_weight=variant.bits_per_weight,
                    file_bytes=variant.file_bytes,
                    recipe=dict(variant.recipe),
                    created_at=now(),
                )
            )

    def variants(self, model_digest: str) -> tuple[VariantRecord, ...]:
        """The known variants of a model, largest first; empty for an unknown model."""
        with self._database.reading() as session:
            rows = session.exec(
                select(VariantRow)
                .where(VariantRow.model_digest == model_digest)
                .order_by(col(VariantRow.file_bytes).desc(), col(VariantRow.engine), col(VariantRow.label))
            )
            return tuple(
                VariantRecord(
                    model_digest=row.model_digest,
                    engine=row.engine,
                    label=row.label,
                    digest=row.digest,
                    tensor_mix=row.tensor_mix,
                    bits_per_weight=row.bits_per_weight,
                    file_bytes=row.file_bytes,
                    recipe=row.recipe,
                )
                for row in rows
            )

    def save_quality(self, key: QualityKey, quality: Quality) -> None:
        """Store a quality result; a later one under the same key takes its place."""
        with self._database.writing() as session:
            session.merge(
                QualityRow(
                    key=key.key,
                    variant_digest=key.variant_digest,
                    settings=dict(key.settings),
                    reference_digest=key.reference_digest,
                    text_version=key.text_version,
                    engine_build=key.engine_build,
                    quality=quality_document(quality),
                    created_at=now(),
                )
            )

    def quality(self, key: QualityKey) -> Quality | None:
        """The quality measured under these conditions; None when it never was."""
        with self._database.reading() as session:
            row = session.get(QualityRow, key.key)
            return None if row is None else quality_of(row.quality)


def _find_model(session: Session, wanted: str) -> ModelRow:
    rows = session.exec(
        select(ModelRow).where(
            or_(ModelRow.name == wanted, col(ModelRow.digest).startswith(wanted, autoescape=True))
        )
    ).all()
    exact = [row for row in rows if wanted in (row.name, row.digest)]
    if exact or len(rows) == 1:
        return (exact or rows)[0]
    if rows:
        raise ambiguous(wanted, [row.digest for row in rows])
    names = session.exec(select(ModelRow.name).order_by(col(ModelRow.created_at).desc())).all()
    raise not_found("model", wanted, names, "cputune models list")


def machine_record(row: MachineRow) -> MachineRecord:
    """A row as a value."""
    return MachineRecord(row.fingerprint, row.label, row.document, moment(row.created_at))


def model_record(row: ModelRow) -> ModelRecord:
    """A row as a value."""
    return ModelRecord(row.name, row.source, ModelInfo.from_json(row.info), moment(row.created_at))
