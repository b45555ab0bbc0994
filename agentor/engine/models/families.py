"""Which family of providers a model belongs to, and what makes its messages its own."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any  # message parts are provider JSON
from urllib.parse import urlsplit

from agentor.engine.messages import Message

ANTHROPIC, GEMINI, RESPONSES, OPENROUTER = "anthropic", "gemini", "responses", "openrouter"
CHAT = "chat"

# These read their own reasoning again, under the key that they give it; others reject the key.
_REASONING_KEYS = {
    "cerebras": "reasoning",
    "dashscope": "reasoning_content",
    "deepseek": "reasoning_content",
    "fireworks_ai": "reasoning_content",
    "groq": "reasoning",
    "hosted_vllm": "reasoning_content",
    "minimax": "reasoning_content",
    "moonshot": "reasoning_content",
    "ollama_chat": "reasoning_content",
    "zai": "reasoning_content",
}
_REASONING_MODELS = ("gpt-5", "gpt-6", "o1", "o3", "o4")  # OpenAI's, by the beginning of their names
_CLAUDE_HOSTS, _GEMINI_HOSTS = ("", "bedrock", "vertex_ai", "azure_ai"), ("", "vertex_ai")


@dataclass(frozen=True, slots=True)
class CallIds:
    """What a provider takes as the id of a tool call; other ids are mapped, always to the same one."""

    pattern: re.Pattern[str]
    prefix: str
    size: int

    def fit(self, call_id: str) -> str:
        """The id itself where it is valid, else one made of its SHA-256."""
        if self.pattern.fullmatch(call_id):
            return call_id
        number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest()[:16], "big")
        letters = ""
        while len(letters) < self.size - len(self.prefix):
            number, place = divmod(number, 36)
            letters += "0123456789abcdefghijklmnopqrstuvwxyz"[place]
        return self.prefix + letters


# From the providers' API references and error messages.
_PLAIN = CallIds(re.compile(r"[A-Za-z0-9_-]{1,64}"), "call_", 29)  # Anthropic, Bedrock, Responses
_OPENAI = CallIds(re.compile(r".{1,40}", re.DOTALL), "call_", 29)
_MISTRAL = CallIds(re.compile(r"[A-Za-z0-9]{9}"), "", 9)
_ANY = CallIds(re.compile(r".+", re.DOTALL), "call_", 29)


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked: the family that decides the shape, and the origin that can read signed parts.

    Each message that a model of ours answers says under `origin` whose it is. What a provider
    signed or encrypted goes back to its own origin only.
    """

    family: str
    origin: str
    reasoning_key: str | None  # where this provider reads plain reasoning again
    call_ids: CallIds
    any_reasoning: bool = False  # also another model's; an unknown server gets its own only
    parsed_arguments: bool = False  # its format holds arguments as an object, not as text
    always_thinks: bool = False  # its tool calls want a reasoning beside them, be it empty

    def owns(self, message: Message) -> bool:
        """True for this origin's own message; one that does not say whose it is goes by its shape."""
        return message.get("origin") in (None, self.origin)


