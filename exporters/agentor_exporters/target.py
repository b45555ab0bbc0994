"""Where records go: what a place for traces must be able to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agentor.engine.spans import Place
from agentor_exporters.attributes import Record


@runtime_checkable
class Target(Protocol):
    """A place for finished spans. Its methods are called on one thread, `samples` on any.

    Attributes:
        address: Names the place, for people and for cursors; no credentials in it.
        whole_segments: True for a place that wants all spans of a segment at once.
    """

    address: str
    whole_segments: bool

    def samples(self, place: Place, caller: Place | None) -> bool:
        """Whether this trace is wanted; all processes of a run must get the same answer."""
        ...

    def export(self, records: Sequence[Record]) -> bool:
        """Deliver; False or an exception where that failed, and may be tried again."""
        ...

    def close(self, timeout_s: float) -> None:
        """Let go of what is open."""
        ...
