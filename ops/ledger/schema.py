"""The tables, from which new ledgers are created. `migrations/` upgrades old ones; a test keeps the two in sync.

Money is integer nano US dollars, NULL where the price is unknown. Times are Unix seconds. JSON is stored as text:
it is only ever read whole.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

metadata = MetaData()

TOKEN_KINDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


_OPEN = text("ended_at IS NULL")  # of an attempt
_READY = text("due_at IS NOT NULL")  # of a turn
_DETAILED = text("request IS NOT NULL")  # of a turn
_UNARCHIVED = text("settled_at IS NOT NULL AND archived_at IS NULL AND request IS NOT NULL")  # of a turn
_SETTLED = text("settled_at IS NOT NULL")  # of a turn that tasks wait for


def _token_columns() -> list[Column[int]]:
    return [Column(kind, BigInteger, nullable=False) for kind in TOKEN_KINDS]


turns = Table(
    "turns",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("host", Text),
    Column("session_id", Text),
    Column("workspace", Text),
    Column("producer", Text, nullable=False),
    Column("rank", Integer, nullable=False),  # its priority, negated: the lowest comes first
    Column("place", Text, nullable=False),  # what it needs to run, see queue/requirements.py
    Column("attempt", Integer, nullable=False),  # the latest begun; 0 before the first
    Column("epoch", BigInteger, nullable=False),  # counts claims
    Column("owner", Text),
    Column("owner_expires", Double),  # set while running; from then on any worker may take the turn
    Column("cancel_requested", Boolean, nullable=False),
    Column("due_at", Double),  # when it may be taken; set only while queued or waiting
    Column("expires_at", Double),  # must not begin after this; NULL: no limit
    Column("wait_reason", Text),
    Column("faults", Integer, nullable=False, default=0),  # faults of ours in a row that set it aside
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("settled_at", Double),
    Column("status", Text),
    Column("error_kind", Text),
    Column("archived_at", Double),  # when its transcript was archived; stays NULL without an archive
    Column("session_run", Text),  # the session it belongs to; NULL: a single turn
    # Last: SQLite reads through a large column to find what comes after it.
    Column("request", Text),  # NULL: refused, or removed since
    Column("result", Text),
    Index("turns_by_state", "state", "producer"),
    Index("turns_by_owner", "state", "owner_expires"),
    Index("turns_by_age", "created_at", "status", "agent", "host"),  # the rest: for filters that few turns match
    Index(
        "turns_ready",
        "producer",
        "place",
        "rank",
        "created_at",
        "turn_id",
        "due_at",  # so that turns parked for long are skipped without reading them
        sqlite_where=_READY,
        postgresql_where=_READY,
    ),
    Index("turns_by_end", "settled_at"),
    Index("turns_with_details", "settled_at", sqlite_where=_DETAILED, postgresql_where=_DETAILED),
    Index("turns_unarchived", "settled_at", "turn_id", sqlite_where=_UNARCHIVED, postgresql_where=_UNARCHIVED),
)

turn_labels = Table(
    "turn_labels",
    metadata,
    Column("turn_id", Text, ForeignKey("turns.turn_id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Index("turn_labels_by_value", "name", "value"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("turn_id", Text, ForeignKey("turns.turn_id"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("host", Text, nullable=False),
    Column("spool_id", Text, nullable=False),
    Column("seal", Text, nullable=False),
    Column("start_sent", Boolean, nullable=False),  # its host may have been told to start the agent
    Column("session_id", Text),
    Column("resume", Boolean, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("outcome", Text),
    Column("exit_code", Integer),
    Column("cpu_ms", BigInteger),  # of the agent and what it waited for; NULL: unknown
    Column("peak_memory_bytes", BigInteger),  # most that was seen; NULL: nothing was
    Column("usage_source", Text),  # set when it ended, like usage_complete
    Column("usage_complete", Boolean),
    Column("unreachable_since", Double),  # NULL: the last contact with its host succeeded
    Column("lease_s", Integer),  # passed to its host with the agent's start, like stop_grace_s
    Column("stop_grace_s", Double),
    Column("workspace", Text),  # NULL: none was made for it
    Column("agent_version", Text),  # NULL: found neither on its host nor in the agent's output
    Index("attempts_by_end", "ended_at"),
    Index("attempts_by_spool", "spool_id"),
    Index("attempts_open", "host", sqlite_where=_OPEN, postgresql_where=_OPEN),
)

usage = Table(
    "usage",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("model", Text, primary_key=True),  # one source per attempt, so a model is either observed or not
    Column("observed", Boolean, nullable=False),
    *_token_columns(),
    Column("cost_nano", BigInteger),
    ForeignKeyConstraint(["turn_id", "attempt"], ["attempts.turn_id", "attempts.attempt"]),
)

model_totals = Table(
    "model_totals",
    metadata,
    Column("agent", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("observed", Boolean, primary_key=True),
    *_token_columns(),
    Column("cost_nano", BigInteger),  # NULL until something had a price
    Column("unpriced_tokens", BigInteger, nullable=False),
)

outcome_totals = Table(
    "outcome_totals",
    metadata,
    Column("agent", Text, primary_key=True),
    Column("outcome", Text, primary_key=True),
    Column("turns", BigInteger, nullable=False),
)

failure_totals = Table(
    "failure_totals",  # of attempts that did not complete; observed usage only
    metadata,
    Column("agent", Text, primary_key=True),
    Column("agent_version", Text, primary_key=True),  # blank: unknown
    Column("outcome", Text, primary_key=True),
    Column("tokens", BigInteger, nullable=False),  # of all kinds
    Column("cost_nano", BigInteger),  # NULL until something had a price
    Column("booked_at", Double, nullable=False),  # the latest
)

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("workspace", Text, nullable=False),
    Column("locked_by", Text, ForeignKey("turns.turn_id")),
    Column("updated_at", Double, nullable=False),
    Index("sessions_by_lock", "locked_by"),
    Index("sessions_by_use", "updated_at"),
)

session_runs = Table(
    "session_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("turn", Integer, nullable=False),  # number of the open turn, or the last one; 0: none
    Column("cancel_requested", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("settled_at", Double),
    Column("status", Text),
    Column("reason", Text),
    Column("progress", Text, nullable=False),  # JSON, what happened before the open turn
    Column("request", Text),  # NULL: refused, or removed since
    Column("result", Text),
    Index("session_runs_by_end", "settled_at"),
)

waiters = Table(
    "waiters",
    metadata,
    Column("turn_id", Text, primary_key=True),  # or the id of a session of turns
    Column("task_id", Text, primary_key=True),  # of a Celery task still waiting for the result
    Column("follows", Text, primary_key=True),  # digest of the tasks that follow it; blank: none
    Column("settled_at", Double),  # when the result became available: found without reading turns
    Column("leased_until", Double),  # until then, one worker reports to the task, or none does
    Column("sent", Text),  # JSON, following tasks that were sent, if not all could be; NULL: none
    Column("message", Text),  # JSON, what Celery needs to execute the task; NULL: not received yet
    Index("waiters_by_task", "task_id"),
    Index("waiters_unanswered", "settled_at", "turn_id", sqlite_where=_SETTLED, postgresql_where=_SETTLED),
)

hosts = Table(
    "hosts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("labels", Text, primary_key=True),  # a JSON object, its names sorted
    Column("seen_at", Double, nullable=False),  # when a worker last announced it, to the minute
)

budgets = Table(
    "budgets",
    metadata,
    Column("name", Text, primary_key=True),  # of a label, like the value
    Column("value", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("limit_nano", BigInteger, nullable=False),
    Column("reserve_nano", BigInteger, nullable=False),
    Column("period_start", Double, nullable=False),  # of the period of spent_nano
    Column("spent_nano", BigInteger, nullable=False),
    Column("reserved_nano", BigInteger, nullable=False),  # the sum of its reservations
)

budget_reservations = Table(
    "budget_reservations",  # of open attempts
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("value", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("amount_nano", BigInteger, nullable=False),
    ForeignKeyConstraint(
        ["name", "value", "period"], ["budgets.name", "budgets.value", "budgets.period"], ondelete="CASCADE"
    ),
)

events = Table(
    "events",
    metadata,
    Column("turn_id", Text, ForeignKey("turns.turn_id"), primary_key=True),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("lines", LargeBinary, nullable=False),  # joined by newlines
)

attempt_stderr = Table(
    "attempt_stderr",  # of turns that will be archived, until they are
    metadata,
    Column("turn_id", Text, ForeignKey("turns.turn_id"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("text", LargeBinary, nullable=False),  # compressed by gzip
)

clocks = Table(
    "clocks",  # of a SQLite ledger, see clock.py
    metadata,
    Column("boot_id", Text, primary_key=True),  # of one start of its machine
    Column("difference", Double, nullable=False),  # from the seconds since that start to the ledger's time
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("letter_id", Text, primary_key=True),
    Column("received_at", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("task_id", Text),
    Column("queue", Text, nullable=False),
    Column("content_type", Text),
    Column("content_encoding", Text),
    Column("headers", Text, nullable=False),
    Column("body_bytes", BigInteger, nullable=False),
    Column("body", LargeBinary),  # NULL: too long to keep
    Index("dead_letters_by_age", "received_at"),
)
