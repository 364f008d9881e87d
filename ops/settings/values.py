"""Types of settings, each with its validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from adapters.protocol.request import Name
from adapters.toolkit.options import printable
from adapters.versions import is_version


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _is_absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must be an absolute path on the host")
    return path


def _is_version(text: str) -> str:
    if not is_version(text):
        raise ValueError("must be one version, such as 1.0.128")
    return text


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("names a queue twice")
    return names


def _is_no_root(text: str) -> str:
    path = text.removesuffix(":rw")
    if path in ("/", "~/") or ".." in path.split("/"):
        raise ValueError("must lead to something below / or ~/, without `..`")
    return text


Milliseconds = Annotated[int, Field(ge=1)]
Printable = Annotated[str, Field(min_length=1), AfterValidator(printable)]
Version = Annotated[str, AfterValidator(_is_version)]
LocalPath = Annotated[Path, AfterValidator(_absolute)]  # on this machine
HostPath = Annotated[Printable, AfterValidator(_is_absolute)]  # on the host that agents run on
SandboxPath = Annotated[
    str, Field(pattern=r"^(~/|/)[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$"), AfterValidator(_is_no_root)
]
QueueNames = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_distinct)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lambda name: str(name).lower())]
