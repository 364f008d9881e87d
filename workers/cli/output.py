"""Printing of results and tables, for people or as one JSON document."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import click
import orjson
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adapters.errors import KINDS, RequestError
from adapters.markdown import Transcript
from adapters.protocol.plan import Plan
from adapters.protocol.result import Collected, Status, TokenCounts, TurnResult
from adapters.protocol.session_result import SessionResult, SessionStatus
from adapters.usage import UsageSource
from workers.cli.exit_codes import BAD_INPUT, COMPLETED, FAILED

STYLES = {"completed": "green", "failed": "red", "cancelled": "yellow"}  # by status

UNLIMITED = 100_000  # columns: keeps a row wider than the terminal on one line, to copy or cut
_GAP = 2  # columns of a table
_SHORT_ID = 8  # characters, at least
_MARKS = {Status.COMPLETED: "✓", Status.FAILED: "✗", Status.CANCELLED: "✗"}
_SOURCES = {
    UsageSource.SESSION_FILES: "from the agent's session files",
    UsageSource.STREAM: "an estimate, not in the ledger",
}
# An agent's output must not control the reader's terminal.
_STEERING = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}")


def print_json(document: BaseModel | Mapping[str, object] | Sequence[object]) -> None:
    """Print one JSON document on stdout, and nothing else."""
    value = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def print_result(result: TurnResult, *, as_json: bool) -> int:
    """Print a turn's result and return the matching exit status."""
    if as_json:
        print_json(result)
    else:
        _print_for_people(result)
    return exit_status(result)


def print_session(result: SessionResult) -> None:
    """Print the result of a session of turns for people."""
    console = Console(highlight=False, soft_wrap=True)
    if result.text:
        console.print(Text(printable(result.text)), end="\n\n")
    done = result.status is SessionStatus.DONE
    known = result.usage_source is not UsageSource.NONE
    used = f" · {counted(_total(result.usage), 'token')} · {money(result.cost_usd)}" if known else ""
    line = f"{'✓' if done else '✗'} {result.status}: {result.reason} · {counted(len(result.turns), 'turn')}{used}"
    console.print(Text(line, style="green" if done else "red"))
    if result.error:
        console.print(Text(printable(f"  {result.error.kind}: {result.error.message}"), style="red"))
    for check in result.checks:
        how = "passed" if check.passed else "timed out" if check.exit is None else f"exit {check.exit}"
        console.print(Text(printable(f"  {check.command}: {how}"), style="dim"))
    last = f" · last {result.turns[-1]}" if result.turns else ""
    console.print(Text(f"  session of turns {result.run_id}{last}", style="dim"))


def exit_status(result: TurnResult) -> int:
    """Return 0 if completed, 2 for bad input, else 1."""
    if result.status is Status.COMPLETED:
        return COMPLETED
    kind = KINDS.get(result.error.kind) if result.error else None
    return BAD_INPUT if kind is not None and issubclass(kind, RequestError) else FAILED


def print_events(events: Iterable[Mapping[str, Any]], form: str) -> None:
    """Print a turn's events as they arrive, as `markdown` or as `jsonl`, one JSON object per line."""
    transcript = Transcript()
    for event in events:
        if form == "jsonl":
            sys.stdout.buffer.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
        elif text := transcript.text(event):
            sys.stdout.write(f"{printable(text)}\n\n")
        sys.stdout.flush()


class Column(NamedTuple):
    """Column of a table."""

    name: str
    right: bool = False
    spare: int = 0  # 1, 2, …: in this order, columns are left out of a table that is too wide; 0: never
    least: int = 0  # width to which it may be cut; 0: never


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], nothing: str) -> None:
    """Print a table on stdout, one line per row; if there is none, say `nothing` on stderr."""
    if not (cells := list(rows)):
        click.echo(nothing, err=True)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED
    Console(width=UNLIMITED).print(table(columns, cells, width))


def table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], width: int) -> Table:
    """Return a table. If it is wider than `width`, leave out empty and spare columns, then cut the last ones."""
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    filled = [max((row[at].cell_len for row in cells), default=0) for at in range(len(columns))]
    widths = {at: max(len(column.name), filled[at]) for at, column in enumerate(columns)}
    least = {at: min(widths[at], column.least or widths[at]) for at, column in enumerate(columns)}
    for at in (at for at in range(len(columns)) if not filled[at]):
        if _width(widths.values()) > width:
            del widths[at]
    for at in sorted((at for at in widths if columns[at].spare), key=lambda at: columns[at].spare):
        if _width(least[each] for each in widths) > width:
            del widths[at]
    for at in reversed(widths):
        widths[at] = max(least[at], widths[at] - max(0, _width(widths.values()) - width))
    fitted = Table(box=None, pad_edge=False, header_style="bold")
    for at, room in widths.items():
        side: Literal["left", "right"] = "right" if columns[at].right else "left"
        fitted.add_column(columns[at].name, justify=side, width=room, no_wrap=True, overflow="ellipsis")
    for row in cells:
        fitted.add_row(*(row[at] for at in widths))
    return fitted


