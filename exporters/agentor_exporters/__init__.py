"""Exporters of agentor runs to tracing systems; each name is imported when it is first used."""

from __future__ import annotations

_HOMES = {
    "CelestoTracer": "agentor_exporters.celesto",
    "Export": "agentor_exporters.after",
    "JsonLines": "agentor_exporters.jsonlines",
    "OtelTracer": "agentor_exporters.otel",
    "Target": "agentor_exporters.target",
    "aexport_run": "agentor_exporters.after",
    "export_run": "agentor_exporters.after",
}

__all__ = ["CelestoTracer", "Export", "JsonLines", "OtelTracer", "Target", "aexport_run", "export_run"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentor_exporters' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
