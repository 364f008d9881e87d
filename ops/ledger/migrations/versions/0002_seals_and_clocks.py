"""Ends of attempts that are proved, starts that are recorded, faults that are counted, the clock of SQLite."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the new columns and the table `clocks`.

    Attempts that are open have no seal, so no worker can follow them: their turns end as `internal_error`.
    """
    op.add_column("attempts", sa.Column("seal", sa.Text, nullable=False, server_default=""))
    op.add_column("attempts", sa.Column("start_sent", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("turns", sa.Column("faults", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "clocks",
        sa.Column("boot_id", sa.Text, primary_key=True),
        sa.Column("difference", sa.Double, nullable=False),
    )
