"""The result backend as a turn's task has it: whatever cannot be stored or published now is done later.

Celery takes an error of its backend, or of the broker, for one of the task: it stores FAILURE where it can, and
forgets the task. Here these errors become `Undelivered`, which ends the execution; the ledger still has the task.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from celery import states
from kombu.exceptions import OperationalError

from workers.errors import Undelivered
from workers.tasks import rescuing, telling

if TYPE_CHECKING:
    from collections.abc import Iterator

# What Redis's backend knows of a chord is put aside under other names, and brought back to what was told since.
_KEEP = """
for _, key in ipairs(KEYS) do
    if redis.call('EXISTS', key) == 1 then redis.call('RENAME', key, key .. '.kept') end
end
"""
_BRING_BACK = """
for _, key in ipairs(KEYS) do
    local kept = key .. '.kept'
    if redis.call('EXISTS', kept) == 1 then
        if redis.call('EXISTS', key) == 1 and redis.call('TYPE', key).ok == 'zset' then
            redis.call('ZUNIONSTORE', kept, 2, kept, key, 'AGGREGATE', 'MAX')
        end
        redis.call('RENAME', kept, key)
    end
end
"""
_STORES = ("mark_as_done", "mark_as_failure", "mark_as_retry", "mark_as_revoked", "store_result")


class Results:
    """In the place of a backend. Everything else is the backend's own."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        for name in _STORES:
            setattr(self, name, self._delivering(getattr(backend, name)))
        if type(backend).__module__ == "celery.backends.redis":  # not to load its client for others
            backend._set_with_state = self._setting(backend._set_with_state)
            backend.on_chord_part_return = self._keeping(backend.on_chord_part_return)
        # Redis's backend calls it for any error in the chord's last step, a broker that is away among them.
        backend.chord_error_from_stack = self._delivering_chord(backend.chord_error_from_stack)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def _delivering(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def deliver(*args: Any, **kwargs: Any) -> Any:
            with self._told_apart():
                return call(*args, **kwargs)

        return deliver

    def _delivering_chord(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def deliver(*args: Any, **kwargs: Any) -> Any:
            error = sys.exc_info()[1]
            if telling() and error is not None and self._passing(error):
                raise Undelivered(str(error)) from error
            return call(*args, **kwargs)

        return deliver

    def _keeping(self, part_returned: Callable[..., Any]) -> Callable[..., Any]:
        """Keep what a chord has counted until its body was sent: Celery deletes that in any case."""
        backend = self._backend

        @functools.wraps(part_returned)
        def returned(request: Any, *args: Any, **kwargs: Any) -> Any:
            if not request.group or not telling():
                return part_returned(request, *args, **kwargs)
            keys = [backend.get_key_for_group(request.group, kind) for kind in (".j", ".t", ".s")]
            backend.client.eval(_BRING_BACK, len(keys), *keys)
            with rescuing(lambda: backend.client.eval(_KEEP, len(keys), *keys)):
                try:
                    return part_returned(request, *args, **kwargs)
                except Undelivered:
                    backend.client.eval(_BRING_BACK, len(keys), *keys)  # or else, the next one does it
                    raise

        return returned

    def _setting(self, set_with_state: Callable[..., None]) -> Callable[..., None]:
        """Store a state unless the task has ended: its last worker may have been frozen, and tells of it late."""
        from redis.exceptions import WatchError  # noqa: PLC0415  # it is a Redis

        backend = self._backend

        def set_unless_ended(key: str, value: str) -> None:
            with backend.client.pipeline() as pipe:
                pipe.watch(key)
                known = pipe.get(key)
                if known and backend.decode(known)["status"] in states.READY_STATES:
                    return
                pipe.multi()
                pipe.set(key, value, ex=backend.expires or None)
                pipe.publish(key, value)
                pipe.execute()

        def setting(key: str, value: str, state: str) -> None:
            if state in states.READY_STATES:
                set_with_state(key, value, state)
            else:
                with suppress(WatchError):  # somebody else has just told more
                    backend.ensure(set_unless_ended, (key, value))

        return setting

    @contextmanager
    def _told_apart(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if telling() and self._passing(error):
                raise Undelivered(f"result backend: {error}") from error
            raise

    def _passing(self, error: BaseException) -> bool:
        """Whether it is an error of the connection rather than of what was to be stored."""
        return isinstance(error, OSError | OperationalError) or bool(self._backend.exception_safe_to_retry(error))
