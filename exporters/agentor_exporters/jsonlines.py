"""Spans as JSON lines, for people, scripts and pipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TextIO  # Any: JSON

from agentor.engine import strictjson
from agentor.engine.spans import SpanContext
from agentor_exporters.attributes import Record


class JsonLines:
    """One object per span: ids, name, times in epoch seconds, attributes, events, links.

    Args:
        out: None: standard output.
    """

    address, identity, whole_segments = "json", None, False

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out

    def samples(self, context: SpanContext, caller: SpanContext | None) -> bool:
        """Every trace is wanted."""
        return True

    def export(self, records: Sequence[Record]) -> bool:
        """Write the lines."""
        out = self._out or sys.stdout
        for record in records:
            out.write(strictjson.dumps(as_json(record)) + "\n")
        out.flush()
        return True

    def renew(self) -> None:
        """Nothing is open."""

    def close(self, timeout_s: float) -> None:
        """Nothing is open."""


def as_json(record: Record) -> dict[str, Any]:
    """A span as a JSON object."""
    span = record.span
    sent: dict[str, Any] = {
        "trace_id": span.context.trace_id,
        "span_id": span.context.span_id,
        "parent_id": None if span.parent is None else span.parent.span_id,
        "name": record.name,
        "kind": "client" if record.is_client else "internal",
        "started_at": span.started_at,
        "ended_at": span.ended_at,
        "status": "unset" if span.error_type is None else "error",
        "attributes": record.all_attributes(),
    }
    if record.error is not None:
        sent["error"] = record.error
    if record.events:
        sent["events"] = [
            {"name": name, "at": at, "attributes": dict(attributes)} for name, at, attributes in record.events
        ]
    if span.links:
        sent["links"] = [
            {"trace_id": link.context.trace_id, "span_id": link.context.span_id, "type": link.kind}
            for link in span.links
        ]
    return sent
