"""Tracers and targets by their names."""

from __future__ import annotations

from importlib.metadata import entry_points

from agentor_exporters.attributes import Content, Encoder, Redact
from agentor_exporters.target import Target
from agentor_exporters.tracer import SpanTracer

_GROUP = "agentor_exporters"  # entry points of others: name -> a function that makes a target


def tracer(name: str) -> SpanTracer:
    """A tracer: "otel" for the application's provider, "environment" for what the standard variables name,
    else one to the target of this name.

    Raises:
        ValueError: nobody knows the name.
        MissingExtra, MissingKey: something is not installed, or not set.
    """
    if name == "celesto":
        from agentor_exporters.celesto import CelestoTracer

        return CelestoTracer()
    from agentor_exporters.otel import OtelTracer

    return OtelTracer(None if name == "otel" else target(name))


def target(name: str) -> Target:
    """The target of this name: "otlp", "celesto", "json", an exporter of OpenTelemetry, or another package's.

    Raises: as `tracer`.
    """
    if name == "celesto":
        from agentor_exporters.celesto import CelestoTarget

        return CelestoTarget()
    if name == "json":
        from agentor_exporters.jsonlines import JsonLines

        return JsonLines()
    for entry in entry_points(group=_GROUP, name=name):
        made: Target = entry.load()()
        return made
    from agentor_exporters import otlp

    return otlp.of_environment() if name == "environment" else otlp.named(name)


def encoder(target: Target, content: Content | None, redact: Redact | None) -> Encoder:
    """What makes records for this target."""
    from agentor_exporters.celesto import CelestoEncoder, CelestoTarget

    if isinstance(target, CelestoTarget):
        return CelestoEncoder(content=content or "delta", redact=redact)
    return Encoder(content=content, redact=redact)
