"""The fold: events in, conversation and state of a run out; the same for a live run and a loaded one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any  # request parameters

from agentor.engine import strictjson
from agentor.engine.events import (
    FORMAT,
    Approval,
    ApprovalRequest,
    Child,
    Context,
    Event,
    Fork,
    Generation,
    Interrupted,
    Retry,
    Rewind,
    RunEnd,
    RunStart,
    ToolCall,
    ToolResult,
)
from agentor.engine.messages import EMPTY_CHAIN, Call, Message, raw_calls
from agentor.engine.opencalls import (
    OpenCall,
    begun_again,
    in_fork,
    place_of,
    started,
    with_call_ids,
    with_child,
    with_word,
)
from agentor.engine.state import Transcript as Transcript
from agentor.engine.words import CANCEL, CANCELLED, DENIED, DISABLED, INTERRUPTED
from agentor.errors import CorruptLog, UnsupportedLog


def apply(transcript: Transcript, event: Event) -> Transcript:
    """The transcript after one more event. A kind that it does not know changes nothing."""
    seq = transcript.next_seq if event.seq is None else event.seq
    works = transcript.end is None and event.at is not None and not _is_between(event)
    after = replace(transcript, next_seq=seq + 1, last_at=event.at if works else transcript.last_at)
    handler = _HANDLERS.get(type(event))
    return after if handler is None else handler(after, event)


def _is_between(event: Event) -> bool:
    """True where no worker was at work on the run until this event."""
    if isinstance(event, ToolResult):
        return event.by == CANCEL
    return isinstance(event, RunStart | Fork | Approval) or (
        isinstance(event, Interrupted) and bool(event.abandoned)
    )


def advance(transcript: Transcript, event: Event) -> tuple[Transcript, Event]:
    """`apply`, and the event as readers see it: with its request, or its call's arguments."""
    if isinstance(event, Generation):
        event = replace(event, request=(transcript.conversation, transcript.length))
    elif isinstance(event, ToolCall) and event.edited_args is None:
        for open_call in transcript.calls:
            if open_call.call.call_id == event.call_id:
                event = replace(event, arguments=open_call.call.arguments)
    return apply(transcript, event), event


def fold(events: Iterable[Event]) -> Transcript:
    """The transcript of a whole log."""
    transcript = Transcript()
    for event in events:
        transcript = apply(transcript, event)
    return transcript


def hydrate(run_id: str, events: Iterable[Event]) -> tuple[list[Event], Transcript]:
    """Fold a loaded log, and give each event what the log does not repeat (`messages`, `args`).

    Raises:
        UnsupportedLog: a higher log format, or an unknown kind that is marked critical.
        CorruptLog: a record whose parts do not fit together.
    """
    transcript, seen = Transcript(), []
    for event in events:
        transcript, event = hydrate_next(run_id, transcript, event)
        seen.append(event)
    return seen, transcript


def hydrate_next(run_id: str, transcript: Transcript, event: Event) -> tuple[Transcript, Event]:
    """`advance`, over an event that was loaded.

    Raises: as `hydrate`.
    """
    _refuse_newer(run_id, event)
    try:
        return advance(transcript, event)
    except (TypeError, KeyError, AttributeError, ValueError, IndexError) as error:
        raise CorruptLog(run_id, transcript.next_seq, None, f"{event.type}: {error!r}") from error


def _refuse_newer(run_id: str, event: Event) -> None:
    if isinstance(event, RunStart) and (event.format or 0) > FORMAT:
        raise UnsupportedLog(run_id, f"its log has format {event.format}, known is {FORMAT}")
    if type(event) is Event and event.extra.get("critical") is True:
        raise UnsupportedLog(run_id, f"it has events of the unknown kind {event.type!r}")


# --- the conversation ---------------------------------------------------------------------------


def _append(t: Transcript, messages: Iterable[Message]) -> Transcript:
    conversation = t.conversation
    if len(conversation) != t.length:  # another transcript went on from here: leave its list alone
        conversation = conversation[: t.length]
    conversation.extend(messages)
    return replace(t, conversation=conversation, length=len(conversation))


def _restart(t: Transcript, messages: list[Message]) -> Transcript:
    return replace(t, conversation=messages, length=len(messages), chained=0, chain_sha256=EMPTY_CHAIN)


# --- one handler per kind -----------------------------------------------------------------------


