"""OpenTelemetry: an application's own provider, or any exporter or processor of its SDK."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # parts of the SDK that have no public type

from agentor.engine.spans import AgentSpan, Span
from agentor.engine.spans import SpanContext as Place
from agentor.errors import MissingExtra
from agentor_exporters import names, semconv
from agentor_exporters.attributes import Content, Encoder, Record
from agentor_exporters.metrics import Meters
from agentor_exporters.pipeline import LINGER_S
from agentor_exporters.redaction import Redact
from agentor_exporters.target import Target, is_switched_off
from agentor_exporters.tracer import SpanTracer

try:
    from opentelemetry import context, trace
    from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode
except ImportError as error:
    raise MissingExtra("opentelemetry-sdk", "otel") from error


class OtelTracer(SpanTracer):
    """Runs as OpenTelemetry spans and metrics.

    Args:
        to: A `TracerProvider` (None: the application's), or a `SpanExporter` or `SpanProcessor`. The
            global provider is never set. Through a provider, its sampler, limits and processors count,
            and it alone decides when spans leave the process.
        content: "none", "delta" for each message once, "full" for whole requests. None: what
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, by default nothing.
        redact: `redact(kind, value, event)` for each piece of content; see `agentor_exporters.attributes`.
        dialects: "openinference", "langfuse": keys that these dashboards read besides.
        cursors: A folder for cursors, for stores that have none beside their logs.
        linger_s: Seconds that spans are gathered before they are sent.
        meter_provider: For metrics; None: the application's.
        shared: It is one for the process: `close` only delivers what waits.

    Raises:
        ValueError: None, and the application has no provider.
        TypeError: none of these.
    """

    def __init__(
        self,
        to: trace.TracerProvider | SpanExporter | SpanProcessor | Target | None = None,
        *,
        content: Content | None = None,
        redact: Redact | None = None,
        dialects: tuple[str, ...] | None = None,
        cursors: Path | str | None = None,
        linger_s: float = LINGER_S,
        meter_provider: Any = None,
        shared: bool = False,
    ) -> None:
        super().__init__(
            target_of(to),
            Encoder(content=content, redact=redact, dialects=dialects),
            cursors=cursors,
            linger_s=linger_s,
            shared=shared,
        )
        self._meters = Meters(meter_provider)

    def caller(self) -> Place | None:
        """The span that is current in the application's context."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        sampled = bool(found.trace_flags & TraceFlags.SAMPLED)
        return Place(f"{found.trace_id:032x}", f"{found.span_id:016x}", sampled)

    @contextmanager
    def use_span(self, place: Place) -> Iterator[None]:
        """Make the span that will be exported later the parent of what other libraries record."""
        token = context.attach(_context_of(place))
        try:
            yield
        finally:
            context.detach(token)

    def wanted(self, context: Place, caller: Place | None) -> bool:
        """Nothing is, where the variables switch OpenTelemetry off."""
        return not is_switched_off() and super().wanted(context, caller)

    def measure(self, span: Span) -> None:
        """Count a live span in the metrics."""
        self._meters.measure(span)


def target_of(to: object) -> Target:
    """The target for a provider, an exporter or a processor; a target is one already.

    Raises:
        ValueError, TypeError: as `OtelTracer`.
    """
    if to is None:
        to = trace.get_tracer_provider()
        if isinstance(to, trace.ProxyTracerProvider):
            raise ValueError(
                "the application has set no TracerProvider; give one, or an exporter, or use 'otlp'"
            )
    if isinstance(to, SpanExporter | SpanProcessor):
        return ExporterTarget(to)
    if isinstance(to, trace.TracerProvider):
        return ProviderTarget(to)
    if not callable(getattr(to, "export", None)):
        raise TypeError(
            "OtelTracer takes a TracerProvider, a SpanExporter or a SpanProcessor of OpenTelemetry's SDK, or "
            f"an object with export(records) -> bool, not {to!r}"
        )
    return names.adapted(to)


class ExporterTarget:
    """Finished spans to an exporter or a processor, under exactly their own ids.

    The SDK's own road would be by a provider, which gives out ids at random and holds spans open; so its
    sampler and its limits, which the standard variables set, are asked here.

    Args:
        to: The object, or a function that makes it, so that a forked child gets its own.
        address: Names the place for people; None: the exporter's class.
    """

    whole_segments = False

    def __init__(
        self, to: SpanExporter | SpanProcessor | Callable[[], SpanExporter], *, address: str | None = None
    ) -> None:
        self._make = None if isinstance(to, SpanExporter | SpanProcessor) else to
        self._to = to if isinstance(to, SpanExporter | SpanProcessor) else to()
        self.address = address or type(self._to).__name__
        self.identity = _identity(self._to)
        provider = TracerProvider(shutdown_on_exit=False)  # never global: it only reads the variables
        self._resource, self._sampler = provider.resource, provider.sampler
        limit = SpanLimits().max_span_attributes
        self._limit = semconv.MAX_ATTRIBUTES if limit is None else limit
        self._scope = InstrumentationScope(
            semconv.SCOPE, _version(), semconv.conventions_of_environment().schema_url
        )
        self._closed = threading.Lock()

    def samples(self, place: Place, caller: Place | None) -> bool:
        """The sampler's word on the trace's root, which depends on its ids alone."""
        return _sampled(self._sampler, place, caller)

    def export(self, records: Sequence[Record]) -> bool:
        """Hand over the spans; for an exporter, True once it has delivered them."""
        spans = [self._span(record) for record in records]
        if isinstance(self._to, SpanExporter):
            return self._to.export(spans) is SpanExportResult.SUCCESS
        for span in spans:
            self._to.on_end(span)
        return True

    def renew(self) -> None:
        """A new exporter, where it is known how one is made; one that was given stays as it is."""
        if self._make is not None:
            self._to, self._closed = self._make(), threading.Lock()

    def close(self, timeout_s: float) -> None:
        """Shut the exporter or processor down."""
        if self._closed.acquire(blocking=False):  # both ask: the pipeline's end and its impatient closer
            self._to.shutdown()

    def _span(self, record: Record) -> ReadableSpan:
        span = record.span
        attributes = dict(list(record.all_attributes().items())[: self._limit])
        return ReadableSpan(
            name=record.name,
            context=_span_context(span.context),
            parent=None if span.parent is None else _span_context(span.parent),
            resource=self._resource,
            attributes=attributes,
            events=_events(record),
            links=_links(record),
            kind=SpanKind.CLIENT if record.is_client else SpanKind.INTERNAL,
            instrumentation_scope=self._scope,
            status=_status(record),
            start_time=_start_ns(span),
            end_time=_end_ns(span),
        )


class ProviderTarget:
    """Spans through an application's provider: its sampler, limits and processors count.

    They have their own ids where the provider is the SDK's; another one gives its own. When they arrive
    only its processors know, so nothing is noted as delivered.
    """

    whole_segments, identity = False, None

    def __init__(self, provider: trace.TracerProvider) -> None:
        self.address = "provider"
        self._sampler = getattr(provider, "sampler", None)
        self._tracer = provider.get_tracer(
            semconv.SCOPE, _version(), schema_url=semconv.conventions_of_environment().schema_url
        )
        self._ids = _ids_of(self._tracer)

    def samples(self, place: Place, caller: Place | None) -> bool:
        """What the provider's sampler will say of the trace's root."""
        return self._sampler is None or _sampled(self._sampler, place, caller)

    def export(self, records: Sequence[Record]) -> bool:
        """Start and end each span, at its own times."""
        for record in records:
            span = record.span
            if self._ids is not None:
                self._ids.announce(span.context)
            parent = context.Context() if span.parent is None else _context_of(span.parent)
            live = self._tracer.start_span(
                record.name,
                context=parent,
                kind=SpanKind.CLIENT if record.is_client else SpanKind.INTERNAL,
                attributes=record.all_attributes(),
                links=_links(record),
                start_time=_start_ns(span),
            )
            for event in _events(record):
                live.add_event(event.name, event.attributes, event.timestamp)
            status = _status(record)
            if status.status_code is StatusCode.ERROR:
                live.set_status(status)
            live.end(_end_ns(span))
        return True

    def renew(self) -> None:
        """Nothing: the provider is the application's."""

    def close(self, timeout_s: float) -> None:
        """Nothing either."""


class _Ids(IdGenerator):
    """Gives out the ids of the span that this thread is about to start."""

    def __init__(self, before: IdGenerator) -> None:
        self._before = before
        self._next = threading.local()

    def announce(self, place: Place) -> None:
        """The next span of this thread is this one."""
        self._next.place = place

    def generate_span_id(self) -> int:
        found = getattr(self._next, "place", None)
        return self._before.generate_span_id() if found is None else int(found.span_id, 16)

    def generate_trace_id(self) -> int:
        found = getattr(self._next, "place", None)
        return self._before.generate_trace_id() if found is None else int(found.trace_id, 16)

    def is_trace_id_random(self) -> bool:
        return False


def _ids_of(tracer: Any) -> _Ids | None:
    """The SDK keeps one tracer for each name, so all that go by one provider share its ids."""
    before = getattr(tracer, "id_generator", None)
    if before is None:
        return None  # not the SDK's: it gives out its own ids
    if not isinstance(before, _Ids):
        tracer.id_generator = _Ids(before)
    ids: _Ids = tracer.id_generator
    return ids


def _identity(to: object) -> str | None:
    """Where an exporter sends to, and as whom; None where it does not show that."""
    endpoint = getattr(to, "_endpoint", None)
    if not isinstance(endpoint, str):
        return None
    client = getattr(to, "_client", None)
    headers = str(getattr(to, "_headers", None) or getattr(client, "_headers", None) or "")
    return f"{type(to).__module__} {endpoint} {hashlib.sha256(headers.encode()).hexdigest()}"


def _sampled(sampler: Any, place: Place, caller: Place | None) -> bool:
    parent = context.Context() if caller is None else _context_of(caller)
    result = sampler.should_sample(parent, int(place.trace_id, 16), "invoke_agent", SpanKind.INTERNAL, {}, ())
    return bool(result.decision.is_sampled())


def _span_context(place: Place) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if place.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=False, trace_flags=flags)


def _context_of(place: Place) -> context.Context:
    return trace.set_span_in_context(NonRecordingSpan(_span_context(place)))


def _links(record: Record) -> list[Link]:
    return [Link(_span_context(link.context), {semconv.LINK: link.kind}) for link in record.span.links]


def _events(record: Record) -> list[Event]:
    shift_ns = record.span.seq % 1000 * 1000  # as the span itself
    return [Event(name, attributes, _ns(at) + shift_ns) for name, at, attributes in record.events]


def _status(record: Record) -> Status:
    if record.span.error_type is None:
        return Status(StatusCode.UNSET)
    return Status(StatusCode.ERROR, record.error)


def _ns(at: float) -> int:
    return round(at * 1000) * 1_000_000  # the log counts milliseconds; a float has no nanoseconds


def _start_ns(span: Span) -> int:
    """With the event's number as microseconds: dashboards sort what begins in the same millisecond."""
    return _ns(span.started_at) + span.seq % 1000 * 1000


def _end_ns(span: Span) -> int:
    last = isinstance(span, AgentSpan)  # it ends behind all that is in it
    return _ns(span.ended_at) + (999 if last else span.seq % 1000) * 1000


def _version() -> str:
    from importlib.metadata import version

    return version("agentor")
