"""Alembic environment: runs revisions on the connection from `ops.ledger.migrate`, in its transaction."""

from alembic import context

from ops.ledger.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
