"""The tables of schema 0001 as they were: a ledger with them is upgraded to what `ops.ledger.schema` says."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory


def first_schema(connection: sa.Connection, migrations: ScriptDirectory) -> None:
    """Create a ledger of schema 0001."""
    context = MigrationContext.configure(connection)
    _create(Operations(context))
    context.stamp(migrations, "0001")


def _tokens() -> list[sa.Column[int]]:
    kinds = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return [sa.Column(kind, sa.BigInteger, nullable=False) for kind in kinds]


def _create(op: Operations) -> None:
    op.create_table(
        "turns",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("host", sa.Text),
        sa.Column("session_id", sa.Text),
        sa.Column("workspace", sa.Text),
        sa.Column("producer", sa.Text, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("owner_expires", sa.Double),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("due_at", sa.Double),
        sa.Column("expires_at", sa.Double),
        sa.Column("wait_reason", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("settled_at", sa.Double),
        sa.Column("status", sa.Text),
        sa.Column("error_kind", sa.Text),
        sa.Column("archived_at", sa.Double),
        sa.Column("session_run", sa.Text),
        sa.Column("request", sa.Text),
        sa.Column("result", sa.Text),
    )
    op.create_index("turns_by_state", "turns", ["state", "producer"])
    op.create_index("turns_by_owner", "turns", ["state", "owner_expires"])
    op.create_index("turns_by_age", "turns", ["created_at", "status", "agent", "host"])
    ready = sa.text("due_at IS NOT NULL")
    op.create_index(
        "turns_ready",
        "turns",
        ["producer", "place", "rank", "created_at", "turn_id", "due_at"],
        sqlite_where=ready,
        postgresql_where=ready,
    )
    op.create_index("turns_by_end", "turns", ["settled_at"])
    detailed = sa.text("request IS NOT NULL")
    op.create_index(
        "turns_with_details", "turns", ["settled_at"], sqlite_where=detailed, postgresql_where=detailed
    )
    unarchived = sa.text("settled_at IS NOT NULL AND archived_at IS NULL AND request IS NOT NULL")
    op.create_index(
        "turns_unarchived",
        "turns",
        ["settled_at", "turn_id"],
        sqlite_where=unarchived,
        postgresql_where=unarchived,
    )
    op.create_table(
        "turn_labels",
        sa.Column("turn_id", sa.Text, sa.ForeignKey("turns.turn_id"), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_index("turn_labels_by_value", "turn_labels", ["name", "value"])
    op.create_table(
        "attempts",
        sa.Column("turn_id", sa.Text, sa.ForeignKey("turns.turn_id"), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("spool_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text),
        sa.Column("resume", sa.Boolean, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("outcome", sa.Text),
        sa.Column("exit_code", sa.Integer),
        sa.Column("usage_source", sa.Text),
        sa.Column("usage_complete", sa.Boolean),
        sa.Column("unreachable_since", sa.Double),
        sa.Column("lease_s", sa.Integer),
        sa.Column("stop_grace_s", sa.Double),
        sa.Column("workspace", sa.Text),
        sa.Column("agent_version", sa.Text),
    )
    op.create_index("attempts_by_end", "attempts", ["ended_at"])
    op.create_index("attempts_by_spool", "attempts", ["spool_id"])
    still_open = sa.text("ended_at IS NULL")
    op.create_index("attempts_open", "attempts", ["host"], sqlite_where=still_open, postgresql_where=still_open)
    op.create_table(
        "usage",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("observed", sa.Boolean, nullable=False),
        *_tokens(),
        sa.Column("cost_nano", sa.BigInteger),
        sa.ForeignKeyConstraint(["turn_id", "attempt"], ["attempts.turn_id", "attempts.attempt"]),
    )
    op.create_table(
        "model_totals",
        sa.Column("agent", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("observed", sa.Boolean, primary_key=True),
        *_tokens(),
        sa.Column("cost_nano", sa.BigInteger),
        sa.Column("unpriced_tokens", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "outcome_totals",
        sa.Column("agent", sa.Text, primary_key=True),
        sa.Column("outcome", sa.Text, primary_key=True),
        sa.Column("turns", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "failure_totals",
        sa.Column("agent", sa.Text, primary_key=True),
        sa.Column("agent_version", sa.Text, primary_key=True),
        sa.Column("outcome", sa.Text, primary_key=True),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_nano", sa.BigInteger),
        sa.Column("booked_at", sa.Double, nullable=False),
    )
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("workspace", sa.Text, nullable=False),
        sa.Column("locked_by", sa.Text, sa.ForeignKey("turns.turn_id")),
        sa.Column("updated_at", sa.Double, nullable=False),
    )
    op.create_index("sessions_by_lock", "sessions", ["locked_by"])
    op.create_index("sessions_by_use", "sessions", ["updated_at"])
    op.create_table(
        "session_runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("settled_at", sa.Double),
        sa.Column("status", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("progress", sa.Text, nullable=False),
        sa.Column("request", sa.Text),
        sa.Column("result", sa.Text),
    )
    op.create_index("session_runs_by_end", "session_runs", ["settled_at"])
    op.create_table(
        "waiters",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("task_id", sa.Text, primary_key=True),
        sa.Column("follows", sa.Text, primary_key=True),
        sa.Column("settled_at", sa.Double),
        sa.Column("leased_until", sa.Double),
        sa.Column("sent", sa.Text),
        sa.Column("message", sa.Text),
    )
    op.create_index("waiters_by_task", "waiters", ["task_id"])
    settled = sa.text("settled_at IS NOT NULL")
    op.create_index(
        "waiters_unanswered",
        "waiters",
        ["settled_at", "turn_id"],
        sqlite_where=settled,
        postgresql_where=settled,
    )
    op.create_table(
        "hosts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("labels", sa.Text, primary_key=True),
        sa.Column("seen_at", sa.Double, nullable=False),
    )
    op.create_table(
        "budgets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("limit_nano", sa.BigInteger, nullable=False),
        sa.Column("reserve_nano", sa.BigInteger, nullable=False),
        sa.Column("period_start", sa.Double, nullable=False),
        sa.Column("spent_nano", sa.BigInteger, nullable=False),
        sa.Column("reserved_nano", sa.BigInteger, nullable=False),
    )
    budget = ["name", "value", "period"]
    op.create_table(
        "budget_reservations",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text, primary_key=True) for name in budget),
        sa.Column("amount_nano", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(budget, [f"budgets.{name}" for name in budget], ondelete="CASCADE"),
    )
    op.create_table(
        "events",
        sa.Column("turn_id", sa.Text, sa.ForeignKey("turns.turn_id"), primary_key=True),
        sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("lines", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "attempt_stderr",
        sa.Column("turn_id", sa.Text, sa.ForeignKey("turns.turn_id"), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("text", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "dead_letters",
        sa.Column("letter_id", sa.Text, primary_key=True),
        sa.Column("received_at", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("task_id", sa.Text),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("content_type", sa.Text),
        sa.Column("content_encoding", sa.Text),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("body_bytes", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary),
    )
    op.create_index("dead_letters_by_age", "dead_letters", ["received_at"])
