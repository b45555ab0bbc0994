"""What a provider is sent of a conversation: its own parts exactly, of others' what it can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any  # message parts are provider JSON

from agentor.engine import strictjson
from agentor.engine.messages import Message, block_text
from agentor.engine.models.families import ANTHROPIC, GEMINI, OPENROUTER, RESPONSES, Target

_MESSAGE_KEYS = ("role", "content", "name", "tool_call_id")
_CALL_KEYS = ("id", "type", "function")
_READERS = {  # kind of opaque part -> the family that can read it
    "signed_thinking": ANTHROPIC,
    "thought_signature": GEMINI,
    "encrypted_reasoning": RESPONSES,
    "reasoning_details": OPENROUTER,
}


def project(messages: Sequence[Message], to: Target) -> tuple[list[Message], Counter[str]]:
    """The conversation as this provider may be sent it; the messages themselves are not changed.

    Text, calls and results always go along. Signed or encrypted parts of another origin are left
    out, and so is its thinking, except where the provider reads plain reasoning beside a message.

    Returns:
        The messages, and how many parts of each kind were left out.
    """
    left_out: Counter[str] = Counter()
    out: list[Message] = []
    for message in messages:
        if message.get("role") == "assistant":
            own = to.owns(message)
            lost = {k: n for k, n in opaque_parts(message).items() if not own or _READERS[k] != to.family}
            left_out.update(lost)
            message = _assistant(message, to, own=own)
            if len(message) == 1:
                continue  # an empty answer: Anthropic and Gemini refuse a message without content
        else:
            message = _other(message, to)
        out.append(message)
    return out, left_out


def opaque_parts(message: Message) -> Counter[str]:
    """The parts of an assistant message that only its own provider can read, by kind."""
    found: Counter[str] = Counter()
    content = message.get("content")
    blocks = [*(content if isinstance(content, list) else ()), *(message.get("thinking_blocks") or ())]
    found["signed_thinking"] = sum(1 for b in blocks if b.get("signature") or b.get("data"))
    fields = message.get("provider_specific_fields") or {}
    calls = message.get("tool_calls") or ()
    signed = sum(1 for c in calls if (c.get("provider_specific_fields") or {}).get("thought_signature"))
    found["thought_signature"] = max(signed, len(fields.get("thought_signatures") or ()))
    items = message.get("response_items") or ()
    found["encrypted_reasoning"] = sum(1 for item in items if item.get("encrypted_content"))
    found["reasoning_details"] = len(_details(message))
    return +found  # without the zeros


def thinking_cannot_go_on(messages: Sequence[Message], to: Target) -> bool:
    """True where Anthropic would refuse thinking: since the last user message another model called tools.

    Its API wants each turn of such a loop to begin with its own thinking, or thinking to be off.
    """
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        # A user message right after tool results (a notice) is one with them, for Anthropic.
        if message.get("role") == "user" and (place == 0 or messages[place - 1].get("role") != "tool"):
            return False
        calls = message.get("role") == "assistant" and message.get("tool_calls")
        if calls and message.get("origin") != to.origin and not opaque_parts(message)["signed_thinking"]:
            return True
    return False


def thinking_text(message: Message) -> str:
    """The thinking of an assistant message as plain text, whoever wrote it."""
    if isinstance(message.get("reasoning_content"), str):
        return str(message["reasoning_content"])
    content = message.get("content")
    blocks = content if isinstance(content, list) else message.get("thinking_blocks") or ()
    thinking = [str(b["thinking"]) for b in blocks if b.get("thinking")]
    for item in message.get("response_items") or ():
        if item.get("type") == "reasoning":
            parts = item.get("summary") or item.get("content") or ()
            thinking += [str(part["text"]) for part in parts if part.get("text")]
    return "\n\n".join(thinking)


def _assistant(message: Message, to: Target, *, own: bool) -> Message:
    out: Message = {"role": "assistant"}
    content = message.get("content")
    if isinstance(content, list):
        content = _not_empty(content) if own and to.family == ANTHROPIC else block_text(content)
    if content:
        out["content"] = content
    calls = message.get("tool_calls")
    if calls:
        out["tool_calls"] = [_call(c, to, own=own) for c in calls]
    out.update(_opaque(message, to) if own else {})
    if to.reasoning_key:
        reads = to.any_reasoning or message.get("origin") == to.origin
        reasoning = thinking_text(message) if reads else ""
        if reasoning or (to.always_thinks and calls):
            out[to.reasoning_key] = reasoning
    if "content" not in out and _wants_content(to, out):
        out["content"] = ""
    return out


def _other(message: Message, to: Target) -> Message:
    """A system, user or tool message, with the keys that every provider knows."""
    keys = (*_MESSAGE_KEYS, "cache_control") if to.family == ANTHROPIC else _MESSAGE_KEYS
    out = {key: message[key] for key in keys if message.get(key) is not None}
    if "tool_call_id" in out:
        out["tool_call_id"] = to.call_ids.fit(str(out["tool_call_id"]))
    if isinstance(out.get("content"), list):
        out["content"] = _not_empty(out["content"])
    return out


def _wants_content(to: Target, out: Message) -> bool:
    if to.family == GEMINI:
        return len(out) > 1  # it drops a message without
    return to.family != ANTHROPIC and "tool_calls" not in out


def _call(call: dict[str, Any], to: Target, *, own: bool) -> dict[str, Any]:
    keys = (*_CALL_KEYS, "provider_specific_fields") if own and to.family == GEMINI else _CALL_KEYS
    out = {**{k: call[k] for k in keys if k in call}, "id": to.call_ids.fit(str(call.get("id")))}
    function = out.get("function") or {}
    arguments = str(function.get("arguments") or "")
    if (to.parsed_arguments or not own) and not _is_object(arguments):
        # The model's words stay readable, beside the result that says what was wrong with them.
        arguments = strictjson.dumps({"invalid_json": arguments} if arguments.strip() else {})
        out["function"] = {**function, "arguments": arguments}
    return out


def _is_object(text: str) -> bool:
    try:
        return isinstance(strictjson.loads(text), dict)
    except ValueError:
        return False


def _opaque(message: Message, to: Target) -> dict[str, Any]:
    fields: dict[str, Any] = message.get("provider_specific_fields") or {}
    if to.family == ANTHROPIC:
        blocks = message.get("thinking_blocks")
        listed = isinstance(message.get("content"), list)
        return {"thinking_blocks": blocks} if blocks and not listed else {}
    if to.family == GEMINI:
        signatures = fields.get("thought_signatures")
        return {"provider_specific_fields": {"thought_signatures": signatures}} if signatures else {}
    if to.family == RESPONSES:
        items = message.get("response_items")
        return {"response_items": items} if items else {}
    if to.family == OPENROUTER:
        details = _details(message)
        return {"reasoning_details": details} if details else {}
    return {}


def _details(message: Message) -> list[dict[str, Any]]:
    fields = message.get("provider_specific_fields") or {}
    return message.get("reasoning_details") or fields.get("reasoning_details") or []


def _not_empty(blocks: list[Any]) -> list[Any]:
    return [b for b in blocks if not (isinstance(b, dict) and b.get("type") == "text") or b.get("text")]
