"""What a daemon promoted, refused and rolled back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "cputune_promotion",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("model_digest", sa.String(), nullable=False),
        sa.Column("workload", sa.JSON(), nullable=False),
        sa.Column("workload_key", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("running_id", sa.String(), nullable=True),
        sa.Column("other_id", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("numbers", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["running_id"], ["cputune_profile.id"], name="fk_cputune_promotion_running_id"
        ),
        sa.ForeignKeyConstraint(["other_id"], ["cputune_profile.id"], name="fk_cputune_promotion_other_id"),
        sa.PrimaryKeyConstraint("id", name="pk_cputune_promotion"),
    )
    op.create_index(
        "ix_cputune_promotion_question", "cputune_promotion", ["fingerprint", "model_digest", "workload_key"]
    )
