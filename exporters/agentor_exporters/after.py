"""A run's trace from its log, after the fact: also of a run whose process was killed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any  # exporters and providers of OpenTelemetry, imported when used

from agentor.engine.events import Event
from agentor.engine.spans import Span
from agentor.engine.store.access import Access
from agentor.engine.store.base import Store
from agentor.engine.store.names import check_run_id
from agentor.engine.threads import background, in_thread
from agentor.engine.trace import projected
from agentor.errors import ExportFailed, RunBusy, RunNotFound
from agentor_exporters import names, semconv
from agentor_exporters.attributes import Content, Encoder, Record
from agentor_exporters.cursor import Cursor, began, cursor_of
from agentor_exporters.pipeline import BATCH_SPANS, batch_of
from agentor_exporters.reasons import heard
from agentor_exporters.redaction import Redact
from agentor_exporters.target import Target
from agentor_exporters.tracer import SpanTracer

LATE_S = 3600.0  # Dynatrace refuses spans that ended an hour ago; others take six hours, or a day
AWAY_S = 3.0  # an exporter that takes so long to fail has tried again itself, and found nobody
MAX_IN_DOUBT = 3  # spans refused one after the other: then it is the place that fails
IDLE_S = 600.0  # a run without a lease to ask for, and without news for so long, counts as dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What an export did.

    Attributes:
        trace_ids: The traces that the run is in; nearly always one.
        sent, skipped: Spans sent now, and spans that the cursor says are there already.
        refused: Ids of spans that the place does not want, though it takes others; each export tries again.
        unfinished: True if a worker has the run: the span of its last segment is not sent yet.
        late_s: How long ago the last span that was sent had ended; some backends refuse late spans.
    """

    run_id: str
    address: str
    trace_ids: tuple[str, ...]
    sent: int
    skipped: int
    refused: tuple[str, ...]
    unfinished: bool
    late_s: float


