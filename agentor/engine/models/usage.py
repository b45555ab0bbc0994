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
        input_tokens=getattr(usage, "prompt_tokens", 0) or 0,
        output_tokens=getattr(usage, "completion_tokens", 0) or 0,
        total_tokens=getattr(usage, "total_tokens", 0) or 0,
        cached_input_tokens=getattr(prompt, "cached_tokens", 0) or 0,
        cache_write_input_tokens=getattr(prompt, "cache_creation_tokens", 0) or 0,
        reasoning_tokens=getattr(answer, "reasoning_tokens", 0) or 0,
    )


def from_anthropic(usage: dict[str, Any]) -> Usage:
    """Anthropic's `usage`, whose `input_tokens` leave out what came from or went into the cache."""
    read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    input_tokens = (usage.get("input_tokens") or 0) + read + written
    output_tokens = usage.get("output_tokens") or 0
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        cached_input_tokens=read,
        cache_write_input_tokens=written,
        reasoning_tokens=(usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0,
    )


def from_responses(usage: dict[str, Any]) -> Usage:
    """The `usage` of OpenAI's Responses API."""
    input_details = usage.get("input_tokens_details") or {}
    output_details = usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("input_tokens") or 0,
        output_tokens=usage.get("output_tokens") or 0,
        total_tokens=usage.get("total_tokens") or 0,
        cached_input_tokens=input_details.get("cached_tokens") or 0,
        cache_write_input_tokens=input_details.get("cache_write_tokens") or 0,
        reasoning_tokens=output_details.get("reasoning_tokens") or 0,
    )


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
