"""The books: turns, attempts, usage, sessions and events, in SQLite or PostgreSQL.

What they tell are frozen values. Times are Unix seconds, as the callers passed them in. Money is US dollars, None
where no price is known.
"""

from ops.ledger.backlog import Backlog
from ops.ledger.bills import CostKey, CostRow, Spent
from ops.ledger.budgets import Budget, BudgetKey, OverBudget
from ops.ledger.claims import Renewal
from ops.ledger.dead_letters import DeadLetter, DeadLetterBook, DeadLetterRow
from ops.ledger.events import Batch
from ops.ledger.history import TurnRow
from ops.ledger.late_usage import SpoolRow
from ops.ledger.ledger import Ledger
from ops.ledger.overview import RunningTurn, Spending
from ops.ledger.periods import Period
from ops.ledger.presence import Seen
from ops.ledger.records import Attempt, AttemptEnd, Claim, State, Waiter
from ops.ledger.retention import Forgotten
from ops.ledger.session_runs import AskedSession, SessionRun
from ops.ledger.sessions import InUse, SessionRow
from ops.ledger.settlement import Busy, Settled
from ops.ledger.slots import HostBusy
from ops.ledger.submission import Asked
from ops.ledger.totals import FailureTotals, ModelTotals, OutcomeTotals, Totals
from ops.ledger.transcripts import TranscriptSource
from ops.ledger.workspaces import MadeWorkspace

__all__ = [
    "Asked",
    "AskedSession",
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
    "DeadLetterBook",
    "DeadLetterRow",
    "FailureTotals",
    "Forgotten",
    "HostBusy",
    "InUse",
    "Ledger",
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
]
