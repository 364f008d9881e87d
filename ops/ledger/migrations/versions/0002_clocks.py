"""The clock of a SQLite ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table `clocks`."""
    op.create_table(
        "clocks",
        sa.Column("boot_id", sa.Text, primary_key=True),
        sa.Column("difference", sa.Double, nullable=False),
    )
