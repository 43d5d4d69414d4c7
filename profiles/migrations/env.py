"""Alembic's entry: runs revisions on the connection that the store hands over."""

from alembic import context

from profiles.migrations import VERSION_TABLE
from profiles.tables import PREFIX, Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    version_table=VERSION_TABLE,
    # Optuna's tables share the database; they are not ours to see.
    include_name=lambda name, kind, _parents: kind != "table" or (name or "").startswith(PREFIX),
    # The store has begun the one transaction that holds the whole upgrade, DDL included.
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
