"""`python -m tests.fakes.model_api SCRIPTS.json`: serve scripts in the foreground until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from pydantic import ValidationError

from .script import load_scripts
from .server import ModelApi


def main() -> int:
    """Serve the scripts; print the base URL on stdout once connections are accepted."""
    options = _parse()
    try:
        book = load_scripts(options.scripts)
    except (OSError, ValidationError) as exc:
        print(f"{options.scripts}: {exc}", file=sys.stderr)
        return 2
    # Blocked before the server's thread starts, so that the signals wait for sigwait() below.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with ModelApi(*book.scripts, port=options.port) as api:
            if options.port_file is not None:
                _publish_port(options.port_file, api.base_url)
            print(api.base_url, flush=True)
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except OSError as exc:
        print(f"cannot serve on port {options.port}: {exc}", file=sys.stderr)
        return 1
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.model_api", description=__doc__)
    parser.add_argument("scripts", type=Path, help="JSON file of scripts, such as demo.json beside this module")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) lets the system choose")
    parser.add_argument("--port-file", type=Path, help="file to write the port to")
    return parser.parse_args()


def _publish_port(path: Path, base_url: str) -> None:
    """Write the port in one step: who waits for the file never reads half of it."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(base_url.rpartition(":")[2] + "\n")
    unfinished.replace(path)


if __name__ == "__main__":
    sys.exit(main())
