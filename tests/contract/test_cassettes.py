"""The recorded conversations: replayed without network, cut off after each event, forked, and clean."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scenarios import FOLDER, RUN, SCENARIOS, Scenario, answered, play

from agentor import MemoryStore, RunResult
from agentor.engine.events import Event, Generation, RunEnd
from agentor.engine.transcript import hydrate
from agentor.testing.cassettes import HEADERS, cassette

EACH = pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{s.provider.name}/{s.name}" for s in SCENARIOS])


def stored(log: Sequence[Event]) -> MemoryStore:
    store = MemoryStore()
    for event in log:
        store.append(RUN, event)
    return store


async def whole(scenario: Scenario) -> tuple[RunResult, list[Any], list[Event]]:
    """The conversation as it was recorded: its result, its requests, its log."""
    store = MemoryStore()
    with cassette(scenario.path) as tape:
        result = await play(scenario, scenario.agent(store))
    assert tape.left == 0, "the recording has answers that nobody asked for"
    return result, tape.requests, store.load(RUN)


@EACH
async def test_a_recorded_conversation_is_replayed_as_it_was(scenario: Scenario) -> None:
    result, requests, log = await whole(scenario)
    assert result.status in scenario.wanted, result.error
    assert len(requests) == answered(log)
    assert result.durable


@EACH
async def test_a_run_resumed_after_any_event_asks_for_the_same_as_one_that_was_never_cut(
    scenario: Scenario,
) -> None:
    result, requests, log = await whole(scenario)
    for cut in range(1, len(log) + 1):
        if failed(log[:cut]):
            continue  # a call that failed for good is asked again; that is what a resume is for
        store = stored(log[:cut])
        with cassette(scenario.path) as tape:
            tape.skip(answered(log[:cut]))
            again = await play(scenario, scenario.agent(store), store.load(RUN))
        assert tape.requests == requests[answered(log[:cut]) :], f"cut after event {cut - 1}"
        assert (again.status, again.final_output) == (result.status, result.final_output)


@EACH
async def test_a_fork_at_any_finished_step_asks_for_the_same(scenario: Scenario) -> None:
    result, requests, log = await whole(scenario)
    for cut in range(1, len(log)):
        at, (_, transcript) = cut - 1, hydrate(RUN, log[:cut])
        left = turns_left(log, cut)
        if failed(log[:cut]) or transcript.open_calls or not left:
            continue
        store = stored(log)
        agent = scenario.agent(store)
        with cassette(scenario.path) as tape:
            tape.skip(answered(log[:cut]))
            first = await agent.afork(RUN, at=at, fork_id="fork", max_turns=left)
            again = await play(scenario, agent, store.load("fork"), run_id="fork")
        assert tape.requests == requests[answered(log[:cut]) :], f"forked at event {at}"
        assert (again.status, again.final_output) == (result.status, result.final_output), first.error
        assert [e.to_json() for e in store.load(RUN)] == [e.to_json() for e in log]


def turns_left(log: Sequence[Event], cut: int) -> int:
    """Turns that the segment which the cut falls into still makes."""
    after = [e for e in log[cut:] if isinstance(e, Generation | RunEnd)]
    ends = [place for place, e in enumerate(after) if isinstance(e, RunEnd)]
    return ends[0] if ends else len(after)


@pytest.mark.parametrize(
    "scenario", [s for s in SCENARIOS if len(s.prompts) == 2], ids=lambda s: f"{s.provider.name}/{s.name}"
)
async def test_a_fork_with_a_follow_up_input_asks_for_the_same_as_the_follow_up(scenario: Scenario) -> None:
    result, requests, log = await whole(scenario)
    end = next(place for place, event in enumerate(log) if isinstance(event, RunEnd))
    store = stored(log)
    with cassette(scenario.path) as tape:
        tape.skip(answered(log[: end + 1]))
        forked = await scenario.agent(store).afork(RUN, scenario.prompts[1], at=end)
    assert tape.requests == requests[answered(log[: end + 1]) :]
    assert forked.final_output == result.final_output


def failed(log: Sequence[Event]) -> bool:
    return any(isinstance(event, Generation) and event.error is not None for event in log)


# --- the files ----------------------------------------------------------------------------------


def test_there_are_enough_recordings_of_enough_kinds() -> None:
    files = sorted(FOLDER.rglob("*.yaml"))
    assert files == sorted(s.path for s in SCENARIOS)
    assert len(files) >= 30
    assert len({path.parent for path in files}) >= 6
    assert {s.stream for s in SCENARIOS} == {True, False}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_cassette_says_who_answered_and_holds_nothing_that_it_should_not(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# Answered by: ")
    names = {name.lower() for name in re.findall(r"^      ([A-Za-z-]+):$", text, re.M)}
    assert names <= {*HEADERS, "body", "headers", "status"}
    assert not re.search(r"127\.0\.0\.1|set-cookie|sk-recorded|authorization|api[-_]key", text, re.I)


def test_replay_never_touches_the_network() -> None:
    scenario = SCENARIOS[0]
    tried: list[Any] = []
    watching = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching[0] and event == "socket.connect":
            tried.append(args[1])

    sys.addaudithook(hook)
    try:
        asyncio.run(whole(scenario))
    finally:
        watching[0] = False
    assert tried == []


async def test_a_request_that_was_not_recorded_is_one_clear_error_with_the_difference(tmp_path: Path) -> None:
    scenario = SCENARIOS[0]
    agent = scenario.agent(MemoryStore())
    with cassette(scenario.path) as tape:
        result = await agent.arun("What is the weather on Mars?")
    assert (result.status, tape.requests) == ("failed", [])
    assert result.error is not None
    assert "is not in the cassette" in result.error
    assert '+      "text": "What is the weather on Mars?"' in result.error or "Mars" in result.error
    assert json.dumps("What is the weather in Paris?")[1:-1] in result.error
    assert not [e for e in result.events if e.type == "retry"]
    with cassette(tmp_path / "nothing.yaml"):
        nothing = await scenario.agent(MemoryStore()).arun("x")
    assert "record it first" in str(nothing.error)
