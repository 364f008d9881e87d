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
