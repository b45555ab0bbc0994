"""A small model behind the OpenAI wire format on loopback, for the demo: it follows a script."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any  # requests and answers are JSON

ORDER, AMOUNT = "A-1042", 129
USAGE = {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140}


class DemoServer:
    """Answers `/v1/chat/completions`. While `hold` is set, the final answer waits.

    Use as a context manager; `requests` counts what was asked.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.release = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                """Nothing: the demo's own timeline says what happens."""

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                owner.requests += 1
                message = answer(body["messages"])
                if "tool_calls" not in message:
                    owner.release.wait(30)  # the demo kills the first process meanwhile
                if body.get("stream"):
                    self._send("text/event-stream", sse(body["model"], message))
                else:
                    self._send("application/json", json.dumps(plain(body["model"], message)))

            def _send(self, content_type: str, text: str) -> None:
                data = text.encode()
                try:
                    self.send_response(200)
                    self.send_header("content-type", content_type)
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True  # the process that asked was killed

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> DemoServer:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.release.set()
        self._http.shutdown()
        self._http.server_close()


def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The script: look the order up, charge it once, report; a further message gets a short reply."""
    done = [m for m in messages if m["role"] == "tool"]
    if len(done) == 0:
        return _call("call_lookup", "look_up_order", {"order": ORDER})
    if len(done) == 1:
        return _call("call_charge", "charge", {"order": ORDER, "amount_eur": AMOUNT})
    if messages[-1]["role"] == "user":
        return {"content": f"Charged {AMOUNT} EUR."}
    return {"content": f"Order {ORDER} is paid: {AMOUNT} EUR were charged. {done[-1]['content']}"}


def _call(call_id: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(args)}
    return {"tool_calls": [{"index": 0, "id": call_id, "type": "function", "function": function}]}


def plain(model: str, message: dict[str, Any]) -> dict[str, Any]:
    """An answer in one piece, in OpenAI's shape."""
    whole = {"role": "assistant", "content": None, **message}
    choice = {"index": 0, "message": whole, "finish_reason": _reason(message)}
    head = {"id": "chatcmpl-demo", "object": "chat.completion", "created": 0, "model": model}
    return head | {"choices": [choice], "usage": USAGE}


def _reason(message: dict[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def sse(model: str, message: dict[str, Any]) -> str:
    """An answer as server-sent events, in OpenAI's shape."""
    steps: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", **message}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": _reason(message)}]},
        {"choices": [], "usage": USAGE},
    ]
    head = {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 0, "model": model}
    return "".join(f"data: {json.dumps(head | step)}\n\n" for step in steps) + "data: [DONE]\n\n"
