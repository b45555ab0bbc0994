"""A small HTTP server that answers as a provider would, one scripted reply after another."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What one request gets; a `cut` reply closes the connection after the given bytes."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None

    @property
    def text(self) -> str:
        return self.body if isinstance(self.body, str) else json.dumps(self.body)


class Wire:
    """Use as a context manager; `requests` holds the JSON bodies that came, `paths` where to."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        waiting = list(replies)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                """Quiet."""

            def do_POST(self) -> None:
                owner.paths.append(self.path)
                owner.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                reply = waiting.pop(0)
                data = reply.text.encode()
                stream = isinstance(reply.body, str)
                self.send_response(reply.status)
                self.send_header("content-type", "text/event-stream" if stream else "application/json")
                self.send_header("content-length", str(len(data)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data if reply.cut is None else data[: reply.cut])
                self.close_connection = reply.cut is not None

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Wire:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def chat(message: dict[str, Any], reason: str = "stop", **usage: Any) -> Reply:
    """A plain answer of OpenAI's chat completions."""
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **usage}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return Reply({**head, "choices": [choice], "usage": counts})


def chat_stream(*deltas: dict[str, Any], reason: str | None = "stop") -> Reply:
    """A streamed answer of OpenAI's chat completions; `reason` None ends without saying so."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    steps = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    if reason is not None:
        steps.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        steps.append(
            {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
        )
    text = "".join(f"data: {json.dumps(head | step)}\n\n" for step in steps)
    return Reply(text + ("data: [DONE]\n\n" if reason is not None else ""))


def anthropic_stream(
    *blocks: tuple[dict[str, Any], Sequence[dict[str, Any]]], reason: str = "end_turn"
) -> Reply:
    """A streamed answer of Anthropic's Messages API: each block with its deltas."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "usage": usage,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}})
    events.append({"type": "message_stop"})
    return Reply("".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events))
