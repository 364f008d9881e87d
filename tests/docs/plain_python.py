"""A Python that has nothing but one package and what that needs: what a producer elsewhere has installed.

Nothing is downloaded: what is installed here is linked there, and nothing else.
"""

from __future__ import annotations

import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def plain_python(folder: Path, needs: str) -> Path:
    """Make a virtual environment with what fulfils a requirement, as `celery[redis]`; return its interpreter."""
    environment = venv.EnvBuilder(symlinks=True)
    environment.create(folder)
    context = environment.ensure_directories(folder)
    (site,) = folder.glob("lib/python3*/site-packages")
    for each in {found.name: found for found in _closure(Requirement(needs), set())}.values():
        for part in {file.parts[0] for file in each.files or ()} - {"..", "__pycache__"}:
            (site / part).symlink_to(Path(str(each.locate_file(part))))
    return Path(context.env_exe)


def _closure(needed: Requirement, seen: set[str]) -> Iterator[Distribution]:
    if str(needed) in seen:
        return
    seen.add(str(needed))
    found = distribution(needed.name)
    yield found
    for text in found.requires or ():
        further = Requirement(text)
        extras = ({"extra": extra} for extra in ("", *needed.extras))
        if further.marker is None or any(map(further.marker.evaluate, extras)):
            try:
                yield from _closure(further, seen)
            except PackageNotFoundError as missing:
                raise AssertionError(f"{needed.name} needs {text}, which is not installed here") from missing
