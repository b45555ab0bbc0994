"""Real provider conversations, played back over HTTP: what goes back must hold what the provider signed."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentor import Agentor, LiteLLMModel, MemoryStore, ModelSettings, RunResult, Tool

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "tapes"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the tapes are not part of the project")

if FOLDER.is_dir():
    spec = importlib.util.spec_from_file_location("tape_server", FOLDER / "tape_server.py")
    assert spec is not None
    assert spec.loader is not None
    tape_server = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tape_server)
    NAMES = tape_server.tape_names(FOLDER)
else:
    NAMES = ["absent"]


ROUTES = {  # (provider, api) -> LiteLLM's prefix and the path of its base URL
    ("anthropic", "messages"): ("anthropic", ""),
    ("cerebras", "chat"): ("cerebras", "/v1"),
    ("cohere", "chat"): ("cohere_chat", "/v2/chat"),
    ("deepseek", "chat"): ("deepseek", ""),
    ("gemini", "generateContent"): ("gemini", "/v1beta"),
    ("groq", "chat"): ("groq", "/openai/v1"),
    ("mistral", "chat"): ("mistral", "/v1"),
    ("openrouter", "chat"): ("openrouter", "/api/v1"),
}


def model_for(tape: dict[str, Any], base: str) -> LiteLLMModel:
    provider, api = tape["provider"], tape["api"]
    prefix, path = ROUTES.get((provider, api), ("openai", "/v1"))
    settings = ModelSettings(max_tokens=64, responses_route=api == "responses")
    model = f"{prefix}/{tape['model']}"
    return LiteLLMModel(model, api_key="test-key", base_url=base + path, settings=settings)


def tools_of(tape: dict[str, Any]) -> list[Tool]:
    text = json.dumps(tape["requests"]) + "".join(
        r["body"] if isinstance(r["body"], str) else json.dumps(r["body"]) for r in tape["responses"]
    )
    names = set(re.findall(r'"name\\?":\s*\\?"([A-Za-z0-9_-]{1,64})\\?"', text))
    schema = {"type": "object", "properties": {}}
    return [Tool(name=n, description=n, parameters=schema, invoke=lambda args: "42") for n in sorted(names)]


@pytest.mark.parametrize("name", NAMES)
async def test_every_opaque_part_of_an_answer_goes_back_to_its_provider(name: str) -> None:
    tape = tape_server.load_tape(name)
    streaming = bool(tape["stream"])
    wanted = len(tape["responses"])
    with tape_server.TapeServer(tape) as server:
        model = model_for(tape, server.base_url)
        agent = Agentor("tape", model=model, tools=tools_of(tape), store=MemoryStore())
        result = await once(agent, None, wanted, streaming)
        while result.status == "completed" and len(server.requests) < wanted:
            result = await once(agent, result.run_id, wanted - len(server.requests), streaming)
        # A tape may end with the call of an output tool: no more answers follow then.
        assert result.status in ("completed", "max_turns"), result.error
        assert (server.missing(), len(server.requests)) == ([], wanted)


async def once(agent: Agentor, run_id: str | None, max_turns: int, streaming: bool) -> RunResult:
    if run_id is not None:
        return await agent.acontinue_run(run_id, "And then?", max_turns=max_turns)
    if not streaming:
        return await agent.arun("Go on.", max_turns=max_turns)
    events = [e async for e in agent.astream("Go on.", max_turns=max_turns)]
    assert events[0].run_id is not None
    return await agent.aresume(events[0].run_id)
