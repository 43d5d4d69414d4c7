"""A variant belongs to the engine that runs it: two engines may have an int8."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

UNKNOWN = ""


def upgrade() -> None:
    """Apply the revision; the engine of a variant is the one that it was measured on."""
    op.add_column("cputune_variant", sa.Column("engine", sa.String(), nullable=True))
    variant = sa.table("cputune_variant", sa.column("digest"), sa.column("engine"))
    measured = sa.table("cputune_measurement", sa.column("variant_digest"), sa.column("config", sa.JSON))
    connection = op.get_bind()
    connection.execute(variant.update().values(engine=UNKNOWN))
    engines = {digest: config["engine"] for digest, config in connection.execute(sa.select(measured))}
    for digest, engine in engines.items():
        connection.execute(variant.update().where(variant.c.digest == digest).values(engine=engine))
    with op.batch_alter_table("cputune_variant") as table:
        table.alter_column("engine", existing_type=sa.String(), nullable=False)
        table.drop_constraint("uq_cputune_variant_model_digest_label", type_="unique")
        table.create_unique_constraint(
            "uq_cputune_variant_model_digest_engine_label", ["model_digest", "engine", "label"]
        )
