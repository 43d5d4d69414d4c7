"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "cputune_machine",
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name="pk_cputune_machine"),
    )
    op.create_table(
        "cputune_measurement",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("engine_build", sa.String(), nullable=False),
        sa.Column("variant_digest", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("workload", sa.JSON(), nullable=False),
        sa.Column("conditions", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_cputune_measurement"),
    )
    op.create_index("ix_cputune_measurement_variant_digest", "cputune_measurement", ["variant_digest"])
    op.create_table(
        "cputune_model",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("info", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_cputune_model"),
        sa.UniqueConstraint("name", name="uq_cputune_model_name"),
    )
    op.create_table(
        "cputune_quality",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("variant_digest", sa.String(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("reference_digest", sa.String(), nullable=False),
        sa.Column("text_version", sa.String(), nullable=False),
        sa.Column("engine_build", sa.String(), nullable=False),
        sa.Column("quality", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_cputune_quality"),
    )
    op.create_index("ix_cputune_quality_variant_digest", "cputune_quality", ["variant_digest"])
    op.create_table(
        "cputune_study",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("model_digest", sa.String(), nullable=False),
        sa.Column("workload", sa.JSON(), nullable=False),
        sa.Column("workload_key", sa.String(), nullable=False),
        sa.Column("engines", sa.JSON(), nullable=False),
        sa.Column("space_hash", sa.String(), nullable=False),
        sa.Column("storage_name", sa.String(), nullable=False),
        sa.Column("objectives", sa.JSON(), nullable=False),
        sa.Column("quality_level", sa.String(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("sampler", sa.String(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("engine_builds", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.Column("updated_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["cputune_machine.fingerprint"], name="fk_cputune_study_fingerprint"
        ),
        sa.ForeignKeyConstraint(
            ["model_digest"], ["cputune_model.digest"], name="fk_cputune_study_model_digest"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_cputune_study"),
        sa.UniqueConstraint("key", "attempt", name="uq_cputune_study_key_attempt"),
        sa.UniqueConstraint("storage_name", name="uq_cputune_study_storage_name"),
    )
    op.create_index("ix_cputune_study_name", "cputune_study", ["name"])
    op.create_index(
        "ix_cputune_study_question", "cputune_study", ["fingerprint", "model_digest", "workload_key"]
    )
    op.create_index("ix_cputune_study_updated_at", "cputune_study", ["updated_at"])
    op.create_table(
        "cputune_variant",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_digest", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("tensor_mix", sa.JSON(), nullable=False),
        sa.Column("bits_per_weight", sa.Float(), nullable=False),
        sa.Column("file_bytes", sa.BigInteger(), nullable=False),
        sa.Column("recipe", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_digest"], ["cputune_model.digest"], name="fk_cputune_variant_model_digest"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_cputune_variant"),
        sa.UniqueConstraint("model_digest", "label", name="uq_cputune_variant_model_digest_label"),
    )
    op.create_index("ix_cputune_variant_digest", "cputune_variant", ["digest"])
    op.create_table(
        "cputune_comparison",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("config_a", sa.JSON(), nullable=False),
        sa.Column("config_b", sa.JSON(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("interval", sa.JSON(), nullable=True),
        sa.Column("verdict", sa.String(), nullable=True),
        sa.Column("started_at", sa.String(), nullable=False),
        sa.Column("finished_at", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["study_id"], ["cputune_study.id"], name="fk_cputune_comparison_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_cputune_comparison"),
    )
    op.create_index("ix_cputune_comparison_study_id", "cputune_comparison", ["study_id"])
    op.create_table(
        "cputune_trial",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("config_key", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("objective_value", sa.Float(), nullable=True),
        sa.Column("effective", sa.JSON(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("measurement_key", sa.String(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("started_at", sa.String(), nullable=False),
        sa.Column("finished_at", sa.String(), nullable=True),
        sa.Column("invalidated_at", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["measurement_key"], ["cputune_measurement.key"], name="fk_cputune_trial_measurement_key"
        ),
        sa.ForeignKeyConstraint(["study_id"], ["cputune_study.id"], name="fk_cputune_trial_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_cputune_trial"),
        sa.UniqueConstraint("study_id", "number", name="uq_cputune_trial_study_id_number"),
    )
    op.create_index("ix_cputune_trial_measurement_key", "cputune_trial", ["measurement_key"])
    op.create_index("ix_cputune_trial_study_id_status", "cputune_trial", ["study_id", "status"])
    op.create_table(
        "cputune_pair",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("comparison_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("a_values", sa.JSON(), nullable=False),
        sa.Column("b_values", sa.JSON(), nullable=False),
        sa.Column("dropped", sa.String(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["cputune_comparison.id"], name="fk_cputune_pair_comparison_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_cputune_pair"),
        sa.UniqueConstraint("comparison_id", "number", name="uq_cputune_pair_comparison_id_number"),
    )
    op.create_table(
        "cputune_profile",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("model_digest", sa.String(), nullable=False),
        sa.Column("workload", sa.JSON(), nullable=False),
        sa.Column("workload_key", sa.String(), nullable=False),
        sa.Column("objectives", sa.JSON(), nullable=False),
        sa.Column("quality_level", sa.String(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("request_key", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("conditions", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("variant_digest", sa.String(), nullable=False),
        sa.Column("bits_per_weight", sa.Float(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("baseline_config", sa.JSON(), nullable=False),
        sa.Column("baseline_metrics", sa.JSON(), nullable=False),
        sa.Column("speedup", sa.JSON(), nullable=True),
        sa.Column("quality", sa.JSON(), nullable=True),
        sa.Column("engine_build", sa.String(), nullable=False),
        sa.Column("kernel", sa.String(), nullable=False),
        sa.Column("study_id", sa.String(), nullable=True),
        sa.Column("comparison_id", sa.Integer(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["cputune_comparison.id"], name="fk_cputune_profile_comparison_id"
        ),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["cputune_machine.fingerprint"], name="fk_cputune_profile_fingerprint"
        ),
        sa.ForeignKeyConstraint(
            ["model_digest"], ["cputune_model.digest"], name="fk_cputune_profile_model_digest"
        ),
        sa.ForeignKeyConstraint(["study_id"], ["cputune_study.id"], name="fk_cputune_profile_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_cputune_profile"),
    )
    op.create_index("ix_cputune_profile_created_at", "cputune_profile", ["created_at"])
    op.create_index(
        "ix_cputune_profile_question",
        "cputune_profile",
        ["fingerprint", "model_digest", "workload_key", "request_key"],
    )
    op.create_index("ix_cputune_profile_study_id", "cputune_profile", ["study_id"])
    op.create_table(
        "cputune_round",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("measurement_key", sa.String(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("samples", sa.JSON(), nullable=False),
        sa.Column("wall_ms", sa.Float(), nullable=False),
        sa.Column("dropped", sa.String(), nullable=True),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["measurement_key"], ["cputune_measurement.key"], name="fk_cputune_round_measurement_key"
        ),
        sa.ForeignKeyConstraint(["trial_id"], ["cputune_trial.id"], name="fk_cputune_round_trial_id"),
        sa.PrimaryKeyConstraint("id", name="pk_cputune_round"),
    )
    op.create_index("ix_cputune_round_measurement_key", "cputune_round", ["measurement_key"])
    op.create_index("ix_cputune_round_trial_id", "cputune_round", ["trial_id"])
    op.create_table(
        "cputune_profile_trial",
        sa.Column("profile_id", sa.String(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["profile_id"], ["cputune_profile.id"], name="fk_cputune_profile_trial_profile_id"
        ),
        sa.ForeignKeyConstraint(["trial_id"], ["cputune_trial.id"], name="fk_cputune_profile_trial_trial_id"),
        sa.PrimaryKeyConstraint("profile_id", "trial_id", name="pk_cputune_profile_trial"),
    )
    op.create_index("ix_cputune_profile_trial_trial_id", "cputune_profile_trial", ["trial_id"])
