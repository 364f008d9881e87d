"""Operations of the ledger: functions of a connection, each run in its own transaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from ops.ledger.database import Database

P = ParamSpec("P")
T = TypeVar("T")


class Repository:
    """A group of related operations. All raise LedgerUnavailable."""

    def __init__(self, database: Database) -> None:
        self.database = database


Operation = Callable[Concatenate[Connection, P], T]
Method = Callable[Concatenate[Repository, P], T]


def writes(operation: Operation[P, T]) -> Method[P, T]:
    """Return the method that runs an operation in a transaction that writes."""

    @wraps(operation)
    def method(repository: Repository, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with repository.database.write() as connection:
            return operation(connection, *args, **kwargs)

    return method


def reads(operation: Operation[P, T]) -> Method[P, T]:
    """Return the method that runs an operation in a transaction that only reads."""

    @wraps(operation)
    def method(repository: Repository, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with repository.database.read() as connection:
            return operation(connection, *args, **kwargs)

    return method
