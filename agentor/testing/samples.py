"""Events for tests of stores: every kind, with values that break careless ones."""

from __future__ import annotations

from typing import Any  # a record's JSON

from agentor.engine.events import Event, Generation, RunEnd, RunStart, ToolCall, ToolResult
from agentor.engine.messages import Usage

_NASTY = "gr\u00fc\u00dfe \0 \u2028 \ud83d \U0001f600 \u202e \x7f \r\n \\ \" ' {} %s $1"
_MESSAGE = {
    "role": "user",
    "content": [{"type": "text", "text": _NASTY}, {"n": None, "f": 1e300, "i": 2**60}],
}


def result(seq: int | None, text: str = "x") -> ToolResult:
    """A small event."""
    return ToolResult(seq=seq, at=1.5, name="t", call_id="c", turn=1, result=text)


def every_kind() -> list[Event]:
    """A log with each kind of event, unknown ones too."""
    call: dict[str, Any] = {
        "id": "c",
        "type": "function",
        "function": {"name": "t", "arguments": '{"a": 1.0, "a": 2}'},
    }
    raw: list[dict[str, Any]] = [
        {
            "type": "run_start",
            "agent": "a",
            "system": _NASTY,
            "messages": [_MESSAGE],
            "format": 1,
            "epoch": 3,
        },
        {"type": "retry", "turn": 1, "error": _NASTY, "wait_s": 0.25, "fallback": "m2"},
        {"type": "generation", "turn": 1, "text": "", "calls": [call, {**call, "id": ""}], "cost": 0.1},
        {
            "type": "generation",
            "turn": 1,
            "reasoning": _NASTY,
            "message": {"thinking_blocks": [{"signature": "=="}]},
        },
        {"type": "tool_call", "name": "t", "call_id": "c", "turn": 1, "args": {"b": True, "\0": []}},
        {"type": "tool_result", "name": "t", "call_id": "c", "turn": 1, "result": "x" * 300_000},
        {"type": "tool_result", "name": "t", "call_id": "call_1_1", "turn": 1, "index": 1, "error": _NASTY},
        {"type": "approval_request", "call_id": "c", "hash": "0" * 64},
        {"type": "rewind", "to": 2, "reason": _NASTY},
        {"type": "context", "messages": [_MESSAGE, _MESSAGE]},
        {"type": "fork", "forked_from": "r", "parent_seq": 3, "calls": {"c": "done"}},
        {"type": "interrupted", "reason": "cancelled", "in_doubt": ["c"]},
        {"type": "of_a_newer_version", "deep": [[[[{"x": [None, 0.1, -0.0, 10**30]}]]]], "": ""},
        {"type": "run_end", "status": "completed", "text": _NASTY, "usage": {"input_tokens": 7}, "turns": 1},
    ]
    return [Event.from_dict({**record, "seq": seq, "at": 1e9 + seq / 8}) for seq, record in enumerate(raw)]


def whole_run() -> list[Event]:
    """A run of two turns with one tool call, from its start to its end."""
    call: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    events: list[Event] = [
        RunStart(agent="a", model="m", messages=[{"role": "user", "content": "go"}], format=1, epoch=1),
        Generation(turn=1, model="m", text="", calls=[call], usage=Usage(input_tokens=3), cost=0.2),
        ToolCall(name="t", call_id="c", turn=1),
        ToolResult(name="t", call_id="c", turn=1, result="ok"),
        Generation(turn=2, model="m", text="done", usage=Usage(input_tokens=4), cost=0.3),
        RunEnd(status="completed", text="done", usage=Usage(input_tokens=7), cost=0.5, turns=2),
    ]
    return [Event.from_dict({**e.to_dict(), "seq": n, "at": 100.0 + n}) for n, e in enumerate(events)]