def _run_start(t: Transcript, event: RunStart) -> Transcript:
    t = replace(
        t,
        calls=begun_again(t.calls),
        agent=event.agent or t.agent,
        model=event.model or t.model,
        fingerprint=event.fingerprint or t.fingerprint,
        definitions={**t.definitions, **event.tools} if event.tools else t.definitions,
        output=event.output or (t.output if "output" in (event.fingerprint or {}) else None),
        limits={**t.limits, **(event.limits or {})},
        streams=event.stream or t.streams,
        epoch=event.epoch or t.epoch,
        segment=t.segment + 1,
        starts=t.starts + 1,
        end=None,
        budget=event.budget or t.budget,
        active_s=t.active_s + t._segment_s,
        began_at=event.at,
        last_at=event.at,
    )
    if event.format is None and event.engine is None and event.messages and t.segment > 1:
        # agentor 0.1 wrote the whole conversation into each segment's start
        t = replace(_restart(t, list(event.messages)), last=None, calls=(), notices=())
    elif event.messages:
        t = replace(_append(t, event.messages), last=None, fallback=None)
    if event.system is not None and not t.has_system:
        t = _restart(t, [{"role": "system", "content": event.system}, *t.messages])
    return t


def _retry(t: Transcript, event: Retry) -> Transcript:
    return replace(t, fallback=event.fallback or t.fallback)


def _generation(t: Transcript, event: Generation) -> Transcript:
    if event.error is not None and event.error_type != CANCELLED:
        t = replace(t, fallback=None)  # all models have failed: a resume begins with the first one again
    turn = event.turn
    if "messages" in event.extra:  # agentor 0.1: the request is in the record, turns begin anew at 1
        t, turn = _restart(t, list(event.extra["messages"])), t.turn + 1
    t = replace(
        t,
        turn=turn,
        model=event.model or t.model,
        params=event.params if event.params is not None else t.params,
        starts=0,
        last=event,
        last_segment=t.segment,
        decided=False,
        calls=(),
        usage=t.usage + event.usage if event.usage else t.usage,
        cost=t.cost if event.cost is None else (t.cost or 0.0) + event.cost,
        answers=t.answers + (event.error is None),
        asked=event.usage.input_tokens if event.usage else t.asked,
    )
    if event.sent is not None:
        t = replace(t, chained=event.sent["count"], chain_sha256=bytes.fromhex(event.sent["sha256"]))
    if event.error is not None:
        return t
    t = _open_calls(t, raw_calls(event.message))
    return _append(t, [with_call_ids(event.message, t.calls)])


def _open_calls(t: Transcript, requested: list[dict[str, Any]]) -> Transcript:
    if not requested:
        return t
    ids = t.ids
    if len(ids) != t.known_ids:
        ids = dict(list(ids.items())[: t.known_ids])
    taken: set[str] = set()
    calls = []
    for index, raw in enumerate(requested):
        function = raw.get("function") or {}
        call_id = raw.get("id") or ""
        # Only ids of other turns count: after a rewind the same turn asks again, often with the same ids.
        if not call_id or call_id in taken or ids.get(call_id, t.turn) != t.turn:
            call_id = f"call_{t.turn}_{index}"
            while call_id in taken or ids.get(call_id, t.turn) != t.turn:
                call_id += "_"
        taken.add(call_id)
        ids.setdefault(call_id, t.turn)
        name, arguments = function.get("name") or "", function.get("arguments") or ""
        if not isinstance(arguments, str):  # some servers send the object itself
            arguments = strictjson.dumps(arguments)
        call = Call(call_id=call_id, turn=t.turn, index=index, name=name, arguments=arguments)
        calls.append(OpenCall(call=call))
    return replace(t, ids=ids, known_ids=len(ids), calls=tuple(calls), notices=())


def _tool_call(t: Transcript, event: ToolCall) -> Transcript:
    goes_on = event.child is not None and event.attempt > 1  # a sub-agent's run, which is no other call
    return replace(t, calls=started(t.calls, event), tool_starts=t.tool_starts + (not goes_on))


def _child(t: Transcript, event: Child) -> Transcript:
    return replace(t, calls=with_child(t.calls, event), children={**t.children, event.child: event}, starts=0)


def _tool_result(t: Transcript, event: ToolResult) -> Transcript:
    place = place_of(t.calls, event)
    if place is None or t.calls[place].result is not None:
        return t
    answered = replace(t.calls[place], result=event)
    calls = (*t.calls[:place], answered, *t.calls[place + 1 :])
    t = replace(t, calls=calls, starts=0, decided=t.decided or event.by is not None)
    t = _count_failure(t, event)
    return t if t.open_calls else _close_turn(t)


