"""Our own way to OTLP, or to what the standard variables name: no provider is made, none is touched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any  # exporters are loaded by name
from urllib.parse import urlsplit

from agentor.engine.spans import Place
from agentor.errors import MissingExtra, UnknownTarget
from agentor_exporters.attributes import Record
from agentor_exporters.otel import HandBuilt
from agentor_exporters.target import Target

_GROUP = "opentelemetry_traces_exporter"


def is_disabled() -> bool:
    """True for `OTEL_SDK_DISABLED=true`."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


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
    if is_disabled():
        return Nowhere()
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
    return HandBuilt(exporter(), address=f"otlp {_public(address)}")


def of_environment() -> Target:
    """What `OTEL_TRACES_EXPORTER` names, with commas between: "otlp", "console", "none", or another one.

    Raises:
        UnknownTarget: a name that no installed package has.
        MissingExtra: as `otlp`.
    """
    names = [n for n in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").replace(" ", "").split(",") if n]
    targets = [] if is_disabled() else [named(name) for name in names if name != "none"]
    if not targets:
        return Nowhere()
    return targets[0] if len(targets) == 1 else Several(targets)


def named(name: str) -> Target:
    """The exporter with this name among those that are installed.

    Raises:
        UnknownTarget: there is none.
    """
    if name == "otlp":
        return otlp()
    for entry in entry_points(group=_GROUP, name=name):
        return HandBuilt(entry.load()(), address=name)
    known = {entry.name for entry in entry_points(group=_GROUP)} | {"celesto", "json", "otlp"}
    raise UnknownTarget(name, tuple(sorted(known)))


class Nowhere:
    """For `OTEL_SDK_DISABLED` and `OTEL_TRACES_EXPORTER=none`: nothing is sent."""

    address, whole_segments = "nowhere", False

    def samples(self, place: Place, caller: Place | None) -> bool:
        return False

    def export(self, records: Sequence[Record]) -> bool:
        return True

    def close(self, timeout_s: float) -> None:
        pass


class Several:
    """More than one exporter; delivered is what all of them have."""

    whole_segments = False

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self.address = " and ".join(target.address for target in targets)

    def samples(self, place: Place, caller: Place | None) -> bool:
        return self._targets[0].samples(place, caller)

    def export(self, records: Sequence[Record]) -> bool:
        delivered = [target.export(records) for target in self._targets]  # each, whatever the others say
        return all(delivered)

    def close(self, timeout_s: float) -> None:
        for target in self._targets:
            target.close(timeout_s)


def _public(address: str) -> str:
    """An address without user, password and query."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"
