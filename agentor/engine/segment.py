"""A segment whose span has not ended yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentor.engine.events import Fork, RunStart
from agentor.engine.messages import Usage
from agentor.engine.spans import Link, SpanContext


@dataclass(slots=True)
class Segment:
    """Where it is in the trace, and what was counted in it so far."""

    start: RunStart
    at: float
    context: SpanContext
    parent: SpanContext | None
    links: tuple[Link, ...]
    index: int
    fork: Fork | None
    turns: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
