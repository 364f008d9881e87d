"""CPU time and memory of attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the new columns. They stay blank for attempts that have ended."""
    op.add_column("attempts", sa.Column("cpu_ms", sa.BigInteger))
    op.add_column("attempts", sa.Column("peak_memory_bytes", sa.BigInteger))
