"""The calls of a turn: how far each has come, from the model's asking to its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any  # arguments are JSON

from agentor.engine.events import Approval, ApprovalRequest, Child, ToolCall, ToolResult
from agentor.engine.messages import Call, Message, raw_calls

Calls = tuple["OpenCall", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call of the last generation, with how far it has come."""

    call: Call
    attempt: int = 0  # how often it has started
    in_doubt: bool = False  # it started in a segment that is over; it may or may not have happened
    elsewhere: bool = False  # the run that this one was forked from has a result for it
    requested: bool = False  # a person was asked whether it may start
    reason: str | None = None  # why
    decision: Approval | None = None  # what was decided since it was asked, or started, last
    edited_args: dict[str, Any] | None = None  # what it was approved with
    child: str | None = None  # the run of the sub-agent that it is, once it has started
    stopped: str | None = None  # the status that this run stopped with, in this segment
    result: ToolResult | None = None


def with_call_ids(message: Message, calls: tuple[OpenCall, ...]) -> Message:
    """The answer as it is sent back: where an id was empty or stood twice, with the id that we gave.

    The log keeps the provider's own; a request must have one tool message per call id.
    """
    raw = raw_calls(message)
    if all(given.get("id") == c.call.call_id for given, c in zip(raw, calls, strict=True)):
        return message
    renamed = [{**given, "id": c.call.call_id} for given, c in zip(raw, calls, strict=True)]
    return {**message, "tool_calls": renamed}


def place_of(calls: Sequence[OpenCall], event: ToolCall | ToolResult) -> int | None:
    """Which call an event is about; None for one that is not open."""
    for place, open_call in enumerate(calls):
        if open_call.call.call_id == event.call_id:
            return place
    # agentor 0.1 wrote the provider's id, also where it was empty or stood twice: the next call
    # of that name then.
    for place, open_call in enumerate(calls):
        untouched = open_call.result is None and (isinstance(event, ToolResult) or open_call.attempt == 0)
        if untouched and open_call.call.name == event.name:
            return place
    return None


def started(calls: Calls, event: ToolCall) -> Calls:
    """With this start, which uses up what was decided about the call."""
    place = place_of(calls, event)
    if place is None:
        return calls
    attempt = calls[place].attempt + 1
    begun = replace(
        calls[place], attempt=attempt, in_doubt=False, decision=None, child=event.child, stopped=None
    )
    return (*calls[:place], begun, *calls[place + 1 :])


def begun_again(calls: Calls) -> Calls:
    """In a new segment: what started before and has no result may or may not have happened."""
    return tuple(replace(c, in_doubt=c.in_doubt or c.attempt > 0, stopped=None) for c in calls)


def with_child(calls: Calls, event: Child) -> Calls:
    """With how a sub-agent's run stands."""
    return tuple(replace(c, stopped=event.status) if c.child == event.child else c for c in calls)


def with_word(calls: Calls, event: ApprovalRequest | Approval) -> Calls:
    """With the question to a person, or with the answer."""
    changes: dict[str, Any]
    if isinstance(event, ApprovalRequest):
        changes = {"requested": True, "reason": event.reason}
    else:
        changes = {"decision": event}
        if event.decision == "approve":
            changes["edited_args"] = event.edited_args
    return tuple(replace(c, **changes) if c.call.call_id == event.call_id else c for c in calls)


def in_fork(calls: Calls, ran: Mapping[str, str]) -> Calls:
    """The same calls in a fork: what was decided about the parent's is the parent's to use.

    Args:
        ran: How far the parent went with each behind the cut: "done" or "started".
    """
    return tuple(
        replace(
            c,
            decision=None,
            edited_args=None,
            child=None,  # the fork's will be a run of its own
            stopped=None,
            in_doubt=c.in_doubt or c.call.call_id in ran,
            elsewhere=ran.get(c.call.call_id) == "done"
            or (c.requested and bool(c.attempt or c.call.call_id in ran)),
        )
        for c in calls
    )
