"""What the caller gives for one segment of a run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any  # metadata is the user's JSON

from agentor.engine.events import Event
from agentor.engine.observer import Observer, Tracer
from agentor.engine.policy import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the caller gives for one segment."""

    max_turns: int | None = None
    metadata: dict[str, Any] | None = None
    trace_group_id: str | None = None
    trace_metadata: dict[str, Any] | None = None
    tracer: Observer | Tracer | None = None
    stream: Callable[[Event], None] | None = None
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    wait_s: float = 0.0  # for a run that another worker holds
    parent: dict[str, str] | None = None  # that a sub-agent's run serves: run_id, call_id
    traceparent: str | None = None  # the span that a sub-agent's run is in
    below: bool = False  # somebody has decided about a call of a sub-agent
    of_fork: bool = False  # the fork itself goes on
    budget: dict[str, Any] | None = None  # as it stands in the log


def new_run_id() -> str:
    """An id that no other run has."""
    return uuid.uuid4().hex
