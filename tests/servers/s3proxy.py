"""An HTTP proxy in front of a server, which does at chosen requests what networks and servers do."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any  # a socket server's own arguments
from urllib.parse import urlsplit

LOST = "lost"  # done, but the answer never comes and the connection is closed
SILENT = "silent"  # done, but no answer comes at all
CUT = "cut"  # closed before anything was done
Fault = int | str | None  # a number: answered with that status, nothing done
_HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Request:
    """One request that came by; `number` counts from 0 since the last `reset`."""

    number: int
    method: str
    path: str
    body: bytes = b""

    @property
    def is_write(self) -> bool:
        return self.method in ("PUT", "POST", "DELETE")


@dataclass
class Proxy:
    """What came by, and what is to go wrong: `plan` says it for each request."""

    url: str = ""
    seen: list[Request] = field(default_factory=list)
    plan: Callable[[Request], Fault] = lambda request: None
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def reset(self, plan: Callable[[Request], Fault] = lambda request: None) -> None:
        """Count from 0 again, and do this from now on."""
        with self.lock:
            self.seen, self.plan = [], plan

    def note(self, method: str, path: str, body: bytes) -> Request:
        with self.lock:
            request = Request(len(self.seen), method, path, body)
            self.seen.append(request)
            return request


def first_time(fault: Fault, which: Callable[[Request], bool]) -> Callable[[Request], Fault]:
    """This fault at each of these requests, but not when it is repeated."""
    met: set[tuple[str, str, bytes]] = set()

    def plan(request: Request) -> Fault:
        about = (request.method, request.path, request.body)
        if not which(request) or about in met:
            return None
        met.add(about)
        return fault

    return plan


@contextlib.contextmanager
def proxy(target: str) -> Iterator[Proxy]:
    """A proxy in front of the server at this address."""
    place = urlsplit(target)
    made = Proxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            fault = made.plan(made.note(self.command, self.path, body))
            if isinstance(fault, int):
                return self.answer(fault, b"<Error><Code>Injected</Code></Error>", {})
            if fault == CUT:
                return self.hang_up()
            upstream = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
            try:
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    upstream.putheader(name, value)  # the host too: it is signed
                upstream.endheaders(body)
                answer = upstream.getresponse()
                data, headers = answer.read(), dict(answer.getheaders())
            finally:
                upstream.close()
            if fault == LOST:
                return self.hang_up()
            if fault == SILENT:
                made.over.wait()
                return self.hang_up()
            return self.answer(answer.status, data, headers)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in _HOP_HEADERS:
                    self.send_header(name, value)
            head = self.command == "HEAD"
            self.send_header("content-length", headers.get("Content-Length", "0") if head else str(len(data)))
            self.end_headers()
            self.wfile.write(b"" if head else data)

        def hang_up(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *args: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *args: Any) -> None:
            return  # a client that went away

    served = Server(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{served.server_address[1]}"
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        served.shutdown()
        served.server_close()
        thread.join()
