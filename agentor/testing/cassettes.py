"""Cassettes: the HTTP traffic of a model, recorded once and played again without network or key."""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal  # Any: vcrpy is imported late, and bodies are JSON
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from agentor.engine.redact import Redactor, is_secret_name
from agentor.errors import CassetteMiss, MissingExtra

Record = Literal["none", "new", "all"]
_MODES = {"none": "none", "new": "new_episodes", "all": "all"}
HEADERS = frozenset(  # all that a cassette keeps; whatever is not named here may be a secret
    {
        "anthropic-version",
        "content-type",
        "location",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-request-id",
    }
)
_SECRET_QUERY = re.compile("key|token|secret|sig|password|code", re.IGNORECASE)
_SAID = re.compile(r'"(?:text|content|delta|arguments|partial_json|thinking)": "((?:[^"\\]|\\.)*)"')
_SHOWN_LINES = 40  # of the difference that a miss shows


class Tape:
    """An open cassette. `requests` holds the JSON bodies asked for while it was open, in order."""

    def __init__(self, played: Any) -> None:
        self.requests: list[Any] = []
        self._played = played

    def skip(self, count: int) -> None:
        """Count the first recorded answers as given: a resumed run has them already."""
        for place in range(count):
            self._played.play_counts[place] = 1

    @property
    def left(self) -> int:
        """Recorded answers that nothing has asked for yet."""
        return len(self._played) - len(+self._played.play_counts)


@contextmanager
def cassette(
    path: str | Path,
    *,
    record: Record = "none",
    answered_by: str = "",
    hosts: Mapping[str, str] | None = None,
    redactor: Redactor | None = None,
) -> Iterator[Tape]:
    """Play the recorded answers to whatever HTTP request is made inside, or record them.

    A request matches by method, host, path and its body as JSON. Only `HEADERS` are kept, and
    bodies pass the redactor; nothing is loaded from a cassette but text.

    Args:
        record: `"none"` only plays, and nothing reaches the network; `"new"` also records what is
            not there; `"all"` records everything anew.
        answered_by: Who answered; stands as a comment at the top of what is recorded.
        hosts: Other addresses for hosts in what is recorded, such as
            `{"127.0.0.1:8080": "https://api.openai.com"}` where a stand-in answers.

    Raises:
        CassetteMiss: from the model, for a request that is not recorded; it is not tried again.
        MissingExtra: vcrpy is not installed.
    """
    try:
        vcr: Any = import_module("vcr")
    except ImportError:
        raise MissingExtra("vcrpy", "test") from None
    cleaner = _Cleaner(redactor or Redactor(content=True), dict(hosts or {}))
    if record == "all":
        Path(path).unlink(missing_ok=True)
    recorder = vcr.VCR(record_mode=vcr.mode(_MODES[record]), decode_compressed_response=True)
    recorder.register_serializer("agentor", _Yaml(answered_by))
    for matcher in (_host, _json_body):
        recorder.register_matcher(matcher.__name__, matcher)
    opened = recorder.use_cassette(
        str(path),
        serializer="agentor",
        match_on=("method", "_host", "path", "_json_body"),
        before_record_request=cleaner.request,
        before_record_response=cleaner.response,
    )
    with opened as played:
        tape = Tape(played)
        _listen(played, tape, strict=record == "none")
        yield tape


def _listen(played: Any, tape: Tape, *, strict: bool) -> None:
    play, can_play, append = played.play_response, played.can_play_response_for, played.append

    def may_play(request: Any) -> Any:
        known = can_play(request)
        if strict and not known:
            raise CassetteMiss(_miss(played, played.filter_request(request)))
        return known

    def given(request: Any) -> Any:
        tape.requests.append(_body(request))
        return play(request)

    def recorded(request: Any, response: Any) -> None:
        tape.requests.append(_body(request))
        append(request, response)

    played.can_play_response_for, played.play_response, played.append = may_play, given, recorded


# --- what goes in -------------------------------------------------------------------------------


