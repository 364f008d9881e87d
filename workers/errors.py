"""What keeps a command or a worker from doing its job. Turns fail with `adapters.errors`, commands with these."""

from __future__ import annotations


class RunturnError(Exception):
    """Something that a person has to act on; its text says what and how."""


class BrokerUnavailable(RunturnError):
    """The broker does not answer."""


class AnswersUnavailable(RunturnError):
    """The result backend does not answer."""


class NoWorker(RunturnError):
    """No worker is there to run turns."""


class ResultTimeout(RunturnError):
    """The turn has not ended yet."""


class ControlRefused(RunturnError):
    """The turn does not take what is asked of it; as it is, and as it stands, it never will."""


class ControlFailed(RunturnError):
    """The agent was asked, and could not do it."""


class ControlTimeout(RunturnError):
    """Whether the agent has done it is not known."""
