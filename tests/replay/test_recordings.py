"""Real conversations, recorded: the agent that had them does the same again, and each change is found."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import tapes
from contract.test_tapes import NAMES, Player
from scenarios import BRIEF, SCENARIOS, Scenario, play

from agentor import Agentor, LiteLLMModel, MemoryStore, ModelSettings, Tool, function_tool
from agentor.engine.events import Event, Generation, ToolCall, ToolResult
from agentor.replay import ReplayReport, areplay
from agentor.testing.cassettes import cassette

EACH = pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{s.provider.name}/{s.name}" for s in SCENARIOS])


async def recorded(scenario: Scenario) -> tuple[Agentor, list[Event]]:
    store = MemoryStore()
    agent = scenario.agent(store)
    with cassette(scenario.path):
        await play(scenario, agent)
    return agent, store.load("recorded")


def changed(
    agent: Agentor, *, instructions: str = BRIEF, tools: Any = None, model: Any = None, **more: Any
) -> Agentor:
    """Today's agent: that of the recording, but for one thing."""
    return Agentor(
        "weather", instructions, model or agent.model, list(agent.tools if tools is None else tools), **more
    )


def model_like(scenario: Scenario, name: str | None = None, **settings: Any) -> LiteLLMModel:
    made = {**scenario.provider.settings, **scenario.settings, **settings}
    return LiteLLMModel(name or scenario.provider.model, api_key="recorded", settings=ModelSettings(**made))


def like(tool: Tool, name: str | None = None, **parameters: Any) -> Tool:
    properties = {**tool.parameters["properties"]}
    required = [n for n in tool.parameters.get("required", []) if "default" not in parameters.get(n, {})]
    for key, schema in parameters.items():
        properties[key] = schema
    made = {**tool.parameters, "properties": properties, "required": required}
    return Tool(
        name=name or tool.name, description=tool.description, parameters=made, invoke=lambda args: "other"
    )


def first(report: ReplayReport) -> tuple[int, str, str]:
    turn, difference = report.differences[0]
    return turn, difference.kind, difference.what


@EACH
async def test_an_unchanged_agent_replays_with_no_difference_and_no_network(
    scenario: Scenario, request: pytest.FixtureRequest
) -> None:
    agent, events = await recorded(scenario)
    request.getfixturevalue("no_network")
    started = time.perf_counter()
    report = await areplay(agent, events)
    assert report.ok, str(report)
    turns = sum(isinstance(e, Generation) for e in events)
    assert (len(report.turns), report.notes) == (turns, ())
    assert (
        time.perf_counter() - started < 0.5 * turns + 0.5
    )  # no wait, no network: the figure is the benchmark's


@EACH
async def test_each_change_is_found_at_the_right_turn_and_named_rightly(
    scenario: Scenario, request: pytest.FixtureRequest
) -> None:
    agent, events = await recorded(scenario)
    request.getfixturevalue("no_network")
    look = agent.tools[0]
    rest = agent.tools[1:]
    opened = next(e.turn for e in events if isinstance(e, Generation))
    cases: list[tuple[Agentor, tuple[int, str, str]]] = [
        (
            changed(agent, instructions=BRIEF.replace("never", "rarely")),
            (opened, "instructions", "the instructions"),
        ),
        (
            changed(agent, tools=[like(look, "weather"), *rest]),
            (opened, "tool", "tool 'get_weather' is now called 'weather'"),
        ),
        (
            changed(agent, tools=[like(look, city={"type": "integer"}), *rest]),
            (opened, "tool", "tool 'get_weather': argument 'city' was string, is integer"),
        ),
        (
            changed(agent, tools=[like(look, city={"type": "string", "default": "Rome"}), *rest]),
            (
                opened,
                "tool",
                "tool 'get_weather': argument 'city' was string, is string with the default \"Rome\"",
            ),
        ),
        (changed(agent, tools=rest), (opened, "tool", "tool 'get_weather' is gone")),
        (
            changed(
                agent, compaction=lambda messages, tokens: messages[::-1] if len(messages) == 2 else None
            ),
            (opened, "compaction", "compaction: the order of messages 0 to 1"),
        ),
    ]
    for other, expected in cases:
        report = await areplay(other, events)
        assert first(report) == expected
        assert sum(d.kind == expected[1] for _, d in report.differences) == 1, str(report)
    warmer = await areplay(changed(agent, model=model_like(scenario, temperature=0.33)), events)
    assert any(
        kind == "settings" and re.match("temperature (is new: 0.33|was .*, is 0.33)", what)
        for turn, kind, what in [(t, d.kind, d.what) for t, d in warmer.differences if t == opened]
    ) or not any(isinstance(e, Generation) and e.error is None for e in events), str(warmer)
    renamed = await areplay(changed(agent, model=model_like(scenario, "openai/gpt-9")), events)
    assert (opened, "model", f"the model was {scenario.provider.model}, is openai/gpt-9") in [
        (t, d.kind, d.what) for t, d in renamed.differences
    ]


@EACH
async def test_another_result_of_a_tool_is_found_where_it_was_given(scenario: Scenario) -> None:
    agent, events = await recorded(scenario)

    @function_tool
    def get_weather(city: str) -> str:
        """Look up the weather of one city."""
        return "hail"

    report = await areplay(changed(agent, tools=[get_weather, *agent.tools[1:]]), events, tools="live")
    ran = {e.call_id for e in events if isinstance(e, ToolCall)}
    given = [
        e.turn
        for e in events
        if isinstance(e, ToolResult) and e.name == "get_weather" and e.error is None and e.call_id in ran
    ]
    assert [t for t, d in report.differences if d.kind == "result"] == given
    if given:
        assert next(t for t in report.turns if t.differences).turn == given[0]


@pytest.mark.skipif(not tapes.FOLDER.is_dir(), reason="the tapes are not part of the project")
@pytest.mark.parametrize("name", NAMES)
async def test_real_providers_conversations_replay_with_no_difference(name: str) -> None:
    player = Player(name)
    with player.server:
        _, _, store = await player.play()
    events = store.load("tape")
    model = tapes.model_for(player.tape, "http://127.0.0.1:1")
    agent = Agentor("tape", "Be brief.", model, tapes.tools_of(player.tape))
    report = await areplay(agent, events)
    assert report.ok, str(report)
    other = Agentor("tape", "Be  brief!", model, tapes.tools_of(player.tape))
    assert first(await areplay(other, events)) == (1, "instructions", "the instructions")
