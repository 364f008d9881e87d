"""The command `replay`: computes a result from a recording, without running anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from adapters.contract import Exit
from adapters.protocol.result import TurnResult
from adapters.turn_state import TurnState, fold
from adapters.usage import NO_USAGE
from ops.settings import load_settings
from remote import spool
from workers.agents.registry import build_registry
from workers.cli.options import json_option
from workers.cli.output import print_result
from workers.results import finished

_EXISTING = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_CHUNK = 1000  # lines folded at a time, so that a recording of any size fits in memory


@click.command()
@click.option("--agent", required=True, metavar="NAME", help="Agent that made the recording, such as claude-code.")
@click.argument("file", type=_EXISTING)
@click.option("--exit-code", type=int, default=0, show_default=True, metavar="N", help="Exit status of the agent.")
@click.option("--resumed", is_flag=True, help="The agent resumed an earlier session.")
@click.option(
    "--session-file",
    type=_EXISTING,
    multiple=True,
    metavar="FILE",
    help="File with the lines that the agent added to a session file (repeatable).",
)
@click.option("--stderr", type=_EXISTING, metavar="FILE", help="The agent's stderr.")
@json_option
def replay(
    agent: str,
    file: Path,
    exit_code: int,
    resumed: bool,
    session_file: tuple[Path, ...],
    stderr: Path | None,
    as_json: bool,
) -> int:
    """Compute a result from a recording.

    FILE is the output of an agent. Runs nothing and books nothing.
    """
    adapter = build_registry(load_settings()).get(agent)
    state, parser = TurnState(resumed=resumed), adapter.parser()
    with file.open("rb") as recording:
        for lines in _chunks(recording):
            fold(parser, state, lines)
    said = stderr.read_text(errors="replace") if stderr else ""
    judged = adapter.judgement(state, Exit(exit_code, said))
    # A recording does not say whether structured output was requested; show any there is.
    state.expects_output = True
    records = [line for path in session_file for line in path.read_bytes().splitlines()]
    exact = adapter.session_usage(records, state) if judged.read_session_files and records else NO_USAGE
    usage = judged.usage_with(exact)
    result: TurnResult = finished(
        file.stem,
        state,
        judged.error,
        usages=[usage],
        host=None,
        agent_version=state.agent_version,
        attempts=1,
        end=spool.Exit(exit_code, "exit"),
    )
    return print_result(result, as_json=as_json)


def _chunks(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    for line in lines:
        if stripped := line.rstrip(b"\r\n"):
            chunk.append(stripped)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    yield chunk
