"""Real provider conversations, played back over HTTP: whole, and cut off after each event and resumed."""

from __future__ import annotations

from typing import Any

import pytest
import tapes

from agentor import Agentor, MemoryStore, RunResult
from agentor.engine.events import Event, Generation

pytestmark = pytest.mark.skipif(not tapes.FOLDER.is_dir(), reason="the tapes are not part of the project")
NAMES = tapes.tape_server().tape_names(tapes.FOLDER) if tapes.FOLDER.is_dir() else ["absent"]


class Player:
    """One tape, and runs of an agent against it."""

    def __init__(self, name: str) -> None:
        module = tapes.tape_server()
        self.tape = module.load_tape(name)
        self.wanted = len(self.tape["responses"])
        self.server = module.TapeServer(self.tape)

    async def play(self, log: list[Event] | None = None) -> tuple[RunResult, list[Any], MemoryStore]:
        """The conversation to its end: anew, or from a log of it in a fresh agent and store."""
        store = MemoryStore()
        for event in log or []:
            store.append("tape", event)
        self.server.start = sum(1 for e in log or [] if isinstance(e, Generation))
        self.server.requests.clear()
        model = tapes.model_for(self.tape, self.server.base_url)
        tools = tapes.tools_of(self.tape)
        agent = Agentor("tape", "Be brief.", model, tools, store=store, max_turns=self.wanted)
        result = await (agent.aresume("tape") if log else self._begin(agent))
        while result.status == "completed" and (left := self.wanted - self._asked()):
            result = await agent.acontinue_run("tape", "And then?", max_turns=left)
        return result, [r["json"] for r in self.server.requests], store

    async def _begin(self, agent: Agentor) -> RunResult:
        if not self.tape["stream"]:
            return await agent.arun("Go on.", run_id="tape")
        _ = [event async for event in agent.astream("Go on.", run_id="tape")]
        return await agent.aresume("tape")

    def _asked(self) -> int:
        return self.server.start + len(self.server.requests)


@pytest.mark.parametrize("name", NAMES)
async def test_a_real_conversation_runs_whole_with_its_text_usage_and_opaque_parts(name: str) -> None:
    player = Player(name)
    with player.server:
        result, requests, _ = await player.play()
        missing = player.server.missing()
    assert (missing, len(requests)) == ([], player.wanted)
    text = tapes.final_text(player.tape)
    # A tape may end with a call of the tool that was its agent's way to answer.
    expected = (
        ("max_turns", None) if result.tool_calls and result.status == "max_turns" else ("completed", text)
    )
    assert (result.status, result.final_output) == expected, result.error
    generations = [e for e in result.events if isinstance(e, Generation)]
    assert generations[-1].error is None
    for place, generation in enumerate(generations):
        usage = generation.usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens) == tapes.used(player.tape, place)


@pytest.mark.parametrize("name", NAMES)
async def test_a_run_cut_off_after_any_event_asks_the_provider_for_the_same_once_it_is_resumed(
    name: str,
) -> None:
    player = Player(name)
    with player.server:
        whole, requests, store = await player.play()
        events = store.load("tape")
        for cut in range(1, len(events) + 1):
            resumed, again, _ = await player.play(events[:cut])
            assert again == requests[player.server.start :], f"cut after event {cut}"
            assert (resumed.status, resumed.final_output) == (whole.status, whole.final_output)
            assert player.server.missing() == []
