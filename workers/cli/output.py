"""Printing of results and tables, for people or as one JSON document."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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

_UNLIMITED = 100_000  # columns: keeps a row wider than the terminal on one line, to copy or cut
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
    used = f" · {number(_total(result.usage))} tokens · {money(result.cost_usd)}" if known else ""
    line = f"{'✓' if done else '✗'} {result.status}: {result.reason} · {len(result.turns)} turns{used}"
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


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = ()
) -> None:
    """Print a table on stdout, one line per row."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    Console(width=_UNLIMITED).print(table)


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
        parts += [f"{number(_total(result.usage))} tokens", money(result.cost_usd)]
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
        parts.append(f"a patch of {number(len(collected.patch.splitlines()))} lines")
    if collected.files:
        parts.append(f"{number(len(collected.files))} files")
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