class _Cleaner:
    """Takes out of a request and its answer what no cassette may hold."""

    def __init__(self, redactor: Redactor, hosts: Mapping[str, str]) -> None:
        self._redactor, self._hosts = redactor, hosts

    def request(self, request: Any) -> Any:
        secrets = [str(v) for k, v in request.headers.items() if is_secret_name(k)]
        # A key that came in a header may come back in a body, whatever its shape.
        self._redactor = self._redactor.knowing(word for value in secrets for word in value.split())
        request.headers = {k: v for k, v in request.headers.items() if k.lower() in HEADERS}
        request.uri = self._uri(request.uri)
        if request.body:
            request.body = self._text(_text(request.body)).encode()
        return request

    def response(self, response: dict[str, Any]) -> dict[str, Any]:
        headers = {k: v for k, v in response["headers"].items() if k.lower() in HEADERS}
        headers = {k: [self._redactor.text(text) for text in v] for k, v in headers.items()}
        if "location" in {k.lower() for k in headers}:
            headers = {k: [self._uri(v[0])] if k.lower() == "location" else v for k, v in headers.items()}
        body = self._text(_text(response["body"]["string"]))
        return {**response, "headers": headers, "body": {"string": body.encode()}}

    def _uri(self, uri: str) -> str:
        parts = urlsplit(uri)
        query = [
            (k, self._redactor.text(v)) for k, v in parse_qsl(parts.query) if not _SECRET_QUERY.search(k)
        ]
        shown = self._hosts.get(parts.netloc, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        scheme, _, host = shown.partition("://")
        return urlunsplit((scheme, host, self._redactor.text(parts.path), urlencode(query), ""))

    def _text(self, text: str) -> str:
        whole = self._json(text)
        if whole is not None:
            return whole
        clean = "\n".join(self._line(line) for line in text.split("\n"))
        said = "".join(match.group(1) for match in _SAID.finditer(clean))
        if self._redactor.text(said) != said:
            warnings.warn(
                "a stream that is being recorded holds what looks like a secret, in pieces; look into the "
                "cassette before you keep it",
                stacklevel=2,
            )
        return clean

    def _line(self, line: str) -> str:
        head, mark, data = line.partition("data: ")  # an event stream
        clean = self._json(data) if mark and not head else None
        return self._redactor.text(line) if clean is None else mark + clean

    def _json(self, text: str) -> str | None:
        try:
            return json.dumps(self._redactor.data(json.loads(text)), ensure_ascii=False)
        except (ValueError, RecursionError):
            return None


class _Yaml:
    """YAML that a person can read, with a comment on top; loads plain values only."""

    def __init__(self, answered_by: str) -> None:
        self._comment = f"# Answered by: {answered_by}\n" if answered_by else ""

    def serialize(self, data: dict[str, Any]) -> str:
        yaml: Any = import_module("yaml")
        dumper: Any = type("Dumper", (yaml.SafeDumper,), {})

        def text(to: Any, value: str) -> Any:
            style = "|" if "\n" in value else None
            return to.represent_scalar("tag:yaml.org,2002:str", value, style=style)

        dumper.add_representer(str, text)
        dumped = yaml.dump(data, Dumper=dumper, allow_unicode=True, width=10**9, sort_keys=True)
        return f"{self._comment}{dumped}"

    def deserialize(self, text: str) -> Any:
        yaml: Any = import_module("yaml")
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


# --- what matches -------------------------------------------------------------------------------


def _host(one: Any, other: Any) -> bool:
    return bool(urlsplit(one.uri).netloc == urlsplit(other.uri).netloc)


def _json_body(one: Any, other: Any) -> bool:
    # As text: Python takes True for 1.
    return json.dumps(_body(one), sort_keys=True) == json.dumps(_body(other), sort_keys=True)


def _body(request: Any) -> Any:
    text = _text(request.body or b"")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(body: Any) -> str:
    if isinstance(body, bytes | bytearray):
        return bytes(body).decode("utf-8", "replace")
    if isinstance(body, Iterable) and not isinstance(body, str):
        return b"".join(body).decode("utf-8", "replace")
    return str(body)


def _miss(played: Any, request: Any) -> str:
    head = f"{request.method} {request.uri} is not in the cassette {played.path}"
    if not len(played):
        return f"{head}, which is empty or does not exist; record it first"
    lines = _lines(request)
    recorded = list(played.requests)
    nearest = max(recorded, key=lambda r: difflib.SequenceMatcher(None, _lines(r), lines).quick_ratio())
    place = recorded.index(nearest)
    if _lines(nearest) == lines:
        return f"{head} once more: request {place} of it is the same, and its answer has been given"
    changes = list(difflib.unified_diff(_lines(nearest), lines, "recorded", "asked", n=2, lineterm=""))
    shown = "\n".join(changes[:_SHOWN_LINES])
    more = f"\n… {len(changes) - _SHOWN_LINES} more lines" if len(changes) > _SHOWN_LINES else ""
    return f"{head}; the nearest is request {place}:\n{shown}{more}\nIf the change is meant, record it again."


def _lines(request: Any) -> list[str]:
    body = json.dumps(_body(request), indent=1, ensure_ascii=False, sort_keys=True)
    return [f"{request.method} {request.uri}", *body.split("\n")]
