"""Events: one class per kind, nothing lost on the way to JSON and back."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import Wire, chat

from agentor import Agentor, FileStore, errors
from agentor.engine.events import (
    Context,
    Event,
    Generation,
    RunStart,
    ToolCall,
    ToolResult,
)
from agentor.engine.messages import EMPTY_CHAIN, chain, split_message
from agentor.engine.transcript import fold, hydrate
from agentor.testing import ScriptedModel, call

KEYS = st.sampled_from(["content", "reasoning_content", "tool_calls", "thinking_blocks", "x"])
VALUES = (
    st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.none())
)


@given(st.dictionaries(KEYS, VALUES))
def test_an_assistant_message_is_rebuilt_exactly_from_its_parts(message: dict[str, Any]) -> None:
    message = {"role": "assistant", **message}
    generation = Generation(turn=1, **split_message(message))
    assert generation.message == message
    back = Event.from_dict(json.loads(generation.to_json()))
    assert isinstance(back, Generation)
    assert back.message == message


@pytest.mark.parametrize(
    "data",
    [
        {"type": "generation", "turn": 1, "text": "", "usage": {"input_tokens": 1, "later": 2}, "new": [1]},
        {"type": "generation", "cost": None, "turn": 2},
        {"type": "tool_call", "name": "f", "call_id": "c", "turn": 1, "args": {"edited": True}},
        {"type": "unknown", "critical": False, "x": {"y": None}},
        {"type": "run_end", "status": "completed", "usage": {"input_tokens": 0}},
    ],
)
def test_what_is_not_known_is_kept(data: dict[str, Any]) -> None:
    event = Event.from_dict(data)
    assert json.loads(event.to_json()) == data
    assert Event.from_dict(json.loads(event.to_json())) == event


@pytest.mark.parametrize(
    "data", [{}, {"type": 3}, {"type": "generation", "turn": "x"}, {"type": "run_end", "usage": 3}]
)
def test_what_is_no_event_is_a_value_error(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"type|cannot be"):
        Event.from_dict(data)


def test_times_come_from_when_it_was_saved_and_how_long_it_took() -> None:
    assert (ToolResult(at=10.0, elapsed=2.5).started_at, ToolResult(at=10.0).ended_at) == (7.5, 10.0)


def conversation(tmp_path: Path) -> tuple[FileStore, str]:
    def f(a: int = 1) -> int:
        return a

    store = FileStore(tmp_path / "runs")
    model = ScriptedModel([call("f", {"a": 2}), call("f"), "done"])
    result = Agentor("a", "Be brief.", model, [f], store=store).run("go")
    return store, str(result.run_id)


def test_a_loaded_generation_knows_its_request_only_after_hydrate(tmp_path: Path) -> None:
    store, run_id = conversation(tmp_path)
    raw = [e for e in store.load(run_id) if isinstance(e, Generation)]
    with pytest.raises(LookupError, match="hydrate"):
        raw[0].messages  # noqa: B018
    events, _ = hydrate(run_id, store.load(run_id))
    generations = [e for e in events if isinstance(e, Generation)]
    assert [len(g.messages) for g in generations] == [2, 4, 6]
    assert generations[0].messages is not generations[0].messages
    for g in generations:
        assert g.sent == {"count": len(g.messages), "sha256": chain(EMPTY_CHAIN, g.messages).hex()}
    assert [e.args for e in events if isinstance(e, ToolCall)] == [{"a": 2}, {}]
    assert raw == generations  # what hydrate adds is no part of the event's value


def test_nothing_stands_twice_in_a_log(tmp_path: Path) -> None:
    store, run_id = conversation(tmp_path)
    text = store.path(run_id).read_text()
    assert text.count("Be brief.") == 1
    assert text.count('{\\"a\\":2}') == 1
    assert '"messages"' in text.splitlines()[0]
    assert not any('"messages"' in line for line in text.splitlines()[1:])


def test_two_transcripts_that_go_on_from_one_do_not_disturb_each_other() -> None:
    from agentor.engine.transcript import apply

    base = fold([RunStart(messages=[{"role": "user", "content": "x"}])])
    one = apply(base, Generation(turn=1, text="one"))
    two = apply(base, Generation(turn=1, text="two"))
    assert [m["content"] for m in one.messages] == ["x", "one"]
    assert [m["content"] for m in two.messages] == ["x", "two"]
    assert [m["content"] for m in base.messages] == ["x"]


def test_a_context_event_replaces_the_conversation() -> None:
    events = [
        RunStart(messages=[{"role": "user", "content": "x"}]),
        Generation(turn=1, text="long"),
        Context(messages=[{"role": "user", "content": "short"}]),
        Generation(turn=2, text="y"),
    ]
    hydrated, transcript = hydrate("r", events)
    assert [m["content"] for m in transcript.messages] == ["short", "y"]
    assert isinstance(hydrated[1], Generation)
    assert [m["content"] for m in hydrated[1].messages] == ["x"]


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_says_what_to_do_and_survives_pickling(name: str) -> None:
    kind = getattr(errors, name)
    if not issubclass(kind, errors.StoreError):
        assert kind.__doc__
        return
    arguments = {
        "RunBusy": ("r", "me", "host", 1, 2.0),
        "RunExists": ("r",),
        "CorruptLog": ("r", 3, 4, "x"),
        "Conflict": ("r", 3, "x"),
    }.get(name, ("r", "x"))
    error = kind(*arguments)
    assert "'r'" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_first_call_connects_to_the_model_and_to_nothing_else(tmp_path: Path) -> None:
    code = """
        import sys
        seen = []
        sys.addaudithook(lambda name, args: seen.append(args[1]) if name == "socket.connect" else None)
        from agentor import Agentor
        agent = Agentor("a", model="openai/m", api_key="k", base_url=sys.argv[1])
        assert str(agent.run("hi")) == "hello"
        print({address[1] for address in seen if isinstance(address, tuple)})
    """
    with Wire([chat({"content": "hello"})]) as wire:
        command = [sys.executable, "-c", textwrap.dedent(code), f"{wire.url}/v1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.stdout.strip() == str({int(wire.url.rsplit(":", 1)[1])}), done.stderr
    assert done.stderr == ""  # no noise either
