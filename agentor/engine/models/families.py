"""Which family of providers a model belongs to, and what that family may be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # message parts are provider JSON

from agentor.engine.messages import Message, block_text

ANTHROPIC, GEMINI, RESPONSES, OPENROUTER = "anthropic", "gemini", "responses", "openrouter"
REASONING_CHAT, CHAT = "reasoning-chat", "chat"

_BY_PREFIX = {
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "openrouter": OPENROUTER,
    # These read their own `reasoning_content` again; others reject the key.
    "deepseek": REASONING_CHAT,
    "moonshot": REASONING_CHAT,
    "ollama_chat": REASONING_CHAT,
    "zai": REASONING_CHAT,
}
_REASONING_MODELS = ("gpt-5", "o1", "o3", "o4")  # OpenAI's, by the beginning of their names
_CALL_KEYS = ("id", "type", "function")


def family(model: str, *, responses: bool = False) -> str:
    """The family of a LiteLLM model string.

    Args:
        responses: The model is asked over OpenAI's Responses API.
    """
    if responses:
        return RESPONSES
    prefix, _, rest = model.partition("/")
    if not rest:
        prefix, rest = "", model
    if prefix in ("bedrock", "vertex_ai", ""):
        if "claude" in rest:
            return ANTHROPIC
        if rest.startswith("gemini"):
            return GEMINI
    return _BY_PREFIX.get(prefix, CHAT)


def is_openai_reasoning(model: str) -> bool:
    """True for OpenAI's own reasoning models, which keep their reasoning over the Responses API."""
    prefix, _, rest = model.partition("/")
    name = rest if prefix == "openai" else model
    return name.startswith(_REASONING_MODELS) and not name.startswith("gpt-5-chat")


def normalise(message: dict[str, Any]) -> Message:
    """A provider's assistant message as it goes into the log: no nulls, no duplicates, no noise."""
    kept: Message = {}
    for key, value in message.items():
        if (
            value is None
            or key in ("function_call", "refusal")
            or (value in ([], {}, "") and key != "content")
        ):
            continue
        kept[key] = value
    kept["role"] = "assistant"
    if "tool_calls" in kept:
        kept["tool_calls"] = [_without_nulls(c, "index") for c in kept["tool_calls"]]
    fields = kept.pop("provider_specific_fields", None)
    if isinstance(fields, dict) and (fields := _without_nulls(fields, *_REPEATED)):
        kept["provider_specific_fields"] = fields
    return kept


# What LiteLLM keeps a second time under provider_specific_fields.
_REPEATED = ("citations", "thinking_blocks", "reasoningContent", "reasoningContentBlocks", "reasoning")


def _without_nulls(item: dict[str, Any], *drop: str) -> dict[str, Any]:
    return {k: v for k, v in item.items() if k not in drop and v is not None and v != []}


def project(messages: Sequence[Message], to: str) -> list[Message]:
    """The conversation as this family may be sent it; the messages themselves are not changed."""
    return [_assistant(m, to) if m.get("role") == "assistant" else m for m in messages]


def _assistant(message: Message, to: str) -> Message:
    out: Message = {"role": "assistant"}
    content = message.get("content")
    if isinstance(content, list):
        content = _signed_blocks(content) if to == ANTHROPIC else block_text(content)
    if content:
        out["content"] = content
    calls = message.get("tool_calls")
    if calls:
        keys = (*_CALL_KEYS, "provider_specific_fields") if to == GEMINI else _CALL_KEYS
        out["tool_calls"] = [{k: call[k] for k in keys if k in call} for call in calls]
    if "content" not in out and (to == GEMINI or not calls):
        out["content"] = ""  # Gemini drops a message without; others want content or calls
    out.update(_opaque(message, to))
    return out


def _opaque(message: Message, to: str) -> dict[str, Any]:
    fields: dict[str, Any] = message.get("provider_specific_fields") or {}
    if to == ANTHROPIC:
        blocks = message.get("thinking_blocks")
        listed = isinstance(message.get("content"), list)
        return {"thinking_blocks": blocks} if blocks and not listed else {}
    if to == GEMINI:
        signatures = fields.get("thought_signatures")
        return {"provider_specific_fields": {"thought_signatures": signatures}} if signatures else {}
    if to == RESPONSES:
        own = {"reasoning_items": message["reasoning_items"]} if "reasoning_items" in message else {}
        replay = {k: v for k, v in fields.items() if k in ("phase", "openai_responses_replay")}
        return {**own, "provider_specific_fields": replay} if replay else own
    if to == OPENROUTER:
        details = message.get("reasoning_details") or fields.get("reasoning_details")
        return {"reasoning_details": details} if details else {}
    if to == REASONING_CHAT and "reasoning_content" in message:
        return {"reasoning_content": message["reasoning_content"]}
    return {}


def _signed_blocks(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [b for b in blocks if b.get("type") != "text" or b.get("text")]
