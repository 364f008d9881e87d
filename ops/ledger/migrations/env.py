"""How alembic runs the revisions: on the connection that `ops.ledger.migrate` hands it, in its transaction."""

from alembic import context

from ops.ledger.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
