"""What a fork changes in the part that it copies: results of tools and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any  # messages are JSON

from agentor.engine import strictjson
from agentor.engine.events import Event, Generation, RunEnd, RunStart, ToolResult
from agentor.engine.messages import Message, raw_calls
from agentor.engine.opencalls import place_of
from agentor.engine.transcript import Transcript, apply

Edit = str | Message


def edits_of(run_id: str, events: Sequence[Event], edit: Mapping[int, Edit], at: int) -> list[dict[str, Any]]:
    """Edits as they stand in a fork's marker: each with `of`, the seq of what it changes.

    Args:
        events: The parent's, hydrated.
        edit: By seq: of a `tool_result`, the text of the new result; of a `generation`, its new text, or the
            whole message with the same calls; of a `run_start`, the text of its last message, or a message
            (with the role "system", the new instructions).
        at: The last record that is copied.

    Raises:
        TypeError: no number of a record.
        ValueError: what cannot be edited so, or is not part of the conversation at `at`.
    """
    if wrong := [seq for seq in edit if isinstance(seq, bool) or not isinstance(seq, int)]:
        raise TypeError(f"edit takes numbers of records (event.seq), not {wrong[0]!r}")
    t, found = Transcript(), dict[int, dict[str, Any]]()
    said: dict[int, tuple[Message, Message]] = {}  # by seq, the message as it is and as it shall be
    for event in events[: at + 1]:
        seq = event.seq or 0
        before, t = t, apply(t, event)
        if seq not in edit:
            continue
        if isinstance(event, ToolResult):
            place = place_of(before.calls, event)
            if place is None or not isinstance(edit[seq], str):
                raise ValueError(f"run {run_id!r}, record {seq}: the new result of a call is a text")
            call_id = before.calls[place].call.call_id
            found[seq] = {"of": seq, "call_id": call_id, "result": edit[seq]}
        elif isinstance(event, Generation | RunStart):
            old = _message_of(run_id, event, before, t, edit[seq])
            said[seq] = (old, _edited(run_id, seq, old, edit[seq]))
        else:
            raise ValueError(f"run {run_id!r}, record {seq}: a {event.type} cannot be edited")
    if unknown := sorted(set(edit) - set(found) - set(said)):
        raise ValueError(f"run {run_id!r} has no record {unknown[0]} up to where it is forked, at {at}")
    for seq, edit_ in found.items():
        answered = {m.get("tool_call_id") for m in t.messages} | {c.call.call_id for c in t.calls if c.result}
        if edit_["call_id"] not in answered:
            raise ValueError(f"run {run_id!r}, record {seq}: the conversation at {at} does not hold it")
    for seq, (old, new) in said.items():
        place = next((n for n, m in enumerate(t.messages) if m is old), None)
        if place is None:
            raise ValueError(f"run {run_id!r}, record {seq}: the conversation at {at} does not hold it")
        found[seq] = {"of": seq, "place": place, "message": new}
    return [found[seq] for seq in sorted(found)]


def takes_effect(events: Sequence[Event], edit: Mapping[int, Edit]) -> int:
    """The last record before a model hears of these edits: with all results of that turn."""
    at = max((seq for seq in edit if isinstance(seq, int)), default=0)
    for event in events[at + 1 :]:
        if isinstance(event, Generation | RunStart | RunEnd):
            break
        at = event.seq or at
    return at


def _message_of(
    run_id: str, event: Generation | RunStart, before: Transcript, after: Transcript, edit: Edit
) -> Message:
    seq = event.seq or 0
    wants_system = isinstance(edit, dict) and edit.get("role") == "system"
    if isinstance(event, RunStart) and wants_system and after.has_system:
        return next(m for m in after.messages if m.get("role") == "system")
    if after.length == before.length or (isinstance(event, RunStart) and not event.messages):
        raise ValueError(f"run {run_id!r}, record {seq}: it adds no message")
    return after.messages[-1]


def _edited(run_id: str, seq: int, old: Message, new: Edit) -> Message:
    try:
        strictjson.dumps(new)
    except (TypeError, ValueError) as error:
        raise ValueError(f"run {run_id!r}, record {seq}: the edit cannot be saved as JSON: {error}") from None
    if isinstance(new, str):
        return {**old, "content": new}
    if not isinstance(new, dict) or new.get("role") != old.get("role"):
        raise ValueError(f"run {run_id!r}, record {seq}: give a text, or a message of its role")
    if raw_calls(new) != raw_calls(old):
        raise ValueError(
            f"run {run_id!r}, record {seq}: an answer's calls cannot be edited; fork before it: at={seq - 1}"
        )
    return new
