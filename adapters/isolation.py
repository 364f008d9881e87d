"""Isolation: how the host's kernel separates a turn from everything else."""

from __future__ import annotations

from enum import StrEnum


class Isolation(StrEnum):
    """Levels, from the weakest to the strictest."""

    NONE = "none"
    NAMESPACE = "namespace"  # a PID namespace: whatever the agent starts ends with it
    SANDBOX = "sandbox"  # the same; and of the host's files, the agent sees those it needs


class Network(StrEnum):
    """What a sandbox shows of the host's network."""

    FULL = "full"
    NONE = "none"  # a loopback interface, which leads nowhere but to itself


def strictest(*levels: Isolation | None) -> Isolation:
    """Return the strictest of these levels; None is as weak as none."""
    order = list(Isolation)
    return max((level for level in levels if level is not None), key=order.index, default=Isolation.NONE)
