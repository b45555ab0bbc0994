"""Logs of agentor 0.1 load, resume and fork."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentor import Agentor, FileStore, function_tool
from agentor.engine.transcript import hydrate
from agentor.errors import CorruptLog
from agentor.testing import ScriptedModel, call

LOGS = Path(__file__).resolve().parents[1] / "logs"


def store_with(tmp_path: Path, name: str) -> FileStore:
    folder = tmp_path / "runs"
    folder.mkdir(mode=0o700)
    shutil.copy(LOGS / f"{name}.jsonl", folder / "Old Run.jsonl")
    return FileStore(folder)


def agent(store: FileStore) -> tuple[Agentor, ScriptedModel]:
    @function_tool
    def get_weather(city: str) -> str:
        return f"{city}: sunny"

    script = [call("get_weather", {"city": "Oslo"}, id="call_b"), "It is sunny.", "Still sunny."]
    model = ScriptedModel(script)
    return Agentor("a", model=model, tools=[get_weather], store=store), model


def test_a_finished_run_of_0_1_gives_its_result_under_its_old_name(tmp_path: Path) -> None:
    store = store_with(tmp_path, "0.1-completed")
    assert store.list_runs() == ["Old Run"]
    old, model = agent(store)
    result = old.resume("Old Run")
    assert (result.status, result.final_output, model.requests) == ("completed", "It is sunny.", [])
    assert result.usage.total_tokens == 60
    assert [m["role"] for m in result.messages] == ["system", "user", "assistant", "tool", "assistant"]
    branch = old.fork("Old Run", "And now?")
    assert branch.final_output == "Still sunny."
    assert store.load(str(branch.run_id))[-1].type == "run_end"


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_run_of_0_1_that_was_cut_off_goes_on_in_our_format(tmp_path: Path, length: int) -> None:
    store = store_with(tmp_path, "0.1-completed")
    path = store.path("Old Run")
    path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:length]))
    before = path.read_bytes()
    old, model = agent(store)
    result = old.resume("Old Run")
    assert (result.status, result.final_output) == ("completed", "It is sunny.")
    assert path.read_bytes().startswith(before)
    if length == 4:  # the tool's result is in the log: one model call is left, with that result
        (request,) = model.requests
        assert request["messages"][-1] == {"role": "tool", "tool_call_id": "call_b", "content": "Oslo: rain"}
    events, _ = hydrate("Old Run", FileStore(path.parent).load("Old Run"))
    assert [e.seq for e in events] == list(range(len(events)))


def test_the_generations_of_0_1_know_their_requests(tmp_path: Path) -> None:
    events, transcript = hydrate("x", store_with(tmp_path, "0.1-completed").load("Old Run"))
    generations = [e for e in events if e.type == "generation"]
    assert [len(g.messages) for g in generations] == [2, 4]  # type: ignore[attr-defined]
    assert transcript.turn == 2


def test_a_segment_of_0_1_that_began_with_the_whole_conversation_is_not_counted_twice(tmp_path: Path) -> None:
    store = store_with(tmp_path, "0.1-completed")
    path = store.path("Old Run")
    lines = path.read_bytes().splitlines(True)
    # 0.1 resumed after a crash inside the tool: a new start with the whole request, then as before.
    path.write_bytes(b"".join([*lines[:3], lines[0], *lines[1:]]))
    old, model = agent(store)
    result = old.resume("Old Run")
    assert (result.status, result.final_output, model.requests) == ("completed", "It is sunny.", [])
    assert [m["role"] for m in result.messages] == ["system", "user", "assistant", "tool", "assistant"]


def test_a_damaged_log_of_0_1_is_refused(tmp_path: Path) -> None:
    store = store_with(tmp_path, "0.1-completed")
    path = store.path("Old Run")
    path.write_bytes(path.read_bytes().replace(b'"generation"', b'"generation', 1))
    with pytest.raises(CorruptLog, match="record 1"):
        agent(store)[0].resume("Old Run")
