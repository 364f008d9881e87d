"""A link to a RabbitMQ that can lose the server's answers, as a queue without a leader does, or all it says."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

Method = tuple[int, int]  # class and method, as AMQP 0-9-1 numbers them

OPEN_OK: Method = (20, 11)
DECLARE_OK: Method = (50, 11)
CONSUME_OK: Method = (60, 21)
QOS_OK: Method = (60, 11)
ACK: Method = (60, 80)
SELECT_OK: Method = (85, 11)

_HEADER = struct.Struct(">BHI")
_METHOD_FRAME = 1


class DeafLink:
    """It listens on 127.0.0.1 and passes everything on, except the answers that it is told to lose."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lost: Method | None = None
        self._ends: set[socket.socket] = set()
        self.mute = False  # it loses all that the server says, heartbeats included
        self.torn = False  # it does so in the middle of a frame
        self.count = 0  # of lost answers

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()

    def lose(self, method: Method | None) -> None:
        """Lose all answers of this kind from now on; None: none."""
        self._lost = method
        self.count = 0

    def cut(self) -> None:
        """Close all connections; new ones may be made at once."""
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._server_port)) as server,
        ):
            self._ends |= {client, server}
            try:
                threading.Thread(target=_copy, args=(client, server), daemon=True).start()
                self._answer(server, client)
            finally:
                self._ends -= {client, server}
                for end in (client, server):
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        torn = False
        with server.makefile("rb") as frames:
            while header := frames.read(_HEADER.size):
                kind, _, size = _HEADER.unpack(header)
                rest = frames.read(size + 1)
                if self.mute:
                    if self.torn and not torn:
                        client.sendall(header)
                        torn = True
                elif kind == _METHOD_FRAME and struct.unpack(">HH", rest[:4]) == self._lost:
                    self.count += 1
                else:
                    client.sendall(header + rest)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
