"""One conversation over several provider families, each of which refuses what the real one refuses."""

from __future__ import annotations

import itertools
import json
from contextlib import ExitStack
from typing import Any

import pytest
from emulators.base import Emulator
from scenarios import (
    ANTHROPIC,
    CHAT,
    DEEPSEEK,
    GEMINI,
    LOOK,
    MISTRAL,
    MORE,
    OPENROUTER,
    RESPONSES,
    TOOLS,
    Provider,
)

from agentor import Agentor, LiteLLMModel, MemoryStore, ModelSettings, RunResult
from agentor.engine.events import Generation, Retry, RunStart
from agentor.errors import AgentChangedWarning

PROVIDERS = [ANTHROPIC, GEMINI, RESPONSES, CHAT, DEEPSEEK, MISTRAL, OPENROUTER]
OPAQUE = {
    "anthropic": "signed_thinking",
    "gemini": "thought_signature",
    "openai-responses": "encrypted_reasoning",
    "openrouter": "reasoning_details",
}
pytestmark = pytest.mark.filterwarnings(f"ignore::{AgentChangedWarning.__module__}.AgentChangedWarning")


class World:
    """Emulators of all providers, one store, and an agent for each."""

    def __init__(self, stack: ExitStack) -> None:
        self.store = MemoryStore()
        self.emulators: dict[str, Emulator] = {}
        for provider in PROVIDERS:
            assert provider.stand_in is not None
            self.emulators[provider.name] = stack.enter_context(provider.stand_in())

    def model(self, provider: Provider) -> LiteLLMModel:
        url = self.emulators[provider.name].url
        settings = ModelSettings(**provider.settings)
        return LiteLLMModel(provider.model, api_key="key", base_url=url, settings=settings)

    def agent(self, provider: Provider, *fallbacks: Provider) -> Agentor:
        models = [self.model(p) for p in fallbacks]
        return Agentor(
            "a", "Be brief.", self.model(provider), TOOLS, store=self.store, fallback_models=models
        )

    def asked(self, provider: Provider) -> list[Any]:
        return self.emulators[provider.name].requests

    def check(self, result: RunResult) -> None:
        assert [e.refused for e in self.emulators.values() if e.refused] == []
        assert (result.status, result.error) == ("completed", None)


@pytest.fixture
def world() -> Any:
    with ExitStack() as stack:
        yield World(stack)


def opaque(log: list[Any]) -> list[str]:
    """The signed and encrypted texts of the answers in a log."""
    found: list[str] = []
    for generation in (e for e in log if isinstance(e, Generation)):
        text = json.dumps(generation.message)
        found += [word for word in text.split('"') if len(word) == 128]
    return found


def steps(log: list[Any]) -> list[int]:
    """The seqs after which no call waits for its result."""
    kinds = [e.type for e in log]
    ends = [
        n for n, kind in enumerate(kinds) if kind == "tool_result" and kinds[n + 1 : n + 2] != ["tool_result"]
    ]
    return [*ends, len(log) - 1]


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.permutations(PROVIDERS, 2)), ids=lambda p: str(p.name)
)
async def test_a_fork_to_another_family_and_back_is_accepted_at_every_step(
    world: World, first: Provider, second: Provider
) -> None:
    start = await world.agent(first).arun(LOOK, run_id="start")
    world.check(start)
    parent = world.store.load("start")
    for at in steps(parent):
        for prompt in (None, MORE):
            there = await world.agent(second).afork("start", prompt, at=at)
            world.check(there)
            assert there.run_id is not None
            for step in steps(world.store.load(there.run_id)):
                back = await world.agent(first).afork(there.run_id, MORE, at=step)
                world.check(back)
                sent = json.dumps(world.asked(first)[-1])
                own = [
                    e
                    for e in world.store.load(str(back.run_id))[: min(at, step) + 1]
                    if isinstance(e, Generation)
                ]
                assert [text for text in opaque(own) if text not in sent] == []
    assert [e.to_json() for e in world.store.load("start")] == [e.to_json() for e in parent]


async def test_what_a_request_went_without_is_said_in_the_log_and_kept_there(world: World) -> None:
    for first in (p for p in PROVIDERS if p.name in OPAQUE):
        run = f"from-{first.name}"
        await world.agent(first).arun(LOOK, run_id=run)
        there = await world.agent(CHAT).afork(run, MORE)
        last = [e for e in there.events if isinstance(e, Generation)][-1]
        assert last.left_out is not None
        assert list(last.left_out) == [OPAQUE[first.name]]
        assert opaque(world.store.load(str(there.run_id)))[:1] == opaque(world.store.load(run))[:1] != []
        assert opaque(world.store.load(run))[0] not in json.dumps(world.asked(CHAT)[-1])


async def test_thinking_goes_along_where_the_other_provider_reads_plain_reasoning(world: World) -> None:
    await world.agent(ANTHROPIC).arun(LOOK, run_id="r")
    await world.agent(DEEPSEEK).afork("r", MORE)
    sent = [m for m in world.asked(DEEPSEEK)[-1]["messages"] if m["role"] == "assistant"]
    assert [m.get("reasoning_content") for m in sent] == ["First Paris.", "Not there.", None]
    await world.agent(CHAT).afork("r", MORE)
    assert "First Paris." not in json.dumps(world.asked(CHAT)[-1])


async def test_anthropic_goes_on_without_thinking_in_the_middle_of_anothers_tool_calls(world: World) -> None:
    await world.agent(CHAT).arun(LOOK, run_id="r")
    at = steps(world.store.load("r"))[0]
    there = await world.agent(ANTHROPIC).afork("r", at=at)
    world.check(there)
    assert ["thinking" in request for request in world.asked(ANTHROPIC)] == [False, False]
    generations = [e for e in there.events if isinstance(e, Generation)]
    assert generations[-1].left_out == {"thinking_setting": 1}
    more = await world.agent(ANTHROPIC).acontinue_run(str(there.run_id), MORE)
    world.check(more)
    assert "thinking" in world.asked(ANTHROPIC)[-1]  # a new question: it may think again


@pytest.mark.parametrize("second", PROVIDERS[1:], ids=lambda p: str(p.name))
async def test_a_fallback_to_another_family_goes_on_in_the_middle_of_a_run(
    world: World, second: Provider
) -> None:
    down = world.emulators["anthropic"]
    answer = down.answer

    def first_only(path: str, headers: dict[str, str], body: Any) -> Any:
        if len(down.requests) >= 1:
            body = {**body, "max_tokens": None}  # the emulator refuses that for good
        return answer(path, headers, body)

    down.answer = first_only  # type: ignore[method-assign]  # a provider that breaks down after its first answer
    result = await world.agent(ANTHROPIC, second).arun(LOOK)
    assert (result.status, result.final_output) == ("completed", "It rains in Köln.")
    assert world.emulators[second.name].refused == []
    (retry,) = [e for e in result.events if isinstance(e, Retry)]
    assert (retry.model, retry.fallback) == (ANTHROPIC.model, second.model)
    assert len([e for e in result.events if isinstance(e, RunStart)]) == 1
    assert [e.model for e in result.events if isinstance(e, Generation)] == [
        ANTHROPIC.model,
        second.model,
        second.model,
    ]
