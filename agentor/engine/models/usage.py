"""Tokens and price of an answer, from what LiteLLM or a provider reports."""

from __future__ import annotations

from typing import Any  # provider JSON, and LiteLLM's untyped objects

from agentor.engine.messages import Usage


def from_litellm(usage: Any) -> Usage:
    """LiteLLM's own usage object (or None)."""
    if usage is None:
        return Usage()
    prompt = getattr(usage, "prompt_tokens_details", None)
    answer = getattr(usage, "completion_tokens_details", None)
    return Usage(
        input_tokens=_count(getattr(usage, "prompt_tokens", 0)),
        output_tokens=_count(getattr(usage, "completion_tokens", 0)),
        total_tokens=_count(getattr(usage, "total_tokens", 0)),
        cached_input_tokens=_count(getattr(prompt, "cached_tokens", 0)),
        cache_write_input_tokens=_count(getattr(prompt, "cache_creation_tokens", 0)),
        reasoning_tokens=_count(getattr(answer, "reasoning_tokens", 0)),
    )


def from_anthropic(usage: dict[str, Any]) -> Usage:
    """Anthropic's `usage`, whose `input_tokens` leave out what came from or went into the cache."""
    read = _count(usage.get("cache_read_input_tokens"))
    written = _count(usage.get("cache_creation_input_tokens"))
    input_tokens = _count(usage.get("input_tokens")) + read + written
    output_tokens = _count(usage.get("output_tokens"))
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        cached_input_tokens=read,
        cache_write_input_tokens=written,
        reasoning_tokens=_count((usage.get("output_tokens_details") or {}).get("thinking_tokens")),
    )


def from_responses(usage: dict[str, Any]) -> Usage:
    """The `usage` of OpenAI's Responses API."""
    input_details = usage.get("input_tokens_details") or {}
    output_details = usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        total_tokens=_count(usage.get("total_tokens")),
        cached_input_tokens=_count(input_details.get("cached_tokens")),
        cache_write_input_tokens=_count(input_details.get("cache_write_tokens")),
        reasoning_tokens=_count(output_details.get("reasoning_tokens")),
    )


def _count(value: Any) -> int:
    """A provider's count; 0 for what is none, so that sums always work."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def cost_usd(litellm: Any, model: str, usage: Usage) -> float | None:
    """The price in US dollars by LiteLLM's price list; None where it has no price (never 0)."""
    try:
        litellm.get_model_info(model)
        counts = litellm.Usage(
            prompt_tokens=usage.input_tokens,
            completion_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            prompt_tokens_details={
                "cached_tokens": usage.cached_input_tokens,
                "cache_creation_tokens": usage.cache_write_input_tokens,
            },
            completion_tokens_details={"reasoning_tokens": usage.reasoning_tokens},
            cache_creation_input_tokens=usage.cache_write_input_tokens,
            cache_read_input_tokens=usage.cached_input_tokens,
        )
        response = litellm.ModelResponse(model=model, usage=counts)
        cost = float(litellm.completion_cost(completion_response=response, model=model))
    except Exception:  # LiteLLM raises many kinds where it has no price
        return None
    return cost or None
