"""What all emulators share: the HTTP server, signatures, and what the model behind them says."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


class Refused(Exception):
    """What the provider answers instead: an HTTP status and its words."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


def need(condition: Any, message: str) -> None:
    """Refuse a request as bad unless the condition holds."""
    if not condition:
        raise Refused(400, message)


def known_keys(where: str, given: Json, *allowed: str) -> None:
    """Refuse a key that the API does not have."""
    for key in given:
        need(key in allowed, f"{where}.{key}: Extra inputs are not permitted")


def signature(provider: str, *signed: Any) -> str:
    """An opaque text that only this provider can have made for these parts."""
    text = json.dumps(signed, sort_keys=True, ensure_ascii=False)
    key = f"the key of {provider}".encode()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() * 2


# --- what the model says --------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One answer: `parts` in order, each ("thinking" | "redacted" | "text", text) or ("call", name, args)."""

    parts: tuple[tuple[Any, ...], ...] = ()
    refusals: tuple[Refused, ...] = ()  # what the first tries of this step get


def say(*parts: tuple[Any, ...], refusals: tuple[Refused, ...] = ()) -> Step:
    return Step(parts, refusals)


def call(name: str, **args: Any) -> tuple[Any, ...]:
    return ("call", name, args)


NOW = {"retry-after": "0"}
PLAYS: dict[str, list[Step]] = {  # the last user message -> the answers to it and to the tool results
    "What is the weather in Paris?": [
        say(("thinking", "I should look it up, not guess."), call("get_weather", city="Paris")),
        say(("text", "It is sunny in Paris.")),
    ],
    "Compare the weather in Paris and Köln.": [
        say(
            ("thinking", "Two cities, two calls."),
            ("text", "I will ask for both."),
            ("redacted", "Both at once saves a turn."),
            call("get_weather", city="Paris"),
            call("get_weather", city="Köln"),
        ),
        say(("thinking", "Sunny and rainy."), ("text", "Paris is sunny, Köln is rainy.")),
    ],
    "Where does it rain? Look at Paris, then at Köln.": [
        say(("thinking", "First Paris."), call("get_weather", city="Paris")),
        say(("thinking", "Not there."), call("get_weather", city="Köln")),
        say(("text", "It rains in Köln.")),
    ],
    "Say hello.": [say(("text", "Hello!"))],
    "And what did you find?": [say(("thinking", "It is above."), ("text", "What I said before."))],
    "Say hello when you can.": [
        say(
            ("text", "Hello, at last."),
            refusals=(Refused(503, "overloaded", NOW), Refused(429, "too many requests", NOW)),
        )
    ],
    "Say hello after you fell over.": [
        say(("text", "Hello again."), refusals=(Refused(500, "internal error", NOW),))
    ],
    "Say nothing.": [say(refusals=(Refused(400, "this request cannot be served"),) * 9)],
}


class Emulator:
    """One provider on a loopback port; `requests` holds the JSON bodies that were accepted, `headers` all."""

    name = ""
    path = ""  # of the base URL that a client is given

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.refused: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._tries: Counter[str] = Counter()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                """Quiet."""

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {k.lower(): v for k, v in self.headers.items()}
                owner.headers.append(headers)
                try:
                    answer = owner.answer(self.path, headers, json.loads(raw))
                    self._send(200, {}, answer)
                except Refused as refused:
                    owner.refused.append(refused.message)
                    self._send(refused.status, refused.headers, owner.error(refused))

            def _send(self, status: int, headers: dict[str, str], answer: Json | str) -> None:
                stream = isinstance(answer, str)
                data = (answer if stream else json.dumps(answer, ensure_ascii=False)).encode()
                self.send_response(status)
                self.send_header("content-type", "text/event-stream" if stream else "application/json")
                self.send_header("content-length", str(len(data)))
                self.send_header("x-request-id", f"req_{len(owner.requests)}")
                self.send_header("set-cookie", "session=not-for-a-cassette")
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}{self.path}"

    def __enter__(self) -> Emulator:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, headers: dict[str, str], body: Json) -> Json | str:
        """The answer to one request, as JSON or as the text of an event stream.

        Raises:
            Refused: the provider would refuse it.
        """
        raise Refused(404, f"no such path: {path}")

    def error(self, refused: Refused) -> Json:
        """The body of an error."""
        kind = "invalid_request_error" if refused.status < 429 else "server_error"
        return {"error": {"message": refused.message, "type": kind, "code": refused.status}}

    def step(self, body: Json, talk: Talk) -> Step:
        """What the model says now.

        Raises:
            Refused: this step fails at its first tries.
        """
        self.requests.append(body)
        steps = PLAYS.get(talk.prompt, PLAYS["Say hello."])
        step = steps[min(talk.answers, len(steps) - 1)]
        place = f"{talk.prompt} {talk.answers}"
        self._tries[place] += 1
        if self._tries[place] <= len(step.refusals):
            raise step.refusals[self._tries[place] - 1]
        return step


@dataclass
class Talk:
    """How far a conversation is: its last user message, and the answers given since."""

    prompt: str = ""
    answers: int = 0
    calls: list[str] = field(default_factory=list)  # ids of calls that wait for their result
    seen: set[str] = field(default_factory=set)  # all call ids

    def user(self, text: str) -> None:
        need(not self.calls, f"tool calls without a result: {self.calls}")
        self.prompt, self.answers = text, 0

    def assistant(self, call_ids: list[str]) -> None:
        need(not self.calls, f"tool calls without a result: {self.calls}")
        need(
            not self.seen.intersection(call_ids) and len(set(call_ids)) == len(call_ids), "ids must be unique"
        )
        self.calls = list(call_ids)
        self.seen.update(call_ids)
        self.answers += 1

    def result(self, call_id: str) -> None:
        need(call_id in self.calls, f"a tool result without its call: {call_id}")
        self.calls.remove(call_id)

    def end(self) -> None:
        need(not self.calls, f"tool calls without a result: {self.calls}")


def sse(events: list[Json], *, named: bool = False, done: bool = False) -> str:
    """An event stream."""
    lines = [f"event: {e['type']}\n" if named else "" for e in events]
    text = "".join(
        f"{n}data: {json.dumps(e, ensure_ascii=False)}\n\n" for n, e in zip(lines, events, strict=True)
    )
    return text + ("data: [DONE]\n\n" if done else "")


def pieces(text: str) -> Iterator[str]:
    """A text as a model streams it."""
    yield from (text[i : i + 9] for i in range(0, len(text), 9))
