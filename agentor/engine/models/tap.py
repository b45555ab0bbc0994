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
        self.body: dict[str, Any] | None = None  # of a plain answer
        self.finish_reason: str | None = None
        self.error: str | None = None  # that the provider sent in the middle of a stream
        self.details: list[dict[str, Any]] = []  # OpenRouter's reasoning_details, in pieces
        self.confused = False  # a chunk was not of a known shape; what was seen is not all
        self.has_usage = False
        self._shapes: set[str] = set()
        self._ids: set[str] | None = None  # all ids that the provider gave; None: nothing was seen

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

    def watch(self, stream: Any) -> bool:
        """Listen to each chunk of a LiteLLM stream; False where it cannot be listened to.

        Providers that LiteLLM asks through an SDK (OpenAI and its like) have no chunk parser; they
        need no tap either, since nothing of theirs is dropped.
        """
        if stream.completion_stream is not None:
            return self._under(stream.completion_stream)
        make = getattr(stream, "make_call", None)
        if make is None:
            return False

        async def made(**options: Any) -> Any:
            chunks = await make(**options)
            self._under(chunks)
            return chunks

        stream.make_call = made
        return True

    @property
    def broke_off(self) -> bool:
        """True where a stream stopped before its end; LiteLLM takes that for a normal end of many.

        Each format ends with a reason to stop. Servers of OpenAI's that leave it out still send
        the usage last; the other formats have usage early on.
        """
        ended = self.finish_reason or ("choices" in self._shapes and self.has_usage)
        return bool(self._shapes) and not ended

    def has(self, call_id: str | None) -> bool:
        """False where this id is LiteLLM's, not the provider's, as far as that can be seen."""
        return self._ids is None or call_id in self._ids

    def _under(self, chunks: Any) -> bool:
        parse = getattr(chunks, "chunk_parser", None)
        if parse is None:
            return False

        def parsed(chunk: Any) -> Any:
            if isinstance(chunk, dict):
                self._take(chunk)
            return parse(chunk)

        chunks.chunk_parser = parsed
        return True

    def _take(self, chunk: dict[str, Any]) -> None:
        try:
            self._see(chunk)
            if self._listener is not None:
                self._listener(chunk)
        except (AttributeError, KeyError, TypeError):  # an odd chunk: LiteLLM may still make sense of it
            self.confused = True

    def _see(self, chunk: dict[str, Any]) -> None:
        self._ids = (self._ids or set()) | set(_ids(chunk))
        error = chunk.get("error")
        if error:
            self.error = str(error.get("message") or error) if isinstance(error, dict) else str(error)
        self._shapes |= {name for name in ("choices", "candidates", "message") if chunk.get(name)}
        self.has_usage = self.has_usage or bool(chunk.get("usage") or chunk.get("usageMetadata"))
        self.finish_reason = _finish_reason(chunk) or self.finish_reason
        for choice in chunk.get("choices") or ():
            part = choice.get("delta") or {}
            self.details += part.get("reasoning_details") or []


def _ids(part: Any, depth: int = 8) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("id"), str):
            yield part["id"]
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
    response = getattr(getattr(stream, "completion_stream", None), "_response", None)
    kind = str(getattr(response, "headers", {}).get("content-type", ""))
    return response if kind.startswith("application/json") else None
