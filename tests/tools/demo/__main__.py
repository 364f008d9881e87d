"""Run the demo; exit status 0 only if all turns completed and the ledger has booked what the API has billed."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
import orjson

from tests.fakes.model_api import ModelApi, load_scripts
from tests.fakes.model_api.cli import claude_binary, claude_environment
from tests.support.places import TESTS
from tests.tools.demo.stage import Stage

KINDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
Line = tuple[str, str]  # of a bill: a model and one of KINDS

SCRIPTS = TESTS / "fakes" / "model_api" / "demo.json"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the demo. Its prompt holds the keyword of its script."""

    title: str
    prompt: str


TURNS = (
    Turn("tools", "The greeting of greet.py is wrong. Find out why, and write the right one to greeting.txt."),
    Turn("a subagent, on another model", "Make a survey of this directory: let a subagent count its files."),
    Turn("a rate limit that passes", "In one sentence: why does an API limit the rate of its clients?"),
)


def main() -> int:
    """Play it."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.demo", description=__doc__)
    parser.add_argument("--live", action="store_true", help="your own claude and its login, not a scripted model")
    live = parser.parse_args().live
    try:
        return _play_live() if live else _play_scripted()
    except KeyboardInterrupt:
        click.echo("\ninterrupted; everything that was started has ended", err=True)
        return 130
    except RuntimeError as error:
        click.echo(f"demo: {error}", err=True)
        return 1


def _play_scripted() -> int:
    claude = claude_binary()
    if claude is None:
        raise RuntimeError(
            "there is no Claude Code CLI: the wheel of claude-agent-sdk carries none for this machine"
        )
    with Stage() as stage, ModelApi(*load_scripts(SCRIPTS).scripts) as api:
        stage.equip(claude_environment(api.base_url, stage.home, max_retries=5), claude)
        _headline(f"Three turns of the real {_version(claude)}, on a scripted model: no key, no cost, no network")
        completed = _play(stage, "--model", "claude-sonnet-4-5")
        _where_next()
        return 0 if _agree(_bill(api), _books(stage)) and completed else 1


def _play_live() -> int:
    claude = _own_claude()
    with Stage() as stage:
        stage.equip(os.environ, claude)
        _headline(f"Three turns of your own {_version(claude)}, with its login: this costs a few cents")
        tools = "allowed_tools=Bash,Read,Write,Agent"
        completed = _play(stage, "-o", "permission_mode=acceptEdits", "-o", tools, "--max-cost-usd", "1")
        _where_next()
        return 0 if completed else 1


def _play(stage: Stage, *options: str) -> bool:
    """The turns, up to one that fails, then the books; returns whether all turns completed."""
    _command("up", "&")
    stage.start_up()
    click.echo("broker and worker are ready")
    completed = all(_run(stage, number, turn, options) for number, turn in enumerate(TURNS, 1))
    _heading("The books")
    for arguments in (("history",), ("cost", "--by", "model")):
        _command(*arguments)
        stage.run(*arguments)
    return completed


def _run(stage: Stage, number: int, turn: Turn, options: tuple[str, ...]) -> bool:
    _heading(f"{number} of {len(TURNS)}: {turn.title}")
    arguments = ("run", turn.prompt, *options, "--label", f"demo={number}")
    _command(*arguments)
    return stage.run(*arguments) == 0


def _own_claude() -> Path:
    """The user's Claude Code, logged in. Raises RuntimeError saying what is missing."""
    found = shutil.which("claude")
    claude = Path(found) if found else claude_binary()
    if claude is None:
        raise RuntimeError("LIVE=1 needs Claude Code: there is no `claude` in your PATH")
    if subprocess.run([claude, "auth", "status"], check=False, capture_output=True).returncode != 0:
        login = shlex.join([str(claude), "auth", "login"])
        raise RuntimeError(f"LIVE=1 needs a login: run `{login}`, or set ANTHROPIC_API_KEY")
    return claude


def _version(claude: Path) -> str:
    said = subprocess.run([claude, "--version"], check=False, capture_output=True, text=True).stdout
    return f"Claude Code {said.split()[0]}" if said.split() else "Claude Code"


def _bill(api: ModelApi) -> Counter[Line]:
    """What the API has billed, whoever asked."""
    lines: Counter[Line] = Counter()
    for bill in api.bills().values():
        for model, used in bill.by_model.items():
            counts = (used.input, used.output, used.cache_read, used.cache_creation)
            lines.update({(model, kind): count for kind, count in zip(KINDS, counts, strict=True)})
    return lines


def _books(stage: Stage) -> Counter[Line]:
    """What the ledger has booked."""
    rows = orjson.loads(stage.output("cost", "--by", "model", "--json"))
    return Counter({(row["key"], kind): row["spent"]["tokens"][kind] for row in rows for kind in KINDS})


def _agree(billed: Counter[Line], booked: Counter[Line]) -> bool:
    """Print the comparison; its last line is the last word of the demo."""
    _heading("The bill")
    for line in sorted(billed.keys() | booked.keys(), key=lambda line: (line[0], KINDS.index(line[1]))):
        model, kind = line
        sign = "=" if billed[line] == booked[line] else click.style("≠", fg="red", bold=True)
        click.echo(f"{model:<20} {kind:<28} {billed[line]:>7,} billed {sign} {booked[line]:>7,} booked")
    agreed = billed == booked
    sign = "=" if agreed else "≠"
    verdict = f"billed {billed.total():,} tokens {sign} booked {booked.total():,} tokens"
    click.secho(f"\n{verdict}", fg="green" if agreed else "red", bold=True)
    return agreed


def _where_next() -> None:
    _heading("Where to look next")
    runturn = Path(sys.executable).with_name("runturn")
    program = shlex.quote(str(runturn.relative_to(Path.cwd()) if runturn.is_relative_to(Path.cwd()) else runturn))
    if shutil.which("claude") is None and (claude := claude_binary()) is not None:
        click.echo(
            f"  export RUNTURN_AGENT__COMMAND={shlex.quote(str(claude))}   # there is no claude in your PATH\n"
        )
    for command, meaning in (
        (f"{program} doctor", "what a turn needs, and what is missing here"),
        (f"{program} up", "a broker and a worker of your own, in one terminal"),
        (f'{program} run "what is in here?"', "a turn with your own login, in another"),
        (f"{program} history", "what became of it; see also cost, watch, result"),
        ("make demo LIVE=1", "these three turns with your own login"),
    ):
        click.echo(f"  {command:<42} {meaning}")
    click.echo("\nREADME.md has the promises and their limits, and says where to read on.")


def _headline(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _heading(text: str) -> None:
    click.secho(f"\n── {text} ".ljust(100, "─"), dim=True)


def _command(*arguments: str) -> None:
    words = ["runturn", *(word if word == "&" else shlex.quote(word) for word in arguments)]
    click.secho(f"$ {' '.join(words)}", bold=True)


if __name__ == "__main__":
    sys.exit(main())
