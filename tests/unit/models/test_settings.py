"""Settings: each reaches the provider under its own name, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from emulators.anthropic import Anthropic
from emulators.base import Emulator
from emulators.chat import OpenAIChat
from emulators.gemini import Gemini
from emulators.responses import OpenAIResponses
from wire import Reply, Wire, chat

from agentor import Agentor, LiteLLMModel, ModelSettings
from agentor.engine.events import Generation
from agentor.engine.messages import Usage
from agentor.engine.models import usage

USER = [{"role": "user", "content": "Say hello."}]
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
COMMON = {
    "temperature": 0.5,
    "top_p": 0.9,
    "max_tokens": 64,
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "extra_headers": {"x-team": "blue"},
}
ASKED: list[tuple[str, type[Emulator], dict[str, Any], dict[str, Any]]] = [
    (
        "openai/gpt-4o",
        OpenAIChat,
        {"seed": 7, "stop": ["x"]},
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 64,
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "seed": 7,
            "stop": ["x"],
        },
    ),
    (
        "openai/gpt-4.1",
        OpenAIResponses,
        {"responses_route": True},
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 64,
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "store": False,
        },
    ),
    (
        "anthropic/claude-sonnet-4-5",
        Anthropic,
        {"top_p": None, "extra_body": {"metadata": {"user_id": "u"}}},
        {
            "temperature": 0.5,
            "max_tokens": 64,
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "metadata": {"user_id": "u"},
        },
    ),
    (
        "gemini/gemini-2.5-flash",
        Gemini,
        {"parallel_tool_calls": None},
        {"generationConfig": {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 64}},
    ),
]


@pytest.mark.parametrize(("name", "emulator", "more", "wanted"), ASKED, ids=[a[0] for a in ASKED])
@pytest.mark.parametrize("streaming", [False, True])
async def test_settings_reach_each_provider_under_its_own_names(
    name: str, emulator: type[Emulator], more: dict[str, Any], wanted: dict[str, Any], streaming: bool
) -> None:
    given = {k: v for k, v in {**COMMON, **more}.items() if v is not None}
    with emulator() as server:
        model = LiteLLMModel(name, api_key="k", base_url=server.url, settings=ModelSettings(**given))
        if streaming:
            _ = [chunk async for chunk in model.stream(USER, [TOOL])]
        else:
            await model.complete(USER, [TOOL])
        assert server.headers[-1]["x-team"] == "blue"
        request = server.requests[-1]
    assert {key: request.get(key) for key in wanted} == wanted
    assert "extra_body" not in request


async def test_choices_about_tools_are_not_sent_where_there_are_no_tools() -> None:
    for route in (False, True):
        emulator = OpenAIResponses if route else OpenAIChat
        with emulator() as server:
            settings = ModelSettings(tool_choice="required", parallel_tool_calls=True, responses_route=route)
            model = LiteLLMModel("openai/gpt-4.1", api_key="k", base_url=server.url, settings=settings)
            await model.complete(USER)
            assert not {"tool_choice", "parallel_tool_calls", "tools"} & set(server.requests[0])


async def test_a_named_tool_and_a_schema_go_to_the_responses_api_in_its_shape() -> None:
    choice = {"type": "function", "function": {"name": "f"}}
    schema = {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }
    with OpenAIResponses() as server:
        settings = ModelSettings(tool_choice=choice, verbosity="low", responses_route=True)
        model = LiteLLMModel("openai/gpt-5-mini", api_key="k", base_url=server.url, settings=settings)
        await model.complete(USER, [TOOL], schema)
        (request,) = server.requests
    assert request["tool_choice"] == {"type": "function", "name": "f"}
    assert request["text"] == {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
    }
    assert request["tools"] == [{"type": "function", "strict": False, **TOOL["function"]}]


async def test_pictures_and_files_go_to_the_responses_api_in_its_shape() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
    ]
    body = {"id": "r", "object": "response", "created_at": 1, "status": "completed", "output": []}
    with Wire([Reply(body)]) as wire:
        settings = ModelSettings(responses_route=True)
        model = LiteLLMModel("openai/gpt-5-mini", api_key="k", base_url=f"{wire.url}/v1", settings=settings)
        await model.complete([{"role": "user", "content": parts}])
    assert wire.requests[0]["input"][0]["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
    ]


# --- usage and cost -------------------------------------------------------------------------------


async def test_a_generation_has_the_models_price_and_an_unknown_model_has_none() -> None:
    for name, known in (("openai/gpt-4o", True), ("openai/nobody-knows-this", False)):
        with Wire([chat({"content": "ok"})]) as wire:
            model = LiteLLMModel(name, api_key="k", base_url=f"{wire.url}/v1")
            result = await Agentor("a", model=model).arun("x")
        (generation,) = [e for e in result.events if isinstance(e, Generation)]
        import litellm

        prices = litellm.model_cost["gpt-4o"]
        wanted = 10 * prices["input_cost_per_token"] + 5 * prices["output_cost_per_token"]
        assert generation.cost == (pytest.approx(wanted) if known else None)


def test_cached_tokens_are_charged_at_their_own_price() -> None:
    import litellm

    prices = litellm.model_cost["claude-sonnet-4-5"]
    counted = usage.from_anthropic(
        {
            "input_tokens": 100,
            "cache_read_input_tokens": 1000,
            "cache_creation_input_tokens": 10,
            "output_tokens": 7,
        }
    )
    assert counted == Usage(
        input_tokens=1110,
        output_tokens=7,
        total_tokens=1117,
        cached_input_tokens=1000,
        cache_write_input_tokens=10,
    )
    wanted = (
        100 * prices["input_cost_per_token"]
        + 1000 * prices["cache_read_input_token_cost"]
        + 10 * prices["cache_creation_input_token_cost"]
        + 7 * prices["output_cost_per_token"]
    )
    assert usage.cost_usd(litellm, "anthropic/claude-sonnet-4-5", counted) == pytest.approx(wanted)
