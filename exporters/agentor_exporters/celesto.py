"""Celesto: the same spans in its ingest format, which is that of the OpenAI Agents SDK."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any  # JSON
from urllib.parse import urlsplit

from agentor.engine import strictjson
from agentor.engine.events import RunStart
from agentor.engine.messages import Usage, block_text
from agentor.engine.spans import AgentSpan, ModelSpan, Span, SpanContext, ToolSpan
from agentor.errors import MissingKey
from agentor_exporters.attributes import Content, Encoder, Record
from agentor_exporters.content import Fitted, clean, parsed
from agentor_exporters.pipeline import LINGER_S
from agentor_exporters.redaction import Redact
from agentor_exporters.semconv import rfc3339
from agentor_exporters.tracer import SpanTracer

DEFAULT_URL = "https://api.celesto.ai/v1"


class CelestoTracer(SpanTracer):
    """Runs to Celesto: one request for each segment, when it is over.

    Args:
        endpoint: The whole address; None: `CELESTO_BASE_URL` (by default Celesto's own) and
            `/traces/ingest`.
        api_key: None: `CELESTO_API_KEY`.
        content: "delta" sends each message once, "full" whole requests, "none" nothing that was said.
        redact, cursors, linger_s: As `OtelTracer`.
        timeout_s: Seconds for one request.
        shared: It is one for the process: `close` only delivers what waits.

    Raises:
        MissingKey: no key.
    """

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        api_key: str | None = None,
        content: Content = "delta",
        redact: Redact | None = None,
        cursors: Path | str | None = None,
        linger_s: float = LINGER_S,
        timeout_s: float = 10.0,
        shared: bool = False,
    ) -> None:
        super().__init__(
            CelestoTarget(endpoint=endpoint, api_key=api_key, timeout_s=timeout_s),
            CelestoEncoder(content=content, redact=redact),
            cursors=cursors,
            linger_s=linger_s,
            shared=shared,
        )


class CelestoEncoder(Encoder):
    """Records whose content is in Celesto's words: `input`, `output`, `tool_calls`, `reasoning`."""

    def _agent(self, span: AgentSpan) -> Record:
        answer = getattr(span.end, "text", None)
        if self.content == "none" or answer is None or span.end is None:
            return self._filled(span, "agent", {}, {})
        told = {"role": "assistant", "content": answer}
        allowed = self.redaction.messages("output_messages", [told], span.end)
        return self._filled(span, "agent", {}, {"output": allowed[0].get("content") if allowed else None})

    def _model(self, span: ModelSpan) -> Record:
        made, said = span.generation, dict[str, Any]()
        if made is not None and self.content != "none":
            request = self.request_of(span)
            # The conversation's instructions stand before its first message.
            first = request[: 1 if span.offset == 1 else 0]
            new = request if self.content == "full" else [*first, *span.new]
            said["input"] = self.redaction.messages("input_messages", new, made, request)
            told = self.redaction.messages("output_messages", [made.message], made)
            if made.error is None and told:
                content = told[0].get("content")
                said["output"] = block_text(content) if isinstance(content, list) else content
                said["tool_calls"] = told[0].get("tool_calls")
                said["reasoning"] = told[0].get("reasoning_content")
        return self._filled(span, "generation", {}, said)

    def _tool(self, span: ToolSpan) -> Record:
        call, result = span.call, span.result
        said: dict[str, Any] = {}
        if self.content != "none":
            arguments = call.args if call.args is not None else parsed(call.arguments or "")
            said["input"] = self.redaction.piece("tool_arguments", arguments, call)
            if result is not None and result.error is None:
                said["output"] = self.redaction.piece("tool_result", result.content, result)
        return self._filled(span, "function", {}, said)

    def _filled(self, span: Span, name: str, known: dict[str, Any], said: dict[str, Any]) -> Record:
        fitted = Fitted(self.limit_bytes)
        content = {key: fitted.json(value) for key, value in said.items() if value is not None}
        return Record(span, name, {}, content)


class CelestoTarget:
    """Celesto's ingest (`POST {base}/traces/ingest`). A key alone is no consent: name it as a tracer."""

    whole_segments = True

    def __init__(
        self, *, endpoint: str | None = None, api_key: str | None = None, timeout_s: float = 10.0
    ) -> None:
        key = api_key or os.environ.get("CELESTO_API_KEY")
        if not key:
            raise MissingKey("CELESTO_API_KEY", "traces to Celesto")
        base = os.environ.get("CELESTO_BASE_URL") or DEFAULT_URL
        self._endpoint = endpoint or f"{base.rstrip('/')}/traces/ingest"
        parts = urlsplit(self._endpoint)
        self.address = f"celesto {parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self.identity = f"{self.address} {hashlib.sha256(key.encode()).hexdigest()}"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._timeout_s = timeout_s
        self._client: Any = None  # httpx takes its time to import

    def samples(self, context: SpanContext, caller: SpanContext | None) -> bool:
        """Celesto wants every trace."""
        return True

    def export(self, records: Sequence[Record]) -> bool:
        """One request; True for an answer of 2xx."""
        if self._client is None:
            import httpx

            self._client = httpx.Client(timeout=self._timeout_s, headers=self._headers)
        body = strictjson.dump_bytes(payload(records))
        return bool(self._client.post(self._endpoint, content=body).is_success)

    def renew(self) -> None:
        """A new connection at the next request: the old one is the parent's."""
        self._client = None

    def close(self, timeout_s: float) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()


def payload(records: Sequence[Record]) -> dict[str, Any]:
    """The body of a request: each trace, then its spans."""
    traces: dict[str, dict[str, Any]] = {}
    spans = []
    for record in records:
        place = record.span.context
        known = traces.setdefault(place.trace_id, _trace(record.span))
        if isinstance(record.span, AgentSpan):
            known["metadata"].update(_metadata(record.span))
        spans.append(_span(record))
    return {"data": [*traces.values(), *spans]}


def _trace(span: Span) -> dict[str, Any]:
    return {
        "object": "trace",
        "id": f"trace_{span.context.trace_id}",
        "workflow_name": clean(span.agent or "agent"),
        "group_id": span.conversation and clean(span.conversation),  # a run, its follow-ups and its forks
        "metadata": {"run_id": span.run_id, "segment": span.segment},
    }


def _metadata(span: AgentSpan) -> Iterator[tuple[str, Any]]:
    if isinstance(span.start, RunStart):
        yield from (span.start.trace_metadata or {}).items()
    yield "segment", span.segment
    if span.fork is not None:
        yield "forked_from", span.fork.forked_from
        yield "forked_at", span.fork.parent_seq
    for link in span.links:
        yield f"{link.kind}_of", f"span_{link.context.span_id}"
        yield f"{link.kind}_of_trace", f"trace_{link.context.trace_id}"


def _span(record: Record) -> dict[str, Any]:
    span = record.span
    said = {key: strictjson.loads(text) for key, text in record.content.items()}
    sent: dict[str, Any] = {
        "object": "trace.span",
        "span_id": f"span_{span.context.span_id}",
        "trace_id": f"trace_{span.context.trace_id}",
        "parent_id": None if span.parent is None else f"span_{span.parent.span_id}",
        "started_at": rfc3339(span.started_at),
        "ended_at": rfc3339(span.ended_at),
        "span_data": _data(span, said),
    }
    if span.error_type is not None:
        sent["error"] = {"message": record.error or span.error_type, "data": {"type": span.error_type}}
    return sent


def _data(span: Span, said: dict[str, Any]) -> dict[str, Any]:
    if isinstance(span, ModelSpan):
        made = span.generation
        data = {
            "type": "generation",
            "model": span.model if made is None else made.model,
            "input": said.get("input", []),
            "output": said.get("output"),
            "tool_calls": said.get("tool_calls"),
            "usage": None if made is None else _usage(made.usage),
        }
        return data | ({"reasoning": said["reasoning"]} if "reasoning" in said else {})
    if isinstance(span, ToolSpan):
        name = clean(span.call.name)
        return {"type": "function", "name": name, "input": said.get("input"), "output": said.get("output")}
    assert isinstance(span, AgentSpan)
    return {
        "type": "agent",
        "name": clean(span.agent or "agent"),
        "model": span.start.model if isinstance(span.start, RunStart) else None,
        "output": said.get("output"),
        "status": span.status,
        "usage": _usage(span.usage),
    }


def _usage(usage: Usage | None) -> dict[str, int] | None:
    if usage is None or not usage.to_dict():
        return None
    total = usage.total_tokens or usage.input_tokens + usage.output_tokens
    counted = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {**usage.to_dict(), **counted, "total_tokens": total}
