"""Where records go: what a place for traces must be able to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol  # Any: an object of the user's own

from agentor.engine.spans import SpanContext
from agentor_exporters.attributes import Record


class Target(Protocol):
    """A place for finished spans. Its methods are called on one thread, `samples` on any.

    Attributes:
        address: Names the place for people; no credentials in it.
        identity: What tells it from any other place, for cursors; None where that is not known, or
            where `export` cannot tell that something arrived: then nothing is noted.
        whole_segments: True for a place that wants all spans of a segment at once.
    """

    @property
    def address(self) -> str: ...

    @property
    def identity(self) -> str | None: ...

    @property
    def whole_segments(self) -> bool: ...

    def samples(self, context: SpanContext, caller: SpanContext | None) -> bool:
        """Whether this new trace is wanted; all processes of a run must get the same answer."""
        ...

    def export(self, records: Sequence[Record]) -> bool:
        """Deliver; False or an exception where that failed, and may be tried again."""
        ...

    def renew(self) -> None:
        """Open what is open anew: this is a forked child, or it was closed."""
        ...

    def close(self, timeout_s: float) -> None:
        """Let go of what is open."""
        ...


class Plain:
    """A place of a user's own, of which only `export(records)` is needed.

    Raises:
        TypeError: it has no `export`.
    """

    whole_segments = False

    def __init__(self, place: Any) -> None:
        if not callable(getattr(place, "export", None)):
            raise TypeError(f"a place for spans needs export(records) -> bool, which {place!r} has not")
        self._place = place
        self.address = str(getattr(place, "address", type(place).__name__))
        self.identity: str | None = getattr(place, "identity", None)

    def samples(self, context: SpanContext, caller: SpanContext | None) -> bool:
        """Every trace is wanted, unless a caller's is not recorded."""
        return caller is None or caller.sampled

    def export(self, records: Sequence[Record]) -> bool:
        """What the place answers; nothing counts as delivered."""
        return self._place.export(records) is not False

    def renew(self) -> None:
        """The place's own business."""

    def close(self, timeout_s: float) -> None:
        """The place's own, where it has one."""
        if callable(close := getattr(self._place, "close", None)):
            close()


class NoTarget:
    """For `OTEL_SDK_DISABLED` and `OTEL_TRACES_EXPORTER=none`: nothing is sent."""

    address = "nowhere (OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER switches tracing off)"
    identity, whole_segments = None, False

    def samples(self, context: SpanContext, caller: SpanContext | None) -> bool:
        """No trace is wanted."""
        return False

    def export(self, records: Sequence[Record]) -> bool:
        """Nothing is taken."""
        return False

    def renew(self) -> None:
        """Nothing is open."""

    def close(self, timeout_s: float) -> None:
        """Nothing is open."""


def is_switched_off() -> bool:
    """True for `OTEL_SDK_DISABLED=true`, and for `OTEL_TRACES_EXPORTER=none`."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return True
    return os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