def _width(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + _GAP * (len(each) - 1)


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return the beginnings of these ids that tell them apart; a turn of a session keeps its number."""
    parts = {each: each.rpartition(".") for each in ids}
    parts = {each: part if part[2].isdecimal() else (each, "", "") for each, part in parts.items()}
    heads = sorted({head for head, _, _ in parts.values()})
    length = max([_SHORT_ID, *(_shared(*two) + 1 for two in pairwise(heads))])
    return {each: head[:length] + dot + number for each, (head, dot, number) in parts.items()}


def _shared(one: str, other: str) -> int:
    """Return the length of the beginning that both have."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def labelled(labels: Mapping[str, str]) -> str:
    """Format labels for people."""
    return printable(" ".join(f"{name}={value}" for name, value in labels.items()))


def money(cost_usd: float | None) -> str:
    """Format a cost for people; an unknown one is never $0."""
    return "unpriced" if cost_usd is None else f"${cost_usd:.4f}"


def print_mark(*, ok: bool, warning: bool = False) -> None:
    """Print the mark that starts the line of a check."""
    mark, colour = ("✗", "red") if not ok else ("!", "yellow") if warning else ("✓", "green")
    click.secho(mark, fg=colour, nl=False)


def number(count: int) -> str:
    """Format a count for people."""
    return f"{count:,}"


def counted(count: int, noun: str) -> str:
    """Format a count of things for people."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Replace the control characters in an agent's text, except newlines and tabs."""
    return text.translate(_STEERING)


def _print_for_people(result: TurnResult) -> None:
    console = Console(highlight=False, soft_wrap=True)
    repeated = result.error is not None and result.text in result.error.message
    text = _plan(result.plan) if result.plan else result.text
    if text and not repeated:
        console.print(Text(printable(text)), end="\n\n")
    style = STYLES[result.status]
    summary = _summary(result)
    console.print(Text.assemble((f"{_MARKS[result.status]} {result.status}", style), summary and f" {summary}"))
    if result.error:
        console.print(Text(printable(f"  {result.error.kind}: {result.error.message}"), style=style))
    for line in _details(result):
        console.print(Text(f"  {line}", style="dim"))


def _plan(plan: Plan) -> str:
    """Return a plan as text: each task with its dependencies and description."""
    lines = []
    for task in plan.tasks:
        after = f", after {', '.join(task.dependencies)}" if task.dependencies else ""
        lines.append(f"{task.id}: {task.title} ({task.complexity}{after})")
        lines += [f"    {line}" for line in task.description.splitlines()]
    return "\n".join(lines)


def _summary(result: TurnResult) -> str:
    parts = []
    if result.duration_ms is not None:
        parts.append(f"in {result.duration_ms / 1000:.1f} s")
    if result.attempts > 1:
        parts.append(f"after {result.attempts} attempts")
    if result.usage_source is not UsageSource.NONE:
        parts += [counted(_total(result.usage), "token"), money(result.cost_usd)]
    return " · ".join(parts)


def _details(result: TurnResult) -> Iterator[str]:
    for model, used in result.usage.by_model.items():
        yield f"{model}: {_kinds(used)} · {money(used.cost_usd)}"
    if source := _SOURCES.get(result.usage_source):
        yield f"tokens: {source}"
    if not result.usage_complete:
        yield "the usage is incomplete: the API may have billed more than was recorded"
    if result.collected is not None:
        yield f"collected: {_collected(result.collected)}"
    session = f" · session {result.session_id}" if result.session_id else ""
    yield f"turn {result.turn_id}{session}"


def _collected(collected: Collected) -> str:
    parts = []
    if collected.patch is not None:
        parts.append(f"a patch of {counted(len(collected.patch.splitlines()), 'line')}")
    if collected.files:
        parts.append(counted(len(collected.files), "file"))
    if collected.truncated:
        parts.append("truncated")
    if collected.problem:
        parts.append(printable(collected.problem))
    return f"{', '.join(parts) or 'nothing'}; see --json"


def _kinds(used: TokenCounts) -> str:
    return (
        f"{number(used.input_tokens)} in, {number(used.output_tokens)} out, "
        f"{number(used.cache_read_input_tokens)} cache read, "
        f"{number(used.cache_creation_input_tokens)} cache written"
    )


def _total(used: TokenCounts) -> int:
    return used.input_tokens + used.output_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens
