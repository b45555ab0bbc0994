"""What each family of providers is sent of an assistant message."""

from __future__ import annotations

import copy

import pytest

from agentor.engine.models.accumulate import Accumulator
from agentor.engine.models.families import family, normalise, project

CALLS = [
    {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "provider_specific_fields": {"thought_signature": "sg"},
    }
]
WHOLE = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": ""},
        {"type": "text", "text": "b"},
    ],
    "tool_calls": CALLS,
    "reasoning_content": "hm",
    "reasoning_items": [{"id": "rs", "encrypted_content": "e"}],
    "provider_specific_fields": {
        "thought_signatures": ["t"],
        "reasoning_details": [{"type": "x"}],
        "phase": "p",
    },
}
BARE_CALLS = [{k: v for k, v in CALLS[0].items() if k != "provider_specific_fields"}]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic"),
        ("claude-sonnet-4-5", "anthropic"),
        ("bedrock/us.anthropic.claude-sonnet-4", "anthropic"),
        ("vertex_ai/claude-opus-4", "anthropic"),
        ("gemini/gemini-3-pro", "gemini"),
        ("vertex_ai/gemini-3-pro", "gemini"),
        ("openrouter/anthropic/claude-sonnet-4", "openrouter"),
        ("deepseek/deepseek-reasoner", "reasoning-chat"),
        ("gpt-4o", "chat"),
        ("groq/llama", "chat"),
    ],
)
def test_models_belong_to_families(model: str, expected: str) -> None:
    assert family(model) == expected


def test_each_family_gets_its_own_opaque_parts_and_nobody_elses() -> None:
    before = copy.deepcopy(WHOLE)
    base = {"role": "assistant", "content": "ab", "tool_calls": BARE_CALLS}
    expected = {
        "chat": base,
        "reasoning-chat": {**base, "reasoning_content": "hm"},
        "responses": {
            **base,
            "reasoning_items": WHOLE["reasoning_items"],
            "provider_specific_fields": {"phase": "p"},
        },
        "openrouter": {**base, "reasoning_details": [{"type": "x"}]},
        "gemini": {**base, "tool_calls": CALLS, "provider_specific_fields": {"thought_signatures": ["t"]}},
        "anthropic": {**base, "content": [b for b in WHOLE["content"] if b.get("text") != ""]},
    }
    for to, message in expected.items():
        assert project([WHOLE], to) == [message]
    assert before == WHOLE


def test_other_messages_pass_as_they_are() -> None:
    messages = [
        {"role": "user", "content": [{"type": "image_url"}]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    assert project(messages, "chat") == messages


def test_noise_is_left_out_of_the_log() -> None:
    noisy = {
        "role": "assistant",
        "content": "",
        "function_call": None,
        "refusal": None,
        "annotations": [],
        "images": [],
        "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}],
        "provider_specific_fields": {"thinking_blocks": [1], "citations": None, "kept": "x"},
    }
    assert normalise(noisy) == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}],
        "provider_specific_fields": {"kept": "x"},
    }


def test_calls_that_share_an_index_stay_two_calls() -> None:
    parts = Accumulator()
    for name in ("get_weather", "get_time"):
        parts.add({"tool_calls": [{"index": 0, "function": {"name": name, "arguments": "{}"}}]})
    calls = parts.message()["tool_calls"]
    assert [c["function"]["name"] for c in calls] == ["get_weather", "get_time"]
    assert len({c["id"] for c in calls}) == 2
