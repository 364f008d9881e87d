"""Checks of hosts by the workers that use them, in their own environments, over Celery's remote control.

A worker examines its hosts in a thread, and replies at once with the checks so far: its control never waits. The
doctor asks again until all workers have finished.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from typing import Any

from celery import Celery
from celery.worker import control

from adapters.errors import InvalidRequest
from remote.daemon_threads import DaemonExecutor
from workers.doctor.check import Check, unanswered

COMMAND = "runturn_doctor"
_BROKER = "start it if it is down; then: runturn doctor"
_KEPT = 4  # examinations whose checks a worker keeps
_REPLY_S = 3.0  # for one reply
_LATE_S = 2.0  # for a broker that has stopped answering
_PAUSE_S = 0.2

Examine = Callable[[str | None, bool], Iterable[Check]]  # the only host, if any; whether to examine SSH hosts, too


def serve(examine: Examine, redact: Callable[[str], str]) -> None:
    """Make this process's worker examine its hosts on request."""
    examinations: dict[str, _Examination] = {}

    def doctor(worker: Any, ticket: str, only: str | None, over_ssh_by: str) -> Mapping[str, object]:
        if ticket not in examinations:
            for old in list(examinations)[: 1 - _KEPT]:
                del examinations[old]
            over_ssh = worker.hostname == over_ssh_by
            examinations[ticket] = _Examination(lambda: examine(only, over_ssh), redact)
        return examinations[ticket].reply()

    control.Panel.data[COMMAND] = doctor


def ask(
    app: Celery,
    workers: Iterable[str],
    only: str | None,
    limit_s: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Check]:
    """Yield the checks of all workers' hosts; equal ones once. The first worker examines the SSH hosts, too.

    A worker that has not finished within `limit_s` is a failed check, and so is a broker that fails meanwhile.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    first, pending, until = next(iter(found)), list(found), monotonic() + limit_s
    arguments = {"ticket": uuid.uuid4().hex, "only": only, "over_ssh_by": first}
    while pending and monotonic() < until:
        try:
            replies = _replies(app, pending, arguments)
        except Exception as error:  # transports raise the errors of their client libraries
            yield Check("broker", False, f"it failed meanwhile: {error or type(error).__name__}", _BROKER)
            return
        for name, reply in replies.items():
            found[name] = reply["checks"] if "checks" in reply else [_refused(reply).document()]
            if reply.get("done", True):
                pending.remove(name)
        if pending:
            sleep(_PAUSE_S)
    for name in pending:
        found[name].append(unanswered("worker", limit_s).document())
    if only is not None and not any(found.values()):
        found[first].append(_unknown(only).document())
    yield from _grouped(found)


class _Examination:
    """An examination by this worker, under way or finished."""

    def __init__(self, examine: Callable[[], Iterable[Check]], redact: Callable[[str], str]) -> None:
        self._checks: list[dict[str, object]] = []
        self._redact = redact
        self._running = DaemonExecutor().submit(self._run, examine)

    def reply(self) -> Mapping[str, object]:
        """Return the checks so far."""
        done = self._running.done()  # before looking at the checks, or the last could be missed
        return {"checks": list(self._checks), "done": done}

    def _run(self, examine: Callable[[], Iterable[Check]]) -> None:
        try:
            for check in examine():
                self._add(check)
        except InvalidRequest:  # it does not have the only host
            return
        except Exception as error:  # the worker must survive what the doctor finds
            self._add(Check("hosts", False, str(error) or type(error).__name__))

    def _add(self, check: Check) -> None:
        texts = {"detail": self._redact(check.detail), "remedy": self._redact(check.remedy)}
        self._checks.append({**check.document(), **texts})


def _refused(reply: Mapping[str, Any]) -> Check:
    return Check("worker", False, str(reply.get("error", reply)), "run the same version of runturn everywhere")


def _unknown(host: str) -> Check:
    return Check(
        "reach", False, f"the worker has no host {host}", "give workers and the caller the same ssh_hosts"
    )


def _replies(app: Celery, names: list[str], arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what workers reply. Raises TimeoutError if the broker is silent, and the transport's errors."""
    asking = DaemonExecutor().submit(
        app.control.broadcast,
        COMMAND,
        arguments=dict(arguments),
        destination=names,
        reply=True,
        timeout=_REPLY_S,
        limit=len(names),
    )
    if not wait([asking], _REPLY_S + _LATE_S).done:
        raise TimeoutError(f"no answer within {_REPLY_S + _LATE_S:.0f} s")
    return {name: said for reply in asking.result() or () for name, said in reply.items()}


def _grouped(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[Check]:
    """Yield each host's checks once for all workers that found the same, for the first worker first."""
    groups: dict[str, tuple[list[dict[str, Any]], list[str]]] = {}
    for name, checks in found.items():
        for host in dict.fromkeys(check["host"] for check in checks):
            of_host = [check for check in checks if check["host"] == host]
            groups.setdefault(repr(of_host), (of_host, []))[1].append(name)
    for checks, names in groups.values():
        for check in checks:
            yield Check.of(check, tuple(names))
