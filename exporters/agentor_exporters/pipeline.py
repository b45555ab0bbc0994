"""One thread that turns events into records and delivers them; a run never waits for it."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Protocol

from agentor.engine.events import Context, Event, Generation, RunEnd, RunStart, ToolCall, ToolResult
from agentor_exporters.attributes import Record
from agentor_exporters.target import Target

CLOSE_S = 2.0  # that closing may take
EXIT_S = 1.2  # of a process that ends: the interpreter takes its own time besides
LINGER_S = 1.0  # that events are gathered before they are sent
BATCH_SPANS, BATCH_BYTES = 512, 1024 * 1024  # a batch: backends take 2 to 4 MiB
MAX_EVENTS, MAX_SPANS = 50_000, 20_000  # that wait
MAX_BYTES = 64 * 1024 * 1024  # of events that wait, and of spans that do
MAX_WAIT_S = 30.0  # between two attempts
_OBJECT_BYTES = 200
_HEAVY: dict[type[Event], tuple[str, ...]] = {  # fields that may be large
    RunStart: ("system", "messages"),
    Generation: ("text", "reasoning", "calls", "rest"),
    ToolCall: ("edited_args",),
    ToolResult: ("result", "error"),
    Context: ("messages",),
    RunEnd: ("text",),
}
ATTEMPTS = 5  # at one span, before it is asked whether the target would take the next one

log = logging.getLogger("agentor.tracing")
_alive: weakref.WeakSet[Pipeline] = weakref.WeakSet()


class Source(Protocol):
    """A segment that is followed: it makes records of its events, and learns what became of them."""

    lost: bool  # it is not followed any more

    def lose(self, record: Record | None = None) -> None:
        """This record was dropped, or (None) an event: its log has it, and a later export sends it."""

    def records(self, event: Event) -> list[Record]:
        """What is to be sent now that this event was saved."""
        ...

    def delivered(self, record: Record) -> None:
        """The target has this record and those before."""


class Pipeline:
    """Events in; batches out to one target, in order, tried again while it fails.

    What waits is bounded. Where it grows too much, content is dropped first and spans second; a span
    that is dropped is still in its run's log, and the next export sends it.
    """

    def __init__(
        self, target: Target, *, linger_s: float = LINGER_S, after_fork: Callable[[], None] | None = None
    ) -> None:
        self._target, self._linger_s, self._after_fork = target, linger_s, after_fork
        self._closing = False
        self._reset()
        _alive.add(self)
        # Exit runs backwards: behind each pipeline that is made, so before the providers that were there.
        atexit.unregister(close_all)
        atexit.register(close_all)

    def _reset(self) -> None:
        self._inbox: deque[tuple[Source, Event, int]] = deque()
        self._inbox_bytes = (
            0  # without a lock, which would cost more than the rest: right at each empty inbox
        )
        self._backlog: deque[tuple[Source, Record]] = deque()
        self._bytes = 0
        self._most = BATCH_SPANS  # of one batch: what the target takes
        self._failures, self._retry_at, self._warned = 0, 0.0, False
        self._wake, self._urgent = threading.Event(), threading.Event()
        self._round, self._start_lock = threading.Condition(), threading.Lock()
        self._busy = False
        self._thread: threading.Thread | None = None
        self._lean = 0  # records at the head of the backlog that have no content any more

    # --- on the run's thread --------------------------------------------------------------------

    def put(self, source: Source, event: Event) -> None:
        """Take an event; returns at once."""
        if self._closing or len(self._inbox) >= MAX_EVENTS or self._inbox_bytes >= MAX_BYTES:
            source.lose()
            return
        size = size_of(event)
        self._inbox_bytes += size
        self._inbox.append((source, event, size))
        if self._thread is None:
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Deliver what waits; False if some of it still does after this time."""
        until = time.monotonic() + timeout_s
        if not self._waiting():
            return True
        self._urgent.set()
        self._wake.set()
        with self._round:
            while self._waiting() and (left := until - time.monotonic()) > 0:
                self._round.wait(left)
        self._urgent.clear()
        return not self._waiting()

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Deliver what waits, and end; False if some was not delivered, which a later export sends."""
        self._closing = True
        self._urgent.set()
        self._wake.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
            if thread.is_alive():
                with suppress(Exception):  # a target may raise anything
                    self._target.close(0.0)  # lets go of a request that hangs
        return not self._waiting()

    def request_close(self) -> None:
        """Deliver what waits, and then end, with nobody waiting for it."""
        self._closing = True
        self._wake.set()

    def _waiting(self) -> bool:
        return bool(self._inbox or self._backlog or self._busy)

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="agentor-trace", daemon=True)
                self._thread.start()

    def forget(self) -> None:
        """In a forked child: what waits is the parent's to send, by connections of its own."""
        self._reset()
        self._target.renew()
        if self._after_fork is not None:
            self._after_fork()

    # --- on its own thread ----------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            waits = bool(self._backlog)
            self._wake.wait(max(0.0, self._retry_at - time.monotonic()) if waits else None)
            if not self._urgent.is_set() and not self._closing:
                self._urgent.wait(self._linger_s)
            self._busy = True
            self._wake.clear()
            self._read()
            if self._urgent.is_set() or time.monotonic() >= self._retry_at:
                self._send()
            self._busy = False
            with self._round:
                self._round.notify_all()
            if self._closing and not self._inbox:
                break
        try:
            self._target.close(CLOSE_S)
        except BaseException as error:  # a target may raise anything
            log.debug("%s: %r", self._target.address, error)

    def _read(self) -> None:
        while self._inbox:
            source, event, size = self._inbox.popleft()
            self._inbox_bytes = self._inbox_bytes - size if self._inbox else 0
            if source.lost:
                continue
            try:
                records = source.records(event)
            except BaseException as error:  # nor must a redactor's SystemExit end the thread
                source.lose()
                log.warning("a run's trace cannot be shown: %r; its log is whole", error)
                continue
            for record in records:
                self._backlog.append((source, record))
                self._bytes += record.size_bytes
            if self._bytes > MAX_BYTES or len(self._backlog) > MAX_SPANS:
                self._shrink()

    def _shrink(self) -> None:
        """Make room: content first, then the oldest spans."""
        rich = [self._backlog.pop() for _ in range(len(self._backlog) - self._lean)]
        for source, record in reversed(rich):
            lean = record.without_content()
            self._bytes += lean.size_bytes - record.size_bytes
            self._backlog.append((source, lean))
        self._lean = len(self._backlog)
        while self._bytes > MAX_BYTES or len(self._backlog) > MAX_SPANS:
            self._drop()

    def _pop(self) -> tuple[Source, Record]:
        """Take the first one out."""
        source, record = self._backlog.popleft()
        self._bytes -= record.size_bytes
        self._lean = max(self._lean - 1, 0)
        return source, record

    def _drop(self) -> None:
        source, record = self._pop()
        source.lose(record)

    def _send(self) -> None:
        while self._backlog:
            batch = self._head()
            if self._delivered(batch):
                self._took(batch)
            elif len(batch) > 1 and self._delivered(batch[:1]):  # it is there: that was too much for it
                self._took(batch[:1])
                self._most = max(1, len(batch) // 2)
            elif not self._passed_over():
                self._failures += 1
                self._retry_at = time.monotonic() + min(2.0 ** (self._failures - 1), MAX_WAIT_S)
                self._warn()
                return

    def _passed_over(self) -> bool:
        """Drop the first span if the target takes another one: it is there, and does not want this one."""
        others = len(self._backlog) - 1
        if self._failures < ATTEMPTS or others < 1:
            return False
        place = 1 + (self._failures - ATTEMPTS) % others
        other = self._backlog[place]
        if not self._delivered([other]):
            return False
        self._drop()
        del self._backlog[place - 1]  # out of turn, so its cursor stays: at worst it is sent twice
        self._bytes -= other[1].size_bytes
        self._lean = min(self._lean, place - 1)
        self._failures, self._retry_at = 0, 0.0
        return True

    def _took(self, batch: list[tuple[Source, Record]]) -> None:
        self._failures, self._retry_at, self._warned = 0, 0.0, False
        last: dict[Source, Record] = {}
        for _ in batch:
            source, record = self._pop()
            last[source] = record
        for source, record in last.items():
            source.delivered(record)

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "%s does not take spans; runs go on, and what it does not get now (run %r and others) "
                "`agentor trace export` sends from their logs",
                self._target.address,
                self._backlog[0][1].span.run_id,
            )

    def _head(self) -> list[tuple[Source, Record]]:
        sizes = (record.size_bytes for _, record in self._backlog)
        return list(islice(self._backlog, batch_of(sizes, self._most)))

    def _delivered(self, batch: list[tuple[Source, Record]]) -> bool:
        try:
            return self._target.export([record for _, record in batch])
        except BaseException as error:  # a target may raise anything, and its thread serves others too
            log.debug("%s: %r", self._target.address, error)
            return False


def batch_of(sizes: Iterable[int], most: int) -> int:
    """How many records, of these sizes in bytes, go into one batch: at least one."""
    count = total = 0
    for size in sizes:
        total += size
        if count and (count >= most or total > BATCH_BYTES):
            break
        count += 1
    return count


def size_of(event: Event) -> int:
    """About how many bytes an event takes in memory."""
    size = _OBJECT_BYTES
    for name in _HEAVY.get(type(event), ()):
        value = getattr(event, name)
        if value is not None:
            size += len(value) if isinstance(value, str) else _size_of(value)
    return size


def _size_of(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return _OBJECT_BYTES + sum(map(_size_of, value.values()))
    return _OBJECT_BYTES + sum(map(_size_of, value)) if isinstance(value, list) else 8


def close_all(timeout_s: float = EXIT_S) -> None:
    """Close every pipeline, all within this time."""
    until = time.monotonic() + timeout_s
    pipelines = list(_alive)
    for pipeline in pipelines:
        pipeline.request_close()
    for pipeline in pipelines:
        pipeline.close(max(0.0, until - time.monotonic()))


def _forget_all() -> None:
    for pipeline in list(_alive):
        pipeline.forget()


os.register_at_fork(after_in_child=_forget_all)
