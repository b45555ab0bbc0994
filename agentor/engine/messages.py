"""The values that travel between engine, tools and models: message, tool call, usage."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any  # messages are provider JSON

from agentor.engine import strictjson

Message = dict[str, Any]
"""One chat message in OpenAI's chat-completions shape: `role`, `content`, `tool_calls`, `tool_call_id` …
with whatever more a provider gave (`thinking_blocks`, `response_items`, `provider_specific_fields` …)."""

EMPTY_CHAIN = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call of a turn, as the model asked for it.

    `call_id` is unique in the run and never empty; `arguments` is the model's JSON text, unparsed.
    """

    call_id: str
    turn: int
    index: int  # place in its turn, from 0
    name: str
    arguments: str

    @property
    def hash(self) -> str:
        """Of the tool and its arguments, by value: what a person's decision is about. 32 hex digits."""
        return digest([self.name, parsed_arguments(self.arguments)])[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_input_tokens: int = 0  # part of input_tokens
    cache_write_input_tokens: int = 0  # part of input_tokens
    reasoning_tokens: int = 0  # part of output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in _USAGE_FIELDS})

    def to_dict(self) -> dict[str, int]:
        """The counts that are not zero."""
        return {name: count for name in _USAGE_FIELDS if (count := getattr(self, name))}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Usage:
        """Read counts; unknown keys, which only a newer writer can have set, are left out."""
        return cls(**{name: data[name] for name in _USAGE_FIELDS if name in data})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has used up."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    tool_calls: int = 0
    seconds_active: float = 0.0

    def __sub__(self, other: Spent) -> Spent:
        return Spent(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(Spent)})


_USAGE_FIELDS = tuple(field.name for field in fields(Usage))


def parsed_arguments(text: str) -> Any:
    """A model's arguments as JSON; the text itself where it is none. An empty text is an empty object."""
    try:
        return strictjson.loads(text or "{}")
    except ValueError:
        return text


def raw_calls(message: Message) -> list[dict[str, Any]]:
    """The `tool_calls` of an assistant message; an empty list where it has none."""
    return message.get("tool_calls") or []


def block_text(blocks: Iterable[dict[str, Any]]) -> str:
    """The text of a `content` that is a list: its text blocks, joined."""
    return "".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


def assistant_message(text: str | None = None, calls: Iterable[tuple[str, str, str]] = ()) -> Message:
    """Build an assistant message from a text and `(id, tool name, JSON arguments)` triples."""
    message: Message = {"role": "assistant"}
    if text is not None:
        message["content"] = text
    tool_calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    if tool_calls:
        message["tool_calls"] = tool_calls
    return message


def split_message(message: Message) -> dict[str, Any]:
    """The parts of an assistant message, each once, under the names of `Generation`'s fields."""
    rest = {key: value for key, value in message.items() if (key, value) != ("role", "assistant")}
    parts: dict[str, Any] = {}
    if isinstance(rest.get("content"), str):
        parts["text"] = rest.pop("content")
    if isinstance(rest.get("reasoning_content"), str):
        parts["reasoning"] = rest.pop("reasoning_content")
    if isinstance(rest.get("tool_calls"), list) and rest["tool_calls"]:
        parts["calls"] = rest.pop("tool_calls")
    if rest:
        parts["rest"] = rest
    return parts


def chain(start: bytes, messages: Iterable[Message]) -> bytes:
    """Extend a chained digest over messages: hᵢ = SHA-256(hᵢ₋₁ ‖ canonical JSON of mᵢ).

    Args:
        start: The digest so far, 32 bytes; `EMPTY_CHAIN` at the beginning.
    """
    for message in messages:
        start = hashlib.sha256(start + strictjson.canonical(message)).digest()
    return start


def digest(value: Any) -> str:
    """SHA-256 over the canonical JSON of a value, in hex."""
    return hashlib.sha256(strictjson.canonical(value)).hexdigest()
