"""Our own way to OTLP, or to what the standard variables name: no provider is made, none is touched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any  # exporters are loaded by name
from urllib.parse import urlsplit

from agentor.engine.spans import SpanContext
from agentor.errors import MissingExtra, UnknownTarget
from agentor_exporters.attributes import Record
from agentor_exporters.otel import ExporterTarget
from agentor_exporters.target import NoTarget, Target, is_switched_off

_GROUP = "opentelemetry_traces_exporter"


def otlp() -> Target:
    """OTLP by http/protobuf, or by gRPC where `OTEL_EXPORTER_OTLP_PROTOCOL` says so.

    Address, headers, timeout, compression and certificates are those of the `OTEL_EXPORTER_OTLP_*`
    variables (OpenTelemetry specification, "OTLP exporter configuration").

    Raises:
        UnknownTarget: a protocol that is neither.
        MissingExtra: the exporter is not installed.
    """
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    address = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT", "localhost"
    )
    if is_switched_off():
        return NoTarget()
    exporter: Any
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as exporter
        elif protocol == "http/protobuf":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as exporter
        else:
            raise UnknownTarget(f"otlp by {protocol}", ("grpc", "http/protobuf"))
    except ImportError as error:
        raise MissingExtra("opentelemetry-exporter-otlp", "otel") from error
    return ExporterTarget(exporter, address=f"otlp {_public(address)}")


def of_environment() -> Target:
    """What `OTEL_TRACES_EXPORTER` names, with commas between: "otlp", "console", "none", or another one.

    Raises:
        UnknownTarget: a name that no installed package has.
        MissingExtra: as `otlp`.
    """
    names = [n for n in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").replace(" ", "").split(",") if n]
    targets = [] if is_switched_off() else [named(name) for name in names if name != "none"]
    if not targets:
        return NoTarget()
    return targets[0] if len(targets) == 1 else Several(targets)


def named(name: str) -> Target:
    """The exporter with this name among those that are installed.

    Raises:
        UnknownTarget: there is none.
    """
    if name == "otlp":
        return otlp()
    for entry in entry_points(group=_GROUP, name=name):
        return ExporterTarget(entry.load(), address=name)
    known = {entry.name for entry in entry_points(group=_GROUP)} | {"celesto", "json", "otlp"}
    raise UnknownTarget(name, tuple(sorted(known)))


class Several:
    """More than one exporter; delivered is what all of them have. None gets a span twice."""

    whole_segments = False

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self._ahead: list[set[tuple[str, int]]] = [set() for _ in targets]  # what others do not have yet
        self.address = " and ".join(target.address for target in targets)
        known = [target.identity for target in targets]
        self.identity = None if None in known else " ".join(map(str, known))

    def samples(self, context: SpanContext, caller: SpanContext | None) -> bool:
        """The standard sampler is the same for all."""
        return self._targets[0].samples(context, caller)

    def export(self, records: Sequence[Record]) -> bool:
        """Deliver to each what it does not have."""
        keys = {(record.span.run_id, record.span.number): record for record in records}
        for target, ahead in zip(self._targets, self._ahead, strict=True):
            due = [record for key, record in keys.items() if key not in ahead]
            if not due or target.export(due):
                ahead.update(keys)
        arrived = all(set(keys) <= ahead for ahead in self._ahead)
        if arrived:
            for ahead in self._ahead:
                ahead.difference_update(keys)
        return arrived

    def renew(self) -> None:
        """Each of them."""
        for target in self._targets:
            target.renew()

    def close(self, timeout_s: float) -> None:
        """Each of them."""
        for target in self._targets:
            target.close(timeout_s)


def _public(address: str) -> str:
    """An address without user, password and query."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"
