"""Tracers and targets by their names."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import cast

from agentor.errors import AgentorError, UnusableTarget
from agentor_exporters.attributes import Content, Encoder
from agentor_exporters.redaction import Redact
from agentor_exporters.target import Plain, Target
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

        return CelestoTracer(shared=True)
    from agentor_exporters.otel import OtelTracer

    return OtelTracer(None if name == "otel" else target(name), shared=True)


def target(name: str) -> Target:
    """The target of this name: "otlp", "celesto", "json", an exporter of OpenTelemetry, or another package's.

    Raises:
        UnusableTarget: it is set up wrongly, as by a variable that is no address.
        Others as `tracer`.
    """
    try:
        return _target(name)
    except AgentorError:
        raise
    except ValueError as error:
        raise UnusableTarget(name, str(error)) from error


def _target(name: str) -> Target:
    if name == "celesto":
        from agentor_exporters.celesto import CelestoTarget

        return CelestoTarget()
    if name == "json":
        from agentor_exporters.jsonlines import JsonLines

        return JsonLines()
    for entry in entry_points(group=_GROUP, name=name):
        return adapted(entry.load()())
    from agentor_exporters import otlp

    return otlp.of_environment() if name == "environment" else otlp.named(name)


def adapted(place: object) -> Target:
    """An object as a target; of one that is none, only `export` is used.

    Raises:
        TypeError: it has none.
    """
    needed = ("address", "identity", "whole_segments", "samples", "export", "renew", "close")
    if all(hasattr(place, name) for name in needed):
        return cast(Target, place)  # it has all that one needs
    return Plain(place)


def encoder(target: object, content: Content | None, redact: Redact | None) -> Encoder:
    """What makes records for this target."""
    from agentor_exporters.celesto import CelestoEncoder, CelestoTarget

    if isinstance(target, CelestoTarget):
        return CelestoEncoder(content=content or "delta", redact=redact)
    return Encoder(content=content, redact=redact)
