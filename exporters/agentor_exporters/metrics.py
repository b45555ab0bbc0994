"""Metrics of live runs, by the GenAI conventions (v1.41.1, `docs/gen-ai/gen-ai-metrics.md`).

They are never made from a log afterwards: a counter cannot tell that it counts something twice.
"""

from __future__ import annotations

from typing import Any  # the SDK's instruments

from agentor.engine.spans import AgentSpan, ModelSpan, Span, ToolSpan
from agentor_exporters import semconv

try:
    from opentelemetry import metrics
except ImportError as error:
    from agentor.errors import MissingExtra

    raise MissingExtra("opentelemetry-sdk", "otel") from error

_SECONDS = [0.01 * 2**power for power in range(14)]
_AGENT_SECONDS = [0.1 * 2**power for power in range(13)]
_TOKENS = [4**power for power in range(14)]
_COUNTS = [2**power for power in range(8)]


class Meters:
    """The instruments, of one meter.

    Args:
        provider: None: the application's; without one nothing is measured.
    """

    def __init__(self, provider: Any = None) -> None:
        meter = metrics.get_meter(semconv.SCOPE, meter_provider=provider)

        def histogram(name: str, unit: str, bounds: list[Any]) -> Any:
            return meter.create_histogram(name, unit, explicit_bucket_boundaries_advisory=bounds)

        self._duration = histogram("gen_ai.client.operation.duration", "s", _SECONDS)
        self._tokens = histogram("gen_ai.client.token.usage", "{token}", _TOKENS)
        self._first = histogram("gen_ai.client.operation.time_to_first_chunk", "s", _SECONDS)
        self._tool = histogram("gen_ai.execute_tool.duration", "s", _SECONDS)
        self._agent = histogram("gen_ai.invoke_agent.duration", "s", _AGENT_SECONDS)
        self._calls = histogram("gen_ai.invoke_agent.inference_calls", "{inference_call}", _COUNTS)
        self._tools = histogram("gen_ai.invoke_agent.tool_calls", "{tool_call}", _COUNTS)

    def measure(self, span: Span) -> None:
        """Count one span that ended; no run's id is among the attributes."""
        about: dict[str, Any] = {} if span.error_type is None else {semconv.ERROR_TYPE: span.error_type}
        took_s = span.ended_at - span.started_at
        if isinstance(span, ModelSpan):
            self._model(span, about, took_s)
        elif isinstance(span, ToolSpan):
            about |= {semconv.OPERATION: "execute_tool", semconv.TOOL: span.call.name}
            self._tool.record(took_s, {**about, semconv.TOOL_TYPE: "function"})
        elif isinstance(span, AgentSpan):
            about |= {semconv.OPERATION: "invoke_agent", semconv.AGENT: span.agent or "agent"}
            self._agent.record(took_s, about)
            self._calls.record(span.turns, about)
            self._tools.record(span.calls, about)

    def _model(self, span: ModelSpan, about: dict[str, Any], took_s: float) -> None:
        made = span.generation
        provider, host = semconv.asked_of(span)
        about |= {semconv.OPERATION: "chat", semconv.PROVIDER: provider, semconv.MODEL: span.model or "model"}
        if host:
            about[semconv.SERVER] = host
        if made is not None and made.model and made.error is None:
            about[semconv.RESPONSE_MODEL] = made.model
        self._duration.record(took_s, about)
        if made is None:
            return
        if made.time_to_first_chunk is not None:
            self._first.record(made.time_to_first_chunk, about)
        if made.usage is not None:
            self._tokens.record(made.usage.input_tokens, {**about, "gen_ai.token.type": "input"})
            self._tokens.record(made.usage.output_tokens, {**about, "gen_ai.token.type": "output"})
