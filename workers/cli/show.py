"""How results and tables are printed: for people, or as one JSON document."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import orjson
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adapters.errors import KINDS, RequestError
from adapters.result import Status, TurnResult

COMPLETED, FAILED, BAD_INPUT, NO_SERVICE, INTERRUPTED = 0, 1, 2, 3, 130

_STYLES = {Status.COMPLETED: "green", Status.FAILED: "red", Status.CANCELLED: "yellow"}


def print_json(document: BaseModel | Mapping[str, object] | Sequence[object]) -> None:
    """One JSON document on stdout, and nothing else."""
    value = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def print_result(result: TurnResult, *, as_json: bool) -> int:
    """Print a turn's result; returns the exit status that goes with it."""
    if as_json:
        print_json(result)
    else:
        _print_for_people(result)
    return exit_status(result)


def exit_status(result: TurnResult) -> int:
    """0 completed, 2 bad input, 1 any other end."""
    if result.status is Status.COMPLETED:
        return COMPLETED
    kind = KINDS.get(result.error.kind) if result.error else None
    return BAD_INPUT if kind is not None and issubclass(kind, RequestError) else FAILED


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A table on stdout."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


def money(cost_usd: float | None) -> str:
    """A cost for people; an unknown one is never $0."""
    return "unpriced" if cost_usd is None else f"${cost_usd:.4f}"


def tokens(count: int) -> str:
    """A count for people."""
    return f"{count:,}"


def _print_for_people(result: TurnResult) -> None:
    console = Console(highlight=False)
    if result.text:
        console.print(Text(result.text))
        console.print()
    console.print(Text(result.status, style=_STYLES[result.status]), Text(_summary(result)))
    if result.error:
        again = " (retryable)" if result.error.retryable else ""
        console.print(Text(f"{result.error.kind}{again}: {result.error.message}", style="red"))


def _summary(result: TurnResult) -> str:
    used = result.usage
    parts = [
        f"turn {result.turn_id}",
        f"{tokens(used.input_tokens)} in, {tokens(used.output_tokens)} out, "
        f"{tokens(used.cache_read_input_tokens)} cache read, "
        f"{tokens(used.cache_creation_input_tokens)} cache written",
        f"{money(result.cost_usd)} ({result.usage_source})",
    ]
    if result.duration_ms is not None:
        parts.append(f"{result.duration_ms / 1000:.1f} s")
    if result.session_id:
        parts.append(f"session {result.session_id}")
    return " · ".join(parts)
