"""What a provider said below LiteLLM: its own word for the end, its error, the parts LiteLLM drops."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any  # provider JSON, and LiteLLM's untyped streams


class Tap:
    """Watches one call. `log` is LiteLLM's `logger_fn`; `watch` is put under a stream.

    Args:
        listener: Is given each raw chunk of a stream as well.
    """

    def __init__(self, listener: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._listener = listener
        self.body: dict[str, Any] | None = None  # of an answer in one piece
        self.finish_reason: str | None = None
        self.error: str | None = None  # that the provider sent in the middle of a stream
        self.details: list[dict[str, Any]] = []  # OpenRouter's reasoning_details, in pieces
        self.refusal = ""  # of a stream; LiteLLM passes on its first piece only
        self.unstreamed = False  # the answer to a request to stream is one JSON body
        self.confused = False  # a chunk was not of a known shape; what was seen is not all
        self.has_usage = False
        self._usage_was_last = False
        self._shapes: set[str] = set()
        self._seen = False
        self._ids: set[str] = set()  # all ids that the provider gave

    def log(self, about: dict[str, Any]) -> None:
        """Take what LiteLLM logs of a call: the provider's whole answer, as text."""
        text = about.get("original_response")
        if isinstance(text, str):
            try:
                body = json.loads(text)
            except (ValueError, RecursionError):
                return
            if isinstance(body, dict):
                self.body = body
                self._take(body)

    def watch(self, stream: Any) -> None:
        """Listen to each chunk of a LiteLLM stream, as the provider sent it."""
        chunks, make = getattr(stream, "completion_stream", None), getattr(stream, "make_call", None)
        if chunks is not None:
            stream.completion_stream = self._under(chunks)
        elif make is not None:

            async def made(**options: Any) -> Any:
                return self._under(await make(**options))

            stream.make_call = made

    def _under(self, chunks: Any) -> Any:
        """The chunks, listened to: LiteLLM's own parser of them, or an SDK's stream."""
        parse = getattr(chunks, "chunk_parser", None)
        if parse is None:
            return _Heard(chunks, self._take) if hasattr(chunks, "__anext__") else chunks
        self.unstreamed = _is_json(_response(chunks))

        def parsed(chunk: Any) -> Any:
            if isinstance(chunk, dict):
                self._take(chunk)
            return parse(chunk)

        chunks.chunk_parser = parsed
        return chunks

    @property
    def broke_off(self) -> bool:
        """True where a stream stopped before its end; LiteLLM takes that for a normal end of many.

        Each format ends with a reason to stop. Servers of OpenAI's that leave it out still send
        the usage last, in a chunk of its own.
        """
        ended = self.finish_reason or ("choices" in self._shapes and self._usage_was_last)
        return bool(self._shapes) and not ended

    def has(self, call_id: str | None) -> bool:
        """False where this id is LiteLLM's, not the provider's, as far as that can be seen."""
        return not self._seen or call_id in self._ids

    def _take(self, chunk: dict[str, Any]) -> None:
        try:
            self._see(chunk)
            if self._listener is not None:
                self._listener(chunk)
        except (AttributeError, KeyError, TypeError):  # an odd chunk: LiteLLM may still make sense of it
            self.confused = True

    def _see(self, chunk: dict[str, Any]) -> None:
        self._ids.update(_ids(chunk))
        error = chunk.get("error")
        if error:
            self.error = str(error.get("message") or error) if isinstance(error, dict) else str(error)
        self._shapes |= {name for name in ("choices", "candidates", "message") if chunk.get(name)}
        usage = bool(chunk.get("usage") or chunk.get("usageMetadata"))
        self._usage_was_last = usage and self._seen and not self.has_usage and not _says(chunk)
        self.has_usage = self.has_usage or usage
        self.finish_reason = _finish_reason(chunk) or self.finish_reason
        self._seen = True
        for choice in chunk.get("choices") or ():
            if "message" in choice:  # no piece of a stream: LiteLLM reads nothing but usage out of it
                self.body = chunk
            part = choice.get("delta") or {}
            self.details += part.get("reasoning_details") or []
            self.refusal += part.get("refusal") or ""


def _says(chunk: dict[str, Any]) -> bool:
    deltas = [choice.get("delta") or {} for choice in chunk.get("choices") or ()]
    return any(d.get("content") or d.get("tool_calls") for d in deltas)


_ID_KEYS = ("id", "toolUseId", "tool_call_id", "call_id")


def _ids(part: Any, depth: int = 8) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (part[key] for key in _ID_KEYS if isinstance(part.get(key), str))
        part = list(part.values())
    if isinstance(part, list) and depth:  # an answer's ids lie near its surface
        for inner in part:
            yield from _ids(inner, depth - 1)


def _finish_reason(chunk: dict[str, Any]) -> str | None:
    for choice in [*(chunk.get("choices") or ()), *(chunk.get("candidates") or ())]:
        said = [choice.get(k) for k in ("native_finish_reason", "finish_reason", "finishReason")]
        if any(said):
            return "error" if "error" in said else str(next(filter(None, said)))
    delta = chunk.get("delta") if chunk.get("type") == "message_delta" else chunk  # Anthropic's stream
    found = (delta or {}).get("stop_reason") or chunk.get("finish_reason") or chunk.get("done_reason")
    if found is None and chunk.get("done") is True:  # an old Ollama's only word
        found = "stop"
    return str(found) if found else None


def json_body(stream: Any) -> Any:
    """The HTTP response under a stream, if it is no stream at all but one JSON body; None else."""
    response = _response(getattr(stream, "completion_stream", None))
    return response if _is_json(response) else None


def _response(chunks: Any) -> Any:
    return getattr(chunks, "_response", None) or getattr(chunks, "response", None)


def _is_json(response: Any) -> bool:
    return str(getattr(response, "headers", {}).get("content-type", "")).startswith("application/json")


class _Heard:
    """An SDK's stream that is listened to."""

    def __init__(self, chunks: Any, take: Callable[[dict[str, Any]], None]) -> None:
        self._chunks, self._take = chunks, take

    def __aiter__(self) -> _Heard:
        return self

    async def __anext__(self) -> Any:
        chunk = await self._chunks.__anext__()
        dump = getattr(chunk, "model_dump", None)
        if dump is not None:
            self._take(dump(exclude_none=True))
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chunks, name)