def target(model: str, *, responses: bool = False, base_url: str | None = None) -> Target:
    """Who a LiteLLM model string asks.

    Args:
        responses: The model is asked over the Responses API.
        base_url: Where that is not the provider's own address. Two servers are told apart by its
            host; its port may change between the processes of one run. Claude and Gemini read
            their own signatures wherever they run.
    """
    provider, name = split_name(model)
    host = urlsplit(base_url).hostname if base_url else None
    home = provider if host is None else f"{provider or 'openai'}@{host}"
    if responses:
        return Target(RESPONSES, f"responses:{home or 'openai'}", None, _PLAIN)
    if provider == "anthropic" or (provider in _CLAUDE_HOSTS and "claude" in name):
        own = ANTHROPIC if host is None or "claude" in name else home
        return Target(ANTHROPIC, own, None, _PLAIN, parsed_arguments=True)
    if provider == "gemini" or (provider in _GEMINI_HOSTS and name.startswith("gemini")):
        own = GEMINI if host is None or "gemini" in name else home
        return Target(GEMINI, own, None, _ANY, parsed_arguments=True)
    if provider == "openrouter":
        vendor = name.partition("/")[0]
        return Target(OPENROUTER, f"openrouter:{vendor}", None, _OPENAI if vendor == "openai" else _PLAIN)
    if provider in ("openai", "") and host is None:
        return Target(CHAT, "openai", None, _OPENAI)
    if provider == "bedrock":
        return Target(CHAT, provider, None, _PLAIN, parsed_arguments=True)
    if provider == "mistral":
        return Target(CHAT, provider, None, _MISTRAL)
    if provider in ("openai", ""):
        return Target(CHAT, home, "reasoning_content", _ANY)
    return Target(
        CHAT,
        home,
        _REASONING_KEYS.get(provider),
        _ANY,
        any_reasoning=True,
        parsed_arguments=provider.startswith("ollama"),
        always_thinks=provider == "deepseek",
    )


def split_name(model: str) -> tuple[str, str]:
    """A LiteLLM model string as provider (empty where it names none) and model."""
    provider, slash, name = model.partition("/")
    return (provider, name) if slash else ("", model)


def is_openai_reasoning(model: str) -> bool:
    """True for OpenAI's own reasoning models, which keep their reasoning over the Responses API."""
    provider, name = split_name(model)
    name = name if provider == "openai" else model
    return name.startswith(_REASONING_MODELS) and not name.startswith("gpt-5-chat")


def normalise(message: dict[str, Any], origin: str) -> Message:
    """A provider's assistant message as it goes into the log: no nulls, no duplicates, no noise.

    Raises:
        TypeError: a part of it has a shape that cannot be an answer.
    """
    kept: Message = {"role": "assistant"}
    for key, value in message.items():
        dropped = value is None or key in ("role", "function_call", "refusal")
        if not dropped and (key == "content" or value not in ([], {}, "")):
            kept[key] = value
    if not isinstance(kept.get("content", ""), str | list):
        raise TypeError(f"content of an unknown shape: {kept['content']!r:.200}")
    if "tool_calls" in kept:
        for call in kept["tool_calls"]:
            _check_call(call)
        kept["tool_calls"] = [_without_nulls(c, "index") for c in kept["tool_calls"]]
    fields = kept.pop("provider_specific_fields", None)
    if isinstance(fields, dict) and (fields := _without_nulls(fields, *_REPEATED)):
        kept["provider_specific_fields"] = fields
    if message.get("refusal") and not kept.get("content"):
        kept["content"] = message["refusal"]
    if kept.get("reasoning") == kept.get("reasoning_content"):
        kept.pop("reasoning", None)
    elif isinstance(kept.get("reasoning"), str):
        kept.setdefault("reasoning_content", kept.pop("reasoning"))
    kept["origin"] = origin
    return dict(_encodable(kept))


def _encodable(value: Any) -> Any:
    """The value without halves of surrogate pairs, which no later request could be encoded with."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def _check_call(call: Any) -> None:
    function = call.get("function") if isinstance(call, dict) else None
    texts = [function.get("name"), function.get("arguments", "")] if isinstance(function, dict) else [None]
    if not all(isinstance(text, str) for text in (*texts, call.get("id") or "")):
        raise TypeError(f"a tool call of an unknown shape: {call!r:.200}")


# What LiteLLM keeps a second time under provider_specific_fields.
_REPEATED = ("citations", "thinking_blocks", "reasoningContent", "reasoningContentBlocks", "reasoning")


def _without_nulls(item: dict[str, Any], *drop: str) -> dict[str, Any]:
    return {k: v for k, v in item.items() if k not in drop and v is not None and v != []}
