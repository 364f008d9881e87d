"""The ledger: turns, attempts, usage, sessions and events, in SQLite or PostgreSQL.

Returned values are frozen. Times are Unix seconds by the ledger's clock. Money is US dollars, None where the
price is unknown.
"""

from ops.ledger.accounting.budgets import Budget, BudgetKey, OverBudget
from ops.ledger.accounting.late_usage import SpoolRow
from ops.ledger.accounting.periods import Period
from ops.ledger.clock import OFF_S, LedgerClock, since_boot
from ops.ledger.dead_letters import DeadLetter, DeadLetterRow
from ops.ledger.events import Batch
from ops.ledger.ledger import DeadLetterStore, Ledger
from ops.ledger.models import Asked, Attempt, AttemptEnd, Claim, State, Waiter
from ops.ledger.queue.claims import Renewal
from ops.ledger.queue.host_slots import HostBusy
from ops.ledger.queue.known_hosts import Seen
from ops.ledger.queue.session_runs import SessionRun
from ops.ledger.queue.settlement import Busy, Settled
from ops.ledger.reports.backlog import Backlog
from ops.ledger.reports.costs import CostKey, CostRow, Spent
from ops.ledger.reports.live import HostLoad, RunningTurn, Spending
from ops.ledger.reports.totals import FailureTotals, ModelTotals, OutcomeTotals, Totals
from ops.ledger.reports.turns import TurnRow
from ops.ledger.retention import Forgotten
from ops.ledger.sessions import InUse, SessionRow
from ops.ledger.transcripts import TranscriptSource
from ops.ledger.workspaces import MadeWorkspace

__all__ = [
    "OFF_S",
    "Asked",
    "Attempt",
    "AttemptEnd",
    "Backlog",
    "Batch",
    "Budget",
    "BudgetKey",
    "Busy",
    "Claim",
    "CostKey",
    "CostRow",
    "DeadLetter",
    "DeadLetterRow",
    "DeadLetterStore",
    "FailureTotals",
    "Forgotten",
    "HostBusy",
    "HostLoad",
    "InUse",
    "Ledger",
    "LedgerClock",
    "MadeWorkspace",
    "ModelTotals",
    "OutcomeTotals",
    "OverBudget",
    "Period",
    "Renewal",
    "RunningTurn",
    "Seen",
    "SessionRow",
    "SessionRun",
    "Settled",
    "Spending",
    "Spent",
    "SpoolRow",
    "State",
    "Totals",
    "TranscriptSource",
    "TurnRow",
    "Waiter",
    "since_boot",
]
