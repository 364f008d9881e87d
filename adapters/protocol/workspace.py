"""The workspace that a turn brings: what it is made of, how the prompt describes it, what is collected from it."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

MIB = 1024 * 1024
MAX_COLLECTED_BYTES = 16 * MIB  # per turn: it travels in the result


def _path(text: str) -> str:
    """Return the path. Raise ValueError if no file can have it."""
    if "\0" in text:
        raise ValueError("contains a NUL character, which no path can contain")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode (lone surrogate at character {error.start})") from error
    return text


def absolute(path: str) -> str:
    """Return the path, with one slash at its beginning. Raise ValueError if it is not absolute."""
    if not PurePosixPath(_path(path)).is_absolute():
        raise ValueError("must be an absolute path on the host")
    return f"/{path.lstrip('/')}"


def _absolute_here(path: str) -> str:
    if not PurePosixPath(_path(path)).is_absolute():
        raise ValueError("must be an absolute path on the worker's machine")
    return path


def _below_the_workspace(path: str) -> str:
    parts = PurePosixPath(_path(path)).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError("must be a relative path below the workspace, without ..")
    if ".git" in parts:
        raise ValueError("must not lead into a .git directory")
    return str(PurePosixPath(path))


Glob = Annotated[str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_path)]
Globs = Annotated[tuple[Glob, ...], Field(max_length=256)]
Ref = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]{0,255}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HostMount(_Part):
    """Files on the worker's machine that are copied into the workspace."""

    host_path: Annotated[str, AfterValidator(_absolute_here)] = Field(
        description="File or directory on the worker's machine, below one of its `mount_roots`."
    )
    mount_path: Annotated[str, AfterValidator(_below_the_workspace)] | None = Field(
        default=None,
        description="Target path, relative to the workspace. Default: the name of the file or directory.",
    )
    include_glob: Globs = Field(
        default=(), description="Copy only what matches one of these. Default: everything."
    )
    exclude_glob: Globs = Field(default=(), description="Copy nothing that matches one of these.")
    max_bytes: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Refuse the mount, before copying anything, if it is larger than this."
    )
    follow_symlinks: bool = Field(
        default=False,
        description="Copy the targets of symbolic links, if below `mount_roots`. Default: leave links out.",
    )

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.mount_path is None and posixpath.basename(posixpath.normpath(self.host_path)) in ("", "/", ".git"):
            raise ValueError("has no name that can be used; set mount_path")
        return self

    @property
    def place(self) -> str:
        """Its target path, relative to the workspace."""
        return self.mount_path or posixpath.basename(posixpath.normpath(self.host_path))


class Worktree(_Part):
    """A git worktree with a commit checked out, for this turn only."""

    repository: Annotated[str, AfterValidator(absolute)] = Field(
        description="Absolute path of a git repository on the host."
    )
    ref: Ref = Field(default="HEAD", description="Commit to check out: a branch, a tag or a hash.")


class Collect(_Part):
    """Parts of the workspace to return in the result once the agent has ended."""

    patch: bool = Field(default=False, description="Return all changes, as a patch for `git apply`.")
    files: Globs = Field(default=(), description="Return the files that match one of these, in their final state.")
    max_bytes: Annotated[int, Field(ge=1, le=MAX_COLLECTED_BYTES)] = Field(
        default=MIB,
        description="Limit on the total size; the patch comes first, and anything beyond the limit is left out.",
    )


Mounts = Annotated[tuple[HostMount, ...], Field(max_length=64)]


def distinct(mounts: tuple[HostMount, ...]) -> tuple[HostMount, ...]:
    """Return the mounts. Raise ValueError if one lies within another."""
    places = [PurePosixPath(mount.place) for mount in mounts]
    for index, place in enumerate(places):
        for other in places[:index]:
            if place.is_relative_to(other) or other.is_relative_to(place):
                raise ValueError(f"two of them go to the same place: {other} and {place}; set another mount_path")
    return mounts


def was_made(workspace: str) -> bool:
    """Return whether a path looks like a workspace made for a turn."""
    path = PurePosixPath(workspace)
    return path.name == "workspace" and len(path.parts) > 3


def matcher(globs: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate for relative paths that match one of these, starting at any of their directories.

    `*` and `?` match a slash, too. A glob that matches a directory matches everything in it.
    """
    if not globs:
        return lambda _: False
    translated = "|".join(fnmatch.translate(form) for glob in globs for form in _forms(glob.rstrip("/")))
    pattern = re.compile(translated)
    return lambda path: pattern.match(path) is not None


def _forms(glob: str) -> Iterable[str]:
    """Return the patterns by which a path can match a glob."""
    return (glob, f"*/{glob}", f"{glob}/*", f"*/{glob}/*")


def prompt_section(
    workspace: str, mounts: Sequence[HostMount], worktree: Worktree | None, collect: Collect | None
) -> str:
    """Return the part of the prompt that describes the workspace made for the turn."""
    lines = ["# Workspace", "", f"Your working directory, {workspace}, was made for this task."]
    if worktree is not None:
        lines.append(f"It is a git worktree of {worktree.repository} at {worktree.ref}, with a detached HEAD.")
    if mounts:
        lines += ["It contains copies; changes to them do not affect the originals:", ""]
        lines += [f"- {mount.place}: from {mount.host_path}{_filtered(mount)}" for mount in mounts]
        lines.append("")
    lines.append(_kept(collect))
    return "\n".join(lines)


def _filtered(mount: HostMount) -> str:
    words = [f"only {', '.join(mount.include_glob)}"] if mount.include_glob else []
    words += [f"without {', '.join(mount.exclude_glob)}"] if mount.exclude_glob else []
    return f" ({'; '.join(words)})" if words else ""


def _kept(collect: Collect | None) -> str:
    kept = ["all changes, as a patch"] if collect is not None and collect.patch else []
    kept += [f"files that match {', '.join(collect.files)}"] if collect is not None and collect.files else []
    if not kept:
        return "Leave your results in it."
    return f"When you finish, these are collected from it: {'; '.join(kept)}."
