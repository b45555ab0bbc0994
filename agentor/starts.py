"""What a segment is started with: an agent's own settings, and what is given for one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any  # metadata is the user's own JSON

from agentor.engine.budget import Budget
from agentor.engine.events import Event
from agentor.engine.observer import Observer, Tracer
from agentor.engine.policy import Decision
from agentor.engine.start import Start
from agentor.inputs import count, json_object
from agentor.tracer import Tracing, tracer_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """An agent's settings for its segments."""

    metadata: dict[str, Any] | None
    trace_group_id: str | None
    trace_metadata: dict[str, Any] | None
    tracer: Observer | Tracer | None

    def start(
        self,
        max_turns: int | None,
        tracing: Tracing,
        metadata: dict[str, Any] | None = None,
        *,
        stream: Callable[[Event], None] | None = None,
        decisions: Mapping[str, Decision] | None = None,
        budget: Budget | None = None,
        wait_s: float = 0.0,
    ) -> Start:
        """With what the caller gives; ValueError or TypeError for what cannot work."""
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(f"budget takes a Budget, not {budget!r}")
        merged = {**(self.metadata or {}), **(json_object("metadata", metadata) or {})}
        return Start(
            max_turns=None if max_turns is None else count("max_turns", max_turns),
            metadata=merged or None,
            trace_group_id=self.trace_group_id,
            trace_metadata=self.trace_metadata,
            tracer=tracer_for(tracing, self.tracer),
            stream=stream,
            decisions=dict(decisions or {}),
            budget=None if budget is None else budget.to_dict(),
            wait_s=wait_s,
        )
