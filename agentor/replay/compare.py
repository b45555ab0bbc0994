"""What differs between a recorded request and the present one, by what matters to a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any  # JSON

from agentor.engine import strictjson
from agentor.engine.calls import AgentSpec
from agentor.engine.fingerprint import definitions_of, fingerprint_of, same, tool_changes
from agentor.engine.messages import Message
from agentor.engine.transcript import Transcript
from agentor.replay.report import Difference


def message_differences(
    old: Sequence[Message], new: Sequence[Message], start: int, names: Mapping[str, str]
) -> list[Difference]:
    """What differs between two lists of messages, the order of keys aside.

    Args:
        start: The place of their first message in the request, from 0.
        names: The tool of each call id.
    """
    if list(old) == list(new):
        return []
    if len(old) == len(new) and _counted(old) == _counted(new):
        moved = [start + n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        what = f"the order of messages {moved[0]} to {moved[-1]}"
        return [Difference("message", what, _roles(old), _roles(new))]
    if start == 0 and _system(old) != _system(new) and None in (_system(old), _system(new)):
        there = [m[1:] if _system(m) is not None else m for m in (old, new)]
        told = instructions_difference(_system(old), _system(new))
        return [told, *message_differences(there[0], there[1], 1, names)]
    found = []
    for place, (before, after) in enumerate(zip(old, new, strict=False), start):
        if before != after:
            found.append(_difference(place, before, after, names))
    if len(old) != len(new):
        what = f"{start + len(new)} messages instead of {start + len(old)}"
        rest = min(len(old), len(new))
        found.append(
            Difference("message", what, *("\n".join(map(text_of, m[rest:])) or None for m in (old, new)))
        )
    return found


def result_difference(name: str, call_id: str, before: str, after: str) -> Difference:
    """Another result of a tool."""
    return Difference("result", f"the result of {name} ({call_id})", before, after)


def instructions_difference(before: str | None, after: str | None) -> Difference:
    """Another system message."""
    return Difference("instructions", "the instructions", before, after)


def agent_differences(spec: AgentSpec, t: Transcript) -> list[Difference]:
    """Tools, output type and model, against what the log says of the agent that wrote it.

    Args:
        t: The recorded transcript.
    """
    found = []
    if t.fingerprint:
        now = definitions_of(spec)
        for name, words in tool_changes(spec, t):
            before, after = t.definitions.get(name), now.get(name)
            texts = (_pretty(before), _pretty(after)) if before and after else (None, None)
            found.append(Difference("tool", words, *texts))
        if same(t.output) != same(spec.response_format) and t.fingerprint.get("output") != fingerprint_of(
            spec
        ).get("output"):
            found.append(
                Difference("output", "the output type", _pretty(t.output), _pretty(spec.response_format))
            )
    return found


def model_difference(before: str | None, spec: AgentSpec) -> list[Difference]:
    """Another model than the one that a segment began with."""
    if before is None or before == spec.model_name:
        return []
    return [Difference("model", f"the model was {before}, is {spec.model_name}")]


def settings_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Settings of the model, one by one."""
    found = []
    for name in sorted({*old, *new}):
        before, after = (_short(s[name]) if name in s else None for s in (old, new))
        if before != after:
            what = f"{name} was {before}, is {after}"
            what = f"{name} is new: {after}" if before is None else what
            what = f"{name} is gone, was {before}" if after is None else what
            found.append(Difference("settings", what))
    return found


def text_of(message: Message) -> str:
    """A message for people: its role, its text, and its calls."""
    content, calls = message.get("content"), message.get("tool_calls") or []
    lines = [f"{message.get('role')}: {content if isinstance(content, str) else _short(content)}"]
    for call in calls:
        function = call.get("function") or {}
        lines.append(f"  {function.get('name')}({function.get('arguments')})")
    rest = {k: v for k, v in message.items() if k not in ("role", "content", "tool_calls", "tool_call_id")}
    return "\n".join([*lines, *(f"  {key}: {_short(value)}" for key, value in rest.items() if value)])


def _difference(place: int, before: Message, after: Message, names: Mapping[str, str]) -> Difference:
    role = before.get("role")
    if role != after.get("role"):
        return Difference("message", f"message {place}", text_of(before), text_of(after))
    if role == "system" and place == 0:
        return instructions_difference(_content(before), _content(after))
    if role == "tool" and before.get("tool_call_id") == after.get("tool_call_id"):
        call_id = str(before.get("tool_call_id"))
        return result_difference(names.get(call_id, "a tool"), call_id, _content(before), _content(after))
    return Difference("message", f"message {place} ({role})", text_of(before), text_of(after))


def _system(messages: Sequence[Message]) -> str | None:
    is_there = bool(messages) and messages[0].get("role") == "system"
    return _content(messages[0]) if is_there else None


def _content(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else _short(content)


def _counted(messages: Sequence[Message]) -> Counter[bytes]:
    return Counter(strictjson.canonical(m) for m in messages)


def _roles(messages: Sequence[Message]) -> str:
    return "\n".join(text_of(m).splitlines()[0][:100] for m in messages)


def _short(value: Any) -> str:
    return strictjson.canonical(value).decode()


def _pretty(value: Any) -> str | None:
    return None if value is None else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
