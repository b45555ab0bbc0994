"""Which tracer a run is shown to: one that was given, one by its name, or the application's own."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any  # what a module holds

from agentor.engine.observer import Observer, Tracer
from agentor.errors import MissingExtra

Tracing = bool | str | Observer | Tracer | None
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def checked_tracer(tracer: str | Observer | Tracer | None, enabled: bool) -> Observer | Tracer | None:
    """An agent's own tracer; None where it has none, and each run looks for the application's.

    Args:
        tracer: An object, or a name such as "otlp" or "celesto".
        enabled: `enable_tracing=True`: without another tracer it means Celesto.

    Raises:
        TypeError, ValueError: no tracer, or a name that nobody knows.
        MissingExtra: its packages are not installed.
        MissingKey: Celesto without a key.
    """
    if tracer is None:
        return named("celesto") if enabled else None
    return _object(tracer)


def tracer_for(tracing: Tracing, own: Observer | Tracer | None) -> Observer | Tracer | None:
    """Who is shown a run's next segment.

    Args:
        tracing: As given for the run: False for nobody, True for the agent's tracer or else Celesto,
            None for the agent's or else the application's, or a tracer.
        own: The agent's.

    Raises: as `checked_tracer`.
    """
    if tracing is False:
        return None
    if tracing is None:
        return own or _of_application()
    if tracing is True:
        return own or named("celesto")
    return _object(tracing)


def _object(tracer: str | Observer | Tracer) -> Observer | Tracer:
    if isinstance(tracer, str):
        return named(tracer)
    if not callable(tracer) and not isinstance(tracer, Tracer):
        raise TypeError(
            f"a tracer is a name such as 'otlp', a callable that gets each event, or an object with "
            f"segment(), not {tracer!r}"
        )
    return tracer


def setup_celesto_tracing(endpoint: str, token: str, *, timeout: float = 10.0) -> Tracer:
    """A tracer for Celesto's ingest; give it as `tracer=`.

    Args:
        endpoint: The whole address that traces are posted to.
        timeout: Seconds for one request.
    """
    made: Tracer = _exporters("celesto").CelestoTracer(endpoint=endpoint, api_key=token, timeout_s=timeout)
    return made


@cache
def named(name: str) -> Tracer:
    """The tracer of this name, one for the process.

    Raises: as `checked_tracer`.
    """
    make: Callable[[str], Tracer] = _exporters("names").tracer
    return make(name)


def _of_application() -> Tracer | None:
    """The tracer for an application that has set up OpenTelemetry, in code or by the standard variables.

    OpenTelemetry is not imported to find out: who has set it up in code has imported it.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if not (_has_provider() or _wants_export()):
        return None
    try:
        return named("otel" if _has_provider() else "environment")
    except (MissingExtra, ValueError) as error:  # nobody asked in code: the run goes on without
        warnings.warn(f"OpenTelemetry is set up, but agentor sends no traces: {error}", stacklevel=5)
        return None


def _has_provider() -> bool:
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return False
    provider = api.get_tracer_provider()
    return not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)


def _wants_export() -> bool:
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return wanted != "none" and bool(wanted or any(os.environ.get(name) for name in _ENDPOINTS))


def _exporters(module: str) -> Any:
    return import_module(f"agentor_exporters.{module}")
