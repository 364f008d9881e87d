"""Run the demo. Exit with 0 only if all turns complete and the ledger has booked exactly what the API billed."""

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
    """One turn of the demo. Its prompt contains the keyword of its script."""

    title: str
    prompt: str


TURNS = (
    Turn("tools", "The greeting in greet.py is wrong. Find out why, and write the correct one to greeting.txt."),
    Turn("a subagent on another model", "Do a survey of this directory: have a subagent count its files."),
    Turn("a rate limit that passes", "In one sentence: why does an API limit its clients' request rate?"),
)


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.demo", description=__doc__)
    parser.add_argument(
        "--live", action="store_true", help="use your own claude and its login instead of a scripted model"
    )
    live = parser.parse_args().live
    try:
        return _play_live() if live else _play_scripted()
    except KeyboardInterrupt:
        click.echo("\ninterrupted; everything that was started has been stopped", err=True)
        return 130
    except RuntimeError as error:
        click.echo(f"demo: {error}", err=True)
        return 1


def _play_scripted() -> int:
    claude = claude_binary()
    if claude is None:
        raise RuntimeError(
            "Claude Code CLI not found: the claude-agent-sdk wheel for this machine does not include it"
        )
    with Stage() as stage, ModelApi(*load_scripts(SCRIPTS).scripts) as api:
        stage.equip(claude_environment(api.base_url, stage.home, max_retries=5), claude)
        _headline(
            f"Three turns of the real {_version(claude)} against a scripted model: no key, no cost, no network"
        )
        completed = _play(stage, "--model", "claude-sonnet-4-5")
        _where_next()
        return 0 if _agree(_bill(api), _books(stage)) and completed else 1


def _play_live() -> int:
    claude = _own_claude()
    with Stage() as stage:
        stage.equip(os.environ, claude)
        _headline(f"Three turns of your own {_version(claude)} with its login: this costs a few cents")
        tools = "allowed_tools=Bash,Read,Write,Agent"
        completed = _play(stage, "-o", "permission_mode=acceptEdits", "-o", tools, "--max-cost-usd", "1")
        _where_next()
        return 0 if completed else 1


def _play(stage: Stage, *options: str) -> bool:
    """Run the turns until one fails, then show the ledger; return True if all turns completed."""
    _command("up", "&")
    stage.start_up()
    click.echo("broker and worker are ready")
    completed = all(_run(stage, number, turn, options) for number, turn in enumerate(TURNS, 1))
    _heading("The ledger")
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
    """Return the user's Claude Code. Raises RuntimeError if it is missing or not logged in."""
    found = shutil.which("claude")
    claude = Path(found) if found else claude_binary()
    if claude is None:
        raise RuntimeError("LIVE=1 needs Claude Code: `claude` is not on your PATH")
    if subprocess.run([claude, "auth", "status"], check=False, capture_output=True).returncode != 0:
        login = shlex.join([str(claude), "auth", "login"])
        raise RuntimeError(f"LIVE=1 needs a login: run `{login}`, or set ANTHROPIC_API_KEY")
    return claude


def _version(claude: Path) -> str:
    said = subprocess.run([claude, "--version"], check=False, capture_output=True, text=True).stdout
    return f"Claude Code {said.split()[0]}" if said.split() else "Claude Code"


def _bill(api: ModelApi) -> Counter[Line]:
    """Return what the API has billed, over all clients."""
    lines: Counter[Line] = Counter()
    for bill in api.bills().values():
        for model, used in bill.by_model.items():
            counts = (used.input, used.output, used.cache_read, used.cache_creation)
            lines.update({(model, kind): count for kind, count in zip(KINDS, counts, strict=True)})
    return lines


def _books(stage: Stage) -> Counter[Line]:
    """Return what the ledger has booked."""
    rows = orjson.loads(stage.output("cost", "--by", "model", "--json"))
    return Counter({(row["key"], kind): row["spent"]["tokens"][kind] for row in rows for kind in KINDS})


def _agree(billed: Counter[Line], booked: Counter[Line]) -> bool:
    """Print the comparison, with the verdict as the last line of the demo."""
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
    _heading("Next steps")
    runturn = Path(sys.executable).with_name("runturn")
    program = shlex.quote(str(runturn.relative_to(Path.cwd()) if runturn.is_relative_to(Path.cwd()) else runturn))
    if shutil.which("claude") is None and (claude := claude_binary()) is not None:
        click.echo(f"  export RUNTURN_AGENT__COMMAND={shlex.quote(str(claude))}   # claude is not on your PATH\n")
    for command, meaning in (
        (f"{program} doctor", "what a turn needs, what is missing, and how to fix it"),
        (f"{program} up", "your own broker and worker, in one terminal"),
        (f'{program} run "what is in here?"', "a turn with your own login, in another terminal"),
        (f"{program} history", "its outcome; see also cost, watch and result"),
        ("make demo LIVE=1", "these three turns with your own login"),
    ):
        click.echo(f"  {command:<42} {meaning}")
    click.echo("\nREADME.md lists the promises, their limits, and the other documents.")


def _headline(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _heading(text: str) -> None:
    click.secho(f"\n── {text} ".ljust(100, "─"), dim=True)


def _command(*arguments: str) -> None:
    words = ["runturn", *(word if word == "&" else shlex.quote(word) for word in arguments)]
    click.secho(f"$ {' '.join(words)}", bold=True)


if __name__ == "__main__":
    sys.exit(main())