def _decided(t: Transcript, event: ApprovalRequest | Approval) -> Transcript:
    return replace(t, calls=with_word(t.calls, event), decided=True)


def _count_failure(t: Transcript, event: ToolResult) -> Transcript:
    limit = t.limits.get("max_tool_failures")
    # An interrupted or denied call says nothing about its tool; one of a disabled tool is no new failure.
    if event.error is None or event.error_type in (INTERRUPTED, DISABLED, DENIED) or not limit:
        return t
    count = t.failures.get(event.name, 0) + 1
    t = replace(t, failures={**t.failures, event.name: count})
    if count < limit or event.name in t.disabled:
        return t
    return replace(t, disabled=t.disabled | {event.name}, notices=(*t.notices, event.name))


def _close_turn(t: Transcript) -> Transcript:
    # Providers reject a block of tool messages that is interrupted or out of order: the whole
    # block goes in at once, in the order of the calls, and the notices wait until it is complete.
    block: list[Message] = [
        {"role": "tool", "tool_call_id": c.call.call_id, "content": c.result.content}
        for c in t.calls
        if c.result is not None
    ]
    notices: list[Message] = [
        {
            "role": "user",
            "content": f"The tool {name!r} failed {t.failures[name]} times and is switched off. "
            "Go on without it, or say what cannot be done.",
        }
        for name in t.notices
    ]
    t = _append(t, [*block, *notices])
    return replace(t, calls=(), last=None, notices=())


def _rewind(t: Transcript, event: Rewind) -> Transcript:
    dropped = t.last
    if dropped is None:
        return t
    before = t.length - 1  # the dropped answer is the last message of an unanswered turn
    t = replace(t, conversation=t.conversation[:before], length=before)
    return replace(t, turn=t.turn - 1, last=None, calls=(), notices=())


def _context(t: Transcript, event: Context) -> Transcript:
    t = replace(_restart(t, list(event.messages)), asked=None)
    cost = t.cost if event.cost is None else (t.cost or 0.0) + event.cost
    return replace(t, usage=t.usage + event.usage if event.usage else t.usage, cost=cost)


def _fork(t: Transcript, event: Fork) -> Transcript:
    calls = in_fork(t.calls, event.calls or {})
    # A fork is the way out of a poisoned run: it begins to count anew. Epochs are counted per run.
    from_zero = (t.budget or {}).get("forks") == "from_zero"
    t = replace(
        t,
        calls=calls,
        starts=0,
        epoch=0,
        end=None if t.status == "poisoned" else t.end,
        spent_before=t.spent if from_zero else t.spent_before,
        reuses=(event.forked_from, event.parent_seq or 0) if event.reuse else None,
    )
    return _edited(t, event.edits) if event.edits else t


def _edited(t: Transcript, edits: Iterable[Mapping[str, Any]]) -> Transcript:
    messages, calls, last = t.messages, t.calls, t.last
    for edit in edits:
        if "call_id" in edit:
            call_id, text = edit["call_id"], edit["result"]
            of_call = {"role": "tool", "tool_call_id": call_id}
            messages = [{**m, "content": text} if of_call.items() <= m.items() else m for m in messages]
            calls = tuple(
                replace(c, result=replace(c.result, result=text, error=None, error_type=None))
                if c.call.call_id == call_id and c.result is not None
                else c
                for c in calls
            )
        else:
            place, message = edit["place"], edit["message"]
            messages = [*messages[:place], message, *messages[place + 1 :]]
            if last is not None and last.seq == edit["of"] and isinstance(message.get("content"), str):
                last = replace(last, text=message["content"])
    return replace(_restart(t, messages), calls=calls, last=last)


def _ended(t: Transcript, event: RunEnd | Interrupted) -> Transcript:
    cancelled = event.status == CANCELLED  # then a person has seen it, and it is no poison
    return replace(t, end=event, starts=0 if cancelled else t.starts)


_HANDLERS: dict[type[Event], Any] = {  # Any: each handler takes the one kind it stands beside
    RunStart: _run_start,
    Retry: _retry,
    Generation: _generation,
    ToolCall: _tool_call,
    Child: _child,
    ToolResult: _tool_result,
    ApprovalRequest: _decided,
    Approval: _decided,
    Rewind: _rewind,
    Context: _context,
    Fork: _fork,
    RunEnd: _ended,
    Interrupted: _ended,
}
