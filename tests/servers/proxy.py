"""A TCP proxy before a PostgreSQL server, which can lose the answer to a commit."""

from __future__ import annotations

import contextlib
import socket
import threading


class LossyProxy:
    """Listens on a free port; `lose_next_commit` makes it cut a connection once the server has committed."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.lost = 0
        self._armed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_commit(self) -> None:
        self._armed = True

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=(source, target, is_answer), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self._armed and b"COMMIT\0" in data:
                    self._armed, self.lost = False, self.lost + 1
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