async def aexport_run(
    store: Store,
    run_id: str,
    to: str | Target | Any = "otlp",
    *,
    content: Content | None = None,
    redact: Redact | None = None,
    everything: bool = False,
    dead: bool | None = None,
    sampled_only: bool = False,
    shift_to_now: bool = False,
    cursors: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Export:
    """Send a run's trace, with its own times and ids: sending twice is harmless.

    Args:
        to: A tracer, with its own content and redaction; or a place: "otlp", "celesto", "json", the name of
            another exporter, or an exporter, processor or provider of OpenTelemetry.
        content, redact: As `OtelTracer`, for a place.
        everything: Send also what the cursor says was delivered. Places that keep each span that
            they get (Jaeger, Honeycomb) then have it twice.
        dead: Whether a run without an end counts as dead, so that what it left open is sent as
            interrupted. None: if nobody has its lease, which is taken for a moment to find out.
        sampled_only: Send nothing of a run that the sampler did not want.
        shift_to_now: Move all times so that the run ends now, for backends that refuse late spans; it
            makes other spans of the ones that were sent before.
        cursors: A folder for the cursor, for stores that have none beside their logs.
        progress: Called with the spans sent so far and their whole number.

    Raises:
        RunNotFound, CorruptLog, UnsupportedLog: as named.
        ExportFailed: the target did not take it; what it took is noted, and the rest can be sent again.
        ValueError, MissingExtra, MissingKey: about `to`.
    """
    check_run_id(run_id)
    access = Access(store)
    events, _ = await access.load(run_id)
    if not events:
        raise RunNotFound(run_id, access.where)
    events, spans, unfinished = await _spans(access, run_id, events, dead)
    if sampled_only and spans and not spans[0].context.sampled:
        spans = []
    goal = _goal(store, run_id, to, content, redact, cursors)
    skipped = 0 if everything or shift_to_now else min(goal.cursor.read(began(events)), len(spans))
    due = spans[skipped:]
    if shift_to_now and due:
        due = _shifted(due, time.time() - max(span.ended_at for span in due))
    records = [goal.encoder.record(span) for span in due]
    if shift_to_now:
        records = [_marked(record, spans) for record in records]
    try:
        refused = await in_thread(_send, goal, records, run_id, began(events), progress)
    finally:
        if goal.is_ours:
            goal.target.close(2.0)
    ended = max((span.ended_at for span in due), default=time.time())
    return Export(
        run_id=run_id,
        address=goal.target.address,
        trace_ids=tuple(dict.fromkeys(span.context.trace_id for span in spans)),
        sent=len(records) - len(refused),
        skipped=skipped,
        refused=tuple(refused),
        unfinished=unfinished,
        late_s=max(0.0, time.time() - ended),
    )


def export_run(
    store: Store,
    run_id: str,
    to: str | Target | Any = "otlp",
    *,
    content: Content | None = None,
    redact: Redact | None = None,
    everything: bool = False,
    dead: bool | None = None,
    sampled_only: bool = False,
    shift_to_now: bool = False,
    cursors: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Export:
    """`aexport_run` for callers that are not async."""
    work = aexport_run(
        store,
        run_id,
        to,
        content=content,
        redact=redact,
        everything=everything,
        dead=dead,
        sampled_only=sampled_only,
        shift_to_now=shift_to_now,
        cursors=cursors,
        progress=progress,
    )
    return background.run(work, method="export_run", instead="await aexport_run(...)")


async def _spans(
    access: Access, run_id: str, events: list[Event], dead: bool | None
) -> tuple[list[Event], list[Span], bool]:
    """The run's events and spans, and whether it goes on."""
    projector, spans = projected(run_id, events)
    left = projector.close()
    if not left:
        return events, spans, False
    if dead is None:
        latest = await _of_dead(access, run_id, events)
        dead = latest is not None
        if latest is not None and len(latest) > len(events):  # a worker ended it in the meantime
            events = latest
            projector, spans = projected(run_id, events)
            left = projector.close()
    return (events, [*spans, *left], False) if dead else (events, spans, True)


async def _of_dead(access: Access, run_id: str, events: list[Event]) -> list[Event] | None:
    """The log of a run that nobody works on; None if somebody does."""
    if not callable(getattr(access.store, "lease", None)):
        return events if time.time() - (events[-1].at or 0.0) > IDLE_S else None
    try:
        lease = await access.lease(run_id, "trace export")
    except RunBusy:
        return None
    if lease is None:
        return events
    try:
        return (await access.load(run_id))[0]
    finally:
        await access.call(lease.release)


@dataclass(frozen=True, slots=True)
class _Goal:
    target: Target
    encoder: Encoder
    cursor: Cursor
    is_ours: bool  # opened for this export


def _goal(
    store: Store,
    run_id: str,
    to: object,
    content: Content | None,
    redact: Redact | None,
    cursors: Path | str | None,
) -> _Goal:
    if isinstance(to, SpanTracer):
        if content is not None or redact is not None:
            raise ValueError("a tracer has its own content and redact; give them to it, or name a place")
        return _Goal(to.target, to.encoder, to.cursor(run_id, store), is_ours=False)
    target = names.target(to) if isinstance(to, str) else _target_of(to)
    cursor = cursor_of(store, run_id, cursors, target.identity)
    return _Goal(target, names.encoder(target, content, redact), cursor, is_ours=True)


def _target_of(to: object) -> Target:
    if "opentelemetry.sdk.trace" not in sys.modules:  # then it cannot be one of its objects
        return names.adapted(to)
    from agentor_exporters.otel import target_of

    return target_of(to)


def _send(
    goal: _Goal,
    records: Sequence[Record],
    run_id: str,
    began_at: float | None,
    progress: Callable[[int, int], None] | None,
) -> list[str]:
    """Deliver in order; gives the ids of the spans that the place takes others instead of."""
    target, refused = goal.target, list[str]()
    at, most = 0, BATCH_SPANS
    in_doubt: list[tuple[Record, str]] = []  # refused one by one, with the reason: the next ones tell
    while at < len(records):
        batch = records[at : at + batch_of((record.size_bytes for record in records[at:]), most)]
        began = time.monotonic()
        taken, reason = _taken(target, batch)
        if taken:
            at, most = at + len(batch), min(most * 2, BATCH_SPANS)
            refused += [record.span.context.span_id for record, _ in in_doubt]
            in_doubt = []
            if not refused:  # else the next export is to try those again
                goal.cursor.write(began_at, batch[-1].span.number + 1)
            if progress is not None:
                progress(at, len(records))
            continue
        away = time.monotonic() - began > AWAY_S
        if len(batch) > 1 and not away:  # too large for it, or one of them is not to its liking
            most = len(batch) // 2 if at else 1
            continue
        in_doubt.append((batch[0], reason))
        if away or len(in_doubt) > MAX_IN_DOUBT or at + 1 == len(records):
            done = at + 1 - len(in_doubt) - len(refused)
            raise ExportFailed(run_id, target.address, done, len(records), in_doubt[0][1])
        at += 1
    return refused


def _taken(target: Target, batch: Sequence[Record]) -> tuple[bool, str]:
    """Whether a batch arrived, and else why not."""
    with heard() as said:
        try:
            taken = target.export(batch)
        except Exception as error:  # a target may raise anything
            taken = False
            said.append(f"{type(error).__name__}: {error}")
    return taken, said[0] if said else "it answered with an error, or not at all"


def _shifted(spans: Sequence[Span], by_s: float) -> list[Span]:
    return [replace(s, started_at=s.started_at + by_s, ended_at=s.ended_at + by_s) for s in spans]


def _marked(record: Record, before: Sequence[Span]) -> Record:
    """A record that says by how much its times were moved."""
    by_s = record.span.ended_at - before[record.span.number].ended_at
    events = tuple((name, at + by_s, attributes) for name, at, attributes in record.events)
    return replace(record, events=events, attributes={**record.attributes, semconv.SHIFT: round(by_s, 3)})
