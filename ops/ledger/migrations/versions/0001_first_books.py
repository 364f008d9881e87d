"""The first schema. New ledgers are created from `ops.ledger.schema`; revisions upgrade old ones."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: no ledger is older."""
