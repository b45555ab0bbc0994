"""A segment's log while it is written: every event is numbered, folded and shown by one hand."""

from __future__ import annotations

from agentor.engine.calls import AgentSpec, result_event
from agentor.engine.events import Event, Interrupted, RunEnd
from agentor.engine.journal import Journal
from agentor.engine.policy import closed
from agentor.engine.transcript import Transcript, advance
from agentor.engine.words import CANCEL, CANCELLED, INTERRUPTED


class Recording:
    """The journal of a segment, and the transcript that its events add up to."""

    def __init__(
        self, spec: AgentSpec, journal: Journal, transcript: Transcript, events: list[Event]
    ) -> None:
        self.spec, self.journal = spec, journal
        self.transcript, self.events = transcript, events

    def record(self, event: Event) -> None:
        """Number an event and fold it; it is saved with the next commit, before anything acts."""
        self.transcript, seen = advance(self.transcript, self.journal.add(event))
        self.events.append(seen)
        self.journal.show(seen)

    def end(
        self,
        status: str,
        *,
        text: str | None = None,
        error: str | None = None,
        error_type: str | None = None,
    ) -> None:
        """Record the end of the segment, with the figures of the whole run."""
        t = self.transcript
        self.record(
            RunEnd(
                status=status,
                text=text,
                usage=t.whole_usage if t.whole_usage.to_dict() else None,
                cost=t.whole_cost,
                turns=t.turn,
                error=error,
                error_type=error_type,
            )
        )

    def cut_off(self, reason: str, *, cancelled: bool = False, abandoned: bool = False) -> None:
        """Record that the segment was cut off.

        Args:
            cancelled: Somebody wanted it so: the open calls are closed, but those that stay in doubt.
            abandoned: No worker had the run any more.
        """
        started = [c.call.call_id for c in self.transcript.open_calls if c.attempt]
        if cancelled:
            for c, text in closed(self.transcript, self.spec.keeps_doubt, self.spec.on_crash):
                self.record(result_event(c, error=text, error_type=INTERRUPTED, by=CANCEL))
        self.record(
            Interrupted(
                reason=reason,
                status=CANCELLED if cancelled else INTERRUPTED,
                in_doubt=started,
                abandoned=abandoned or None,
            )
        )
