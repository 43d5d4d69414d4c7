"""The schema's history as Alembic revisions, numbered in order."""

LATEST = "0003"
"""The revision that this program reads and writes; known without loading Alembic."""

VERSION_TABLE = "cputune_alembic_version"
