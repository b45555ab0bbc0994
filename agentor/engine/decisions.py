"""What waits for a person, and a person's words as events: checked against the run before they count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal  # Any: arguments are JSON

from agentor.engine.events import Approval
from agentor.engine.messages import parsed_arguments
from agentor.engine.opencalls import OpenCall
from agentor.engine.policy import Approve, Decision, Deny, Happened, NotHappened, is_over
from agentor.engine.transcript import Transcript
from agentor.errors import DecisionRefused

_WORDS: dict[type[Any], str] = {
    Approve: "approve",
    Deny: "deny",
    Happened: "happened",
    NotHappened: "not_happened",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call that waits for somebody's decision.

    Attributes:
        kind: "approval" for one that may not start without, "doubt" for one that was interrupted and may
            or may not have happened.
        args: The model's arguments; None where they are no JSON object.
        hash: Of the tool and its arguments: `Approve(hash=...)` is then about exactly these.
        call_id: That of the call; for a sub-agent's, with those of the calls above it (`call_1/call_2`).
        decided: True once a decision is in the log that nobody has acted on yet.
    """

    call_id: str
    tool: str
    kind: Literal["approval", "doubt"]
    args: dict[str, Any] | None
    hash: str
    turn: int
    reason: str | None = None
    decided: bool = False
    run_id: str | None = None  # of a sub-agent, where it is one of its calls


def pending(transcript: Transcript) -> list[Pending]:
    """The run's own calls that wait for a decision, in the order of the model's calls."""
    waiting = transcript.status in ("paused", "in_doubt")
    return [
        _as_pending(c)
        for c in transcript.open_calls
        if c.child is None and ((c.requested and not c.attempt) or (c.in_doubt and waiting))
    ]


def _as_pending(c: OpenCall) -> Pending:
    args = parsed_arguments(c.call.arguments)
    return Pending(
        call_id=c.call.call_id,
        tool=c.call.name,
        kind="doubt" if c.in_doubt else "approval",
        args=args if isinstance(args, dict) else None,
        hash=c.call.hash,
        turn=c.call.turn,
        reason=c.reason,
        decided=c.decision is not None,
    )


def approvals(
    run_id: str, transcript: Transcript, decisions: Mapping[str, Decision], now: float
) -> list[Approval]:
    """The events of these decisions.

    Args:
        decisions: By call id.
        now: Epoch seconds, from which an approval's time counts.

    Raises:
        DecisionRefused: one that this run has no use for; then none of them counts.
        TypeError: no decision.
    """
    known = {
        c.call.call_id: c
        for c in transcript.open_calls
        if c.child is None and (c.requested or c.in_doubt or c.attempt)
    }
    return [_approval(run_id, known, call_id, decision, now) for call_id, decision in decisions.items()]


def check_types(decisions: Mapping[str, Decision]) -> None:
    """Refuse what is no decision, before anything is looked up; TypeError."""
    for call_id, decision in decisions.items():
        if type(decision) not in _WORDS:
            raise TypeError(
                f"decisions[{call_id!r}] must be Approve(), Deny(why), Happened(result) or NotHappened()"
            )


def _approval(
    run_id: str, known: Mapping[str, OpenCall], call_id: str, decision: Decision, now: float
) -> Approval:
    c = known.get(call_id)
    if c is None:
        waiting = ", ".join(known) or "none"
        raise DecisionRefused(run_id, call_id, f"it does not wait for a decision; calls that do: {waiting}")
    if c.decision is not None and not is_over(c.decision, now):
        who = f" by {c.decision.by}" if c.decision.by else ""
        raise DecisionRefused(run_id, call_id, f"it is decided already{who}: {c.decision.decision}")
    if decision.hash is not None and decision.hash != c.call.hash:
        raise DecisionRefused(
            run_id,
            call_id,
            f"it is about other arguments (hash {decision.hash}, now {c.call.hash})",
        )
    in_doubt = c.in_doubt or c.attempt > 0
    if in_doubt and isinstance(decision, Approve):
        reason = "it has started, and may have happened: say Happened(result), NotHappened() or Deny(why)"
        raise DecisionRefused(run_id, call_id, reason)
    if not in_doubt and isinstance(decision, Happened | NotHappened):
        raise DecisionRefused(run_id, call_id, "it has not started: say Approve() or Deny(why)")
    args = decision.args if isinstance(decision, Approve) else None
    expires_s = decision.expires_s if isinstance(decision, Approve) else None
    return Approval(
        call_id=call_id,
        turn=c.call.turn,
        index=c.call.index,
        decision=_WORDS[type(decision)],
        hash=c.call.hash,
        by=decision.by,
        reason=decision.reason,
        edited_args=args,
        result=decision.result if isinstance(decision, Happened) else None,
        expires_at=None if expires_s is None else round(now + expires_s, 3),
    )


def names_of(calls: Sequence[OpenCall]) -> str:
    """Calls for a message: tool and id of each."""
    return ", ".join(f"{c.call.name} ({c.call.call_id})" for c in calls)
