"""From a span of the engine to what is sent of it: name, attributes, and content where that is wanted."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal  # Any: content is provider JSON

from agentor.engine import strictjson
from agentor.engine.events import Event, Fork, Generation, RunEnd, RunStart, ToolResult
from agentor.engine.messages import Message
from agentor.engine.spans import AgentSpan, ModelSpan, Span, ToolSpan
from agentor.engine.words import INTERRUPTED
from agentor_exporters import semconv
from agentor_exporters.content import (
    MAX_ATTRIBUTE_BYTES,
    SHORT,
    Fitted,
    clean,
    finish_reason,
    instructions,
    last_text,
    message,
    messages,
    parsed,
    structured,
)
from agentor_exporters.redaction import Redact, Redaction

log = logging.getLogger("agentor.tracing")
Content = Literal["none", "delta", "full"]
Value = str | int | float | bool | tuple[str, ...]
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_LIMITS = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_OVERHEAD_BYTES = 64  # of an attribute, and of a span, as they are sent


@dataclass(frozen=True, slots=True)
class Record:
    """A span as it is sent. `error` is the message, where content may be sent."""

    span: Span
    name: str
    attributes: Mapping[str, Value]
    content: Mapping[str, str] = field(default_factory=dict)  # JSON texts
    error: str | None = None
    events: tuple[tuple[str, float, Mapping[str, Value]], ...] = ()  # name, epoch seconds, attributes
    size_bytes: int = field(init=False, compare=False)  # about what it takes on the wire

    @property
    def is_client(self) -> bool:
        return isinstance(self.span, ModelSpan)

    def __post_init__(self) -> None:
        texts = [*self.attributes.values(), *self.content.values(), self.error or ""]
        size = sum(len(t.encode("utf-8", "replace")) if isinstance(t, str) else 8 for t in texts)
        object.__setattr__(self, "size_bytes", size + _OVERHEAD_BYTES * (len(texts) + 2))

    def without_content(self) -> Record:
        """The same without what was said."""
        return replace(self, content={}, error=None)

    def all_attributes(self) -> dict[str, Value]:
        """Attributes and content, the most important first, at most `semconv.MAX_ATTRIBUTES`."""
        room = semconv.MAX_ATTRIBUTES - len(self.content)
        return {**dict(list(self.attributes.items())[:room]), **self.content}


class Encoder:
    """Makes records of spans.

    Args:
        content: "none"; "delta" for each message once; "full" for the whole request on every model
            span. None: what `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, or "none".
        redact: Called with each piece of content before it is sent, as `redact(kind, value, event)`;
            what it returns is sent, None sends nothing. `kind` is `input_messages` or
            `output_messages` (a list of messages in OpenAI's chat shape), `system_instructions`,
            `tool_result` or `error_message` (texts), or `tool_arguments` (JSON). Results and arguments
            inside of messages are asked about on their own too.
        dialects: "openinference" (Phoenix) and "langfuse" add the few keys that these read besides. None:
            what `AGENTOR_TRACE_DIALECTS` lists, and "openinference" where `OTEL_RESOURCE_ATTRIBUTES`
            names a project of Phoenix.

    Raises:
        ValueError: an unknown `content` or dialect.
    """

    def __init__(
        self,
        *,
        content: Content | None = None,
        redact: Redact | None = None,
        dialects: tuple[str, ...] | None = None,
    ) -> None:
        dialects = dialects_of_environment() if dialects is None else dialects
        if content not in (None, "none", "delta", "full"):
            raise ValueError(f"content must be 'none', 'delta' or 'full', not {content!r}")
        if unknown := set(dialects) - {"openinference", "langfuse"}:
            raise ValueError(f"unknown dialects: {', '.join(sorted(unknown))}")
        self.content: Content = content or content_of_environment()
        self.redaction, self._dialects = Redaction(redact), dialects
        self._names = semconv.conventions_of_environment()
        limits = [int(v) for n in _LIMITS if (v := os.environ.get(n, "").strip()).isdigit()]
        self.limit_bytes = min([MAX_ATTRIBUTE_BYTES, *limits])

    def record(self, span: Span) -> Record:
        """What is sent of a span."""
        try:
            record = self._record(span)
        except Exception as error:  # a log of another's making, with what no message can be
            log.warning("run %r: a span goes without content (%s)", span.run_id, type(error).__name__)
            silent = copy.copy(self)
            silent.content = "none"
            record = silent._record(span)
        return replace(record, span=_bare(record.span))

    def _record(self, span: Span) -> Record:
        if isinstance(span, AgentSpan):
            record = self._agent(span)
        elif isinstance(span, ModelSpan):
            record = self._model(span)
        else:
            assert isinstance(span, ToolSpan)
            record = self._tool(span)
        if span.error_type == INTERRUPTED and span.error is None:  # nobody said it, and it says why
            during = span.during if isinstance(span, AgentSpan) else None
            return replace(record, error=f"its process ended{f' in {during}' if during else ''}")
        if self.content == "none" or span.error is None:
            return record
        event = _closing(span)
        said = None if event is None else self.redaction.piece("error_message", span.error, event)
        return replace(record, error=None if said is None else clean(str(said))[: self.limit_bytes])

    # --- kinds ----------------------------------------------------------------------------------

    def _agent(self, span: AgentSpan) -> Record:
        start = span.start
        model = start.model if isinstance(start, RunStart) else None
        known = _common(span, "invoke_agent")
        if self._names.provider_on_agent and model:
            known[semconv.PROVIDER] = semconv.provider_of(model, None)[0]
        known |= {semconv.MODEL: model, semconv.STATUS: span.status, semconv.DURING: span.during}
        known |= {semconv.TURNS: span.turns, semconv.CALLS: span.calls}
        if span.usage.to_dict():
            known |= {semconv.USAGE_IN: span.usage.input_tokens, semconv.USAGE_OUT: span.usage.output_tokens}
        if span.fork is not None:
            known |= {semconv.FORKED_FROM: span.fork.forked_from, semconv.FORKED_AT: span.fork.parent_seq}
        if isinstance(start, Fork):
            known[semconv.COPY] = True
        if isinstance(start, RunStart) and start.parent:
            known[semconv.PARENT_RUN] = start.parent.get("run_id")
        if isinstance(start, RunStart) and start.trace_metadata:
            known[semconv.METADATA] = strictjson.dumps(start.trace_metadata)
        name = "invoke_agent" if span.agent is None else f"invoke_agent {span.agent}"
        return self._with_texts(self._filled(span, name, known, self._said_by_agent(span)))

    def _said_by_agent(self, span: AgentSpan) -> dict[str, Any]:
        start, said = span.start, dict[str, Any]()
        if self.content == "none":
            return said
        if isinstance(start, RunStart):
            said[semconv.SYSTEM_INSTRUCTIONS] = self._instructions(start.system, start)
            asked = self.redaction.messages("input_messages", start.messages, start)
            said[semconv.INPUT_MESSAGES] = messages(asked) or None
        answer = getattr(span.end, "text", None)
        if answer is not None and span.end is not None:
            told = {"role": "assistant", "content": answer}
            said[semconv.OUTPUT_MESSAGES] = self._output(told, "stop", span.error_type is not None, span.end)
        return said

    def _instructions(self, text: str | None, event: Event) -> list[dict[str, Any]] | None:
        allowed = self.redaction.piece("system_instructions", text, event)
        return None if allowed is None else instructions(str(allowed))

    def _output(
        self, told: Message, reason: str | None, failed: bool, event: Event
    ) -> list[dict[str, Any]] | None:
        allowed = self.redaction.messages("output_messages", [told], event)
        return [{**message(one), "finish_reason": finish_reason(reason, failed)} for one in allowed] or None

    def _model(self, span: ModelSpan) -> Record:
        made, usage = span.generation, None if span.generation is None else span.generation.usage
        provider, host = semconv.asked_of(span)
        known = _common(span, "chat")
        known |= {semconv.PROVIDER: provider, semconv.MODEL: span.model, semconv.SERVER: host}
        if usage is not None:
            known |= {semconv.INPUT_TOKENS: usage.input_tokens, semconv.OUTPUT_TOKENS: usage.output_tokens}
            known[semconv.CACHE_READ] = usage.cached_input_tokens or None
            known[self._names.cache_write] = usage.cache_write_input_tokens or None
            known[semconv.REASONING_TOKENS] = usage.reasoning_tokens or None
        known |= {semconv.TURN: span.turn, semconv.SEQ: span.seq}
        if made is not None:
            if made.error is None:
                known[semconv.FINISH_REASONS] = (finish_reason(made.finish_reason, False),)
                known[semconv.RESPONSE_MODEL] = made.model
            known |= {semconv.RESPONSE_ID: made.response_id, semconv.COST: made.cost}
            known[semconv.FIRST_CHUNK] = made.time_to_first_chunk
        known[semconv.STREAM] = True if span.streams else None
        known |= {
            key: _setting(name, (span.params or {}).get(name)) for name, key in semconv.SETTINGS.items()
        }
        known[semconv.OFFSET] = (span.offset or None) if self.content == "delta" else None
        if "langfuse" in self._dialects and made is not None and made.time_to_first_chunk is not None:
            first = (made.started_at or span.started_at) + made.time_to_first_chunk
            known["langfuse.observation.completion_start_time"] = semconv.rfc3339(first)
        name = "chat" if span.model is None else f"chat {span.model}"
        record = self._with_texts(self._filled(span, name, known, self._said_by_model(span)))
        attempts = span.retries if made is not None else span.retries[:-1]
        events: tuple[tuple[str, float, Mapping[str, Value]], ...] = tuple(
            (
                semconv.RETRY,
                attempt.at or span.started_at,
                {
                    semconv.ATTEMPT: attempt.attempt,
                    semconv.ERROR_TYPE: clean(attempt.error_type or "error"),
                    "agentor.wait_s": attempt.wait_s or 0.0,
                },
            )
            for attempt in attempts
        )
        return replace(record, events=events)

    def _said_by_model(self, span: ModelSpan) -> dict[str, Any]:
        made, said = span.generation, dict[str, Any]()
        if made is None or self.content == "none":
            return said
        request = self.request_of(span)
        shown = {
            call_id: f"[result of {tool.call.name}, in span {tool.context.span_id}]"
            for call_id, tool in span.shown.items()
        }
        new = span.new if self.content == "delta" else request
        asked = self.redaction.messages("input_messages", new, made, request)
        said[semconv.INPUT_MESSAGES] = messages(asked, shown if self.content == "delta" else None) or None
        if span.offset == 1 and self.content == "delta" and request and request[0].get("role") == "system":
            said[semconv.SYSTEM_INSTRUCTIONS] = self._instructions(str(request[0].get("content")), made)
        if made.error is None:
            said[semconv.OUTPUT_MESSAGES] = self._output(made.message, made.finish_reason, False, made)
        return said

    def request_of(self, span: ModelSpan) -> Sequence[Message]:
        """The whole request, where this encoder needs it; else what is new in it."""
        needed = self.content == "full" or self.redaction.is_set or span.offset == 1
        if not needed or span.generation is None:
            return span.new
        try:
            return span.generation.messages
        except LookupError:
            return span.new

    def _tool(self, span: ToolSpan) -> Record:
        call, result = span.call, span.result
        known = _common(span, "execute_tool")
        known |= {semconv.TOOL: call.name, semconv.CALL_ID: call.call_id, semconv.TOOL_TYPE: "function"}
        known |= {semconv.TURN: call.turn, semconv.SEQ: span.seq}
        known[semconv.ATTEMPT] = call.attempt if call.attempt > 1 else None
        known[semconv.CHILD_RUN] = call.child
        said: dict[str, Any] = {}
        if self.content != "none":
            text = call.arguments if call.edited_args is None else None
            if self.content == "full" or text is None or len(text.encode("utf-8", "replace")) <= SHORT:
                value = call.args if call.args is not None else parsed(call.arguments or "") or None
                said[semconv.ARGUMENTS] = self.redaction.piece("tool_arguments", value, call)
            if result is not None and result.error is None:
                allowed = self.redaction.piece("tool_result", result.content, result)
                said[semconv.RESULT] = structured(allowed) if isinstance(allowed, str) else allowed
        return self._filled(span, f"execute_tool {call.name}", known, said)

    # --- content --------------------------------------------------------------------------------

    def _filled(self, span: Span, name: str, known: dict[str, Any], said: dict[str, Any]) -> Record:
        content: dict[str, str] = {}
        fitted = Fitted(self.limit_bytes)
        for key, value in said.items():
            if value is not None:
                content[key] = fitted.text(value) if isinstance(value, str) else fitted.json(value)
        if fitted.cut:
            known[semconv.TRUNCATED] = True
            known[semconv.CONTENT_BYTES] = fitted.whole_bytes
        known[semconv.ERROR_TYPE] = span.error_type
        if "openinference" in self._dialects:
            kinds = {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL"}
            known["openinference.span.kind"] = kinds[str(known[semconv.OPERATION])]
            known["session.id"] = span.conversation
        attributes = {
            key: _sendable(value)
            for key, value in sorted(known.items(), key=_importance)
            if value is not None
        }
        return Record(span, clean(name), attributes, content)

    def _with_texts(self, record: Record) -> Record:
        """With the plain texts that lists in Phoenix show: what was asked last, and the answer."""
        if "openinference" not in self._dialects:
            return record
        sides = {"input": semconv.INPUT_MESSAGES, "output": semconv.OUTPUT_MESSAGES}
        texts = {side: last_text(record.content.get(key)) for side, key in sides.items()}
        extra = {f"{side}.value": text for side, text in texts.items() if text}
        kinds: dict[str, Value] = {f"{side}.mime_type": "text/plain" for side, text in texts.items() if text}
        return replace(record, content={**record.content, **extra}, attributes={**record.attributes, **kinds})


def _bare(span: Span) -> Span:
    """The span without what was said: a record may wait for long, and no conversation with it."""
    if isinstance(span, AgentSpan):
        start, end = span.start, span.end
        if isinstance(start, RunStart):
            start = replace(start, messages=[], system=None, fingerprint=None, tools=None, output=None)
        if isinstance(end, RunEnd):
            end = replace(end, text=None, error=None)
        return replace(span, start=start, end=end, error=None)
    if isinstance(span, ModelSpan):
        made = span.generation
        if made is not None:
            made = Generation(seq=made.seq, at=made.at, turn=made.turn, model=made.model, usage=made.usage)
        return replace(span, generation=made, retries=(), new=(), shown={}, params=None, error=None)
    assert isinstance(span, ToolSpan)
    call = replace(span.call, arguments=None, edited_args=None)
    result = span.result
    if result is not None:
        result = ToolResult(seq=result.seq, at=result.at, name=result.name, call_id=result.call_id)
    return replace(span, call=call, result=result, error=None)


def dialects_of_environment() -> tuple[str, ...]:
    """The dialects that the variables ask for."""
    listed = [name.strip() for name in os.environ.get("AGENTOR_TRACE_DIALECTS", "").split(",")]
    if "openinference.project.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        listed.append("openinference")
    return tuple(dict.fromkeys(name for name in listed if name))


def content_of_environment() -> Content:
    """ "delta" where the standard variable asks for content on spans, in its new words or the old ones."""
    value = os.environ.get(_CAPTURE, "").strip().lower()
    return "delta" if value in ("span_only", "span_and_event", "true", "1") else "none"


def _sendable(value: Any) -> Any:
    """A value that OTLP has: valid UTF-8, and integers of 64 bits."""
    if isinstance(value, str):
        return clean(value)
    return float(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def _common(span: Span, operation: str) -> dict[str, Any]:
    return {
        semconv.OPERATION: operation,
        semconv.AGENT: span.agent,
        semconv.CONVERSATION: span.conversation,
        semconv.RUN: span.run_id,
        semconv.SEGMENT: span.segment,
    }


def _importance(item: tuple[str, Any]) -> bool:
    """Settings last: they are the ones that a span without room goes without."""
    return item[0] in semconv.SETTINGS.values()


def _closing(span: Span) -> Event | None:
    if isinstance(span, AgentSpan):
        return span.end
    if isinstance(span, ModelSpan):
        return span.generation or (span.retries[-1] if span.retries else None)
    return span.result if isinstance(span, ToolSpan) else None


def _setting(name: str, value: Any) -> Value | None:
    if name == "stop" and value is not None:
        return (value,) if isinstance(value, str) else tuple(str(item) for item in value)
    return value if isinstance(value, str | int | float) else None
