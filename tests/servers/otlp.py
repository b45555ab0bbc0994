"""A real OTLP receiver on loopback, gRPC and http/protobuf, that can also be slow, refuse or hang."""

from __future__ import annotations

import gzip
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver(service_grpc.TraceServiceServicer):
    """Keeps each request as its bytes, and parsed.

    Set `status` to refuse (an HTTP status), `max_bytes` to refuse what is larger with 413; `hang` makes
    it read a request and never answer until `release` is called.
    """

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.requests: list[service.ExportTraceServiceRequest] = []
        self.refused = 0
        self.status = 200
        self.max_bytes: int | None = None
        self.hang = False
        self.waiting = 0  # requests that were read while it hung
        self._arrived = threading.Condition()
        self._released = threading.Event()
        self._grpc = grpc.server(futures.ThreadPoolExecutor(4))
        service_grpc.add_TraceServiceServicer_to_server(self, self._grpc)
        port = self._grpc.add_insecure_port("127.0.0.1:0")
        self.grpc_url = f"http://127.0.0.1:{port}"
        self._grpc.start()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.hang:
                    receiver.waiting += 1
                    receiver._released.wait()
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                status = receiver.status
                if receiver.max_bytes is not None and len(body) > receiver.max_bytes:
                    status = 413
                if status == 200:
                    receiver.keep(body)
                else:
                    with receiver._arrived:
                        receiver.refused += 1
                        receiver._arrived.notify_all()
                answer = service.ExportTraceServiceResponse().SerializeToString()
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def Export(self, request: service.ExportTraceServiceRequest, context: Any) -> Any:
        self.keep(request.SerializeToString())
        return service.ExportTraceServiceResponse()

    def keep(self, body: bytes) -> None:
        with self._arrived:
            self.bodies.append(body)
            self.requests.append(service.ExportTraceServiceRequest.FromString(body))
            self._arrived.notify_all()

    def spans(self) -> list[Span]:
        with self._arrived:
            requests = list(self.requests)
        return [s for r in requests for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]

    def wait_for(self, count: int, timeout_s: float = 20.0) -> list[Span]:
        """The spans once there are this many."""
        with self._arrived:
            self._arrived.wait_for(
                lambda: (
                    sum(
                        len(ss.spans)
                        for r in self.requests
                        for rs in r.resource_spans
                        for ss in rs.scope_spans
                    )
                    >= count
                ),
                timeout_s,
            )
        return self.spans()

    def forget(self) -> None:
        self.bodies, self.requests = [], []

    def release(self) -> None:
        self._released.set()

    def close(self) -> None:
        self.release()
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None).wait()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attributes(span: Any) -> dict[str, Any]:
    """A span's (or an event's, or a link's) attributes as Python values."""

    def value(of: Any) -> Any:
        kind = of.WhichOneof("value")
        return [value(v) for v in of.array_value.values] if kind == "array_value" else getattr(of, kind)

    return {item.key: value(item.value) for item in span.attributes}
