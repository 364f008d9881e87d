"""Registry of agents: those included in runturn and those of other packages.

Every agent is an entry point: a name and the location of its factory (`adapters.contract.AdapterFactory`).
Third-party packages only need to declare theirs in the group `runturn.adapters`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, version
from types import MappingProxyType
from typing import TYPE_CHECKING

from adapters.contract import Adapter, AdapterFactory, AgentConfig
from adapters.errors import InvalidRequest, TurnError
from adapters.protocol.request import AUTO, TurnRequest
from adapters.routing import check_able
from adapters.validated_adapter import ValidatedAdapter

if TYPE_CHECKING:
    from adapters.claude_code.adapter import ClaudeCode
    from adapters.claude_sdk.adapter import ClaudeSdk
    from adapters.codex.adapter import Codex
    from adapters.gemini.adapter import Gemini
    from adapters.replay_agent import create

    _FACTORIES: tuple[AdapterFactory, ...] = (ClaudeCode, ClaudeSdk, Codex, Gemini, create)

GROUP = "runturn.adapters"

# To add a built-in agent: write its module and add it here, and to the type check above.
BUILT_IN = tuple(
    EntryPoint(name, f"adapters.{factory}", GROUP)
    for name, factory in (
        ("claude-code", "claude_code.adapter:ClaudeCode"),
        ("claude-sdk", "claude_sdk.adapter:ClaudeSdk"),
        ("codex", "codex.adapter:Codex"),
        ("gemini", "gemini.adapter:Gemini"),
        ("scripted", "replay_agent:create"),
    )
)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Failed:
    """An entry point that could not be loaded."""

    name: str
    source: str  # the package with its version, or the location of its factory
    reason: str
    options_refused: bool = False  # its factory refused the operator's options


class Registry:
    """Agents that a worker can run, by name, and those that failed to load."""

    def __init__(
        self,
        adapters: Iterable[Adapter],
        failed: Iterable[Failed] = (),
        sources: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._adapters: Mapping[str, Adapter] = {adapter.name: adapter for adapter in adapters}
        self.failed = tuple(failed)
        self.sources = sources  # by name: the package with its version

    def __iter__(self) -> Iterator[Adapter]:
        return iter(self._adapters.values())

    @property
    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._adapters)

    @property
    def planners(self) -> list[str]:
        """Return the names of the agents that support plan turns."""
        return [name for name in self.names if self._adapters[name].capabilities.plans]

    def get(self, name: str) -> Adapter:
        """Return the agent of that name. Raise InvalidRequest, listing the known names, if there is none."""
        if name in self._adapters:
            return self._adapters[name]
        for failed in self.failed:
            if failed.name == name:
                raise InvalidRequest(
                    f"agent {name!r} of {failed.source} could not be loaded: {failed.reason}", field="agent"
                )
        known = ", ".join(self.names)
        raise InvalidRequest(f"there is no agent {name!r}; known: {known}", field="agent")

    def check(self, request: TurnRequest) -> None:
        """Raise InvalidRequest, naming the field, if the request's agent cannot run it.

        A request that names no agent is checked by the worker that chooses one.
        """
        if request.agent == AUTO:
            return
        adapter = self.get(request.agent)
        check_able(request, adapter)
        adapter.check(request)


def discover(
    entries: Iterable[EntryPoint], config: Callable[[str], AgentConfig], built_in: Iterable[str] = ()
) -> Registry:
    """Load the agents of these entry points, the first of each name, and record those that fail to load.

    Agents that are not `built_in` are validated at run time.
    """
    trusted, found, failed = frozenset(built_in), dict[str, Adapter](), list[Failed]()
    sources = dict[str, str]()
    for entry in entries:
        options_refused = False
        try:
            if entry.name in found:
                raise ValueError("another agent has this name; uninstall one of them")  # noqa: TRY301
            found[entry.name] = _load(entry, config(entry.name), trusted=entry.name in trusted)
            sources[entry.name] = source(entry)
        except (Exception, SystemExit) as error:
            options_refused = isinstance(error, InvalidRequest) and bool(config(entry.name).options)
            reason = error.message if isinstance(error, TurnError) else f"{type(error).__name__}: {error}"
            failed.append(Failed(entry.name, source(entry), reason, options_refused))
    return Registry(found.values(), failed, sources)


def source(entry: EntryPoint) -> str:
    """Return the package and version of an agent, or the location of its factory."""
    if entry.dist is not None:
        return f"{entry.dist.name} {entry.dist.version}"
    return f"runturn {version('runturn')}" if entry in BUILT_IN else entry.value


def _load(entry: EntryPoint, config: AgentConfig, *, trusted: bool) -> Adapter:
    if _NAME.fullmatch(entry.name) is None or entry.name == AUTO:
        raise ValueError(f"{entry.name!r} is not a valid agent name")
    factory = entry.load()
    if not callable(factory):
        raise TypeError(f"{entry.value} is not a factory: it is not callable")
    adapter: Adapter = factory(config)
    if not trusted:
        adapter = ValidatedAdapter(adapter)
    if adapter.name != entry.name:
        raise ValueError(f"its factory returned an adapter named {adapter.name!r}")
    return adapter
