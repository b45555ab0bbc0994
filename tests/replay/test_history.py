"""Every format that was released stays readable: its logs load, resume, fork and replay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import history
import pytest
from history import KINDS, LOGS, agent

from agentor import Agentor, Approve, Budget, FileStore, function_tool
from agentor.engine.store.access import Access
from agentor.engine.store.verify import verify
from agentor.replay import replay

NOW = "0.2"  # its format is the present one
OLD = ["0.1.1-completed", "0.1.1-crashed", "0.1.1-resumed", "0.1.1-forked"]  # written by agentor 0.1.1 itself
OURS = [f"{NOW}-{kind}" for kind in KINDS]
NAMES = [*OLD, *OURS]


def today(name: str, store: Any) -> Any:
    return agent(store, gated=name.endswith("approved"), short=name.endswith("compacted"))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    folder = tmp_path / "runs"
    folder.mkdir()
    for log in LOGS.glob("*.jsonl"):
        shutil.copy(log, folder)
    return FileStore(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_released_log_replays_without_a_difference(name: str) -> None:
    report = replay(today(name, None), LOGS / f"{name}.jsonl")
    assert report.ok, str(report)
    assert report.recorded_turns >= (1 if name.endswith("crashed") else 4)
    assert len(report.notes) == name.startswith("0.1")  # those say nothing of tools
    one = today(name, None)
    changed = replay(
        Agentor("clerk", "Be quick.", one.model, one.tools), LOGS / f"{name}.jsonl", tools="deny"
    )
    assert changed.differences[0][1].kind == "instructions"


@pytest.mark.parametrize("name", NAMES)
def test_a_released_log_resumes_follows_up_and_forks(name: str, store: FileStore) -> None:
    before = store.path(name).read_bytes()
    one = today(name, store)
    result = one.resume(name)
    assert (result.status, result.text) == ("completed", "All is paid. ✓")
    assert store.path(name).read_bytes().startswith(before)
    assert one.continue_run(name, "And now?").text == "All is paid. ✓"
    branch = one.fork(name, at_turn=1)
    if branch.status == "budget":  # that of the first segment
        branch = one.resume(branch.run_id, budget=Budget(turns=9))
    while branch.pending:
        branch = one.resume(branch.run_id, decisions={p.call_id: Approve() for p in branch.pending})
    assert branch.text == "All is paid. ✓"
    for run_id in (name, branch.run_id):
        report = replay(one, run_id)
        assert report.ok, str(report)


@pytest.mark.parametrize("name", NAMES)
async def test_the_requests_of_a_released_log_are_those_that_were_sent(name: str, store: FileStore) -> None:
    checked = await verify(Access(store), name)
    assert checked.ok, str(checked)
    assert checked.requests >= (0 if name in OLD else 1)


def test_this_version_still_writes_what_its_release_wrote(tmp_path: Path) -> None:
    """What changes in a format needs a new release, and its logs beside the old ones."""

    def shape(path: Path) -> list[Any]:
        records = [json.loads(line) for line in path.read_bytes().splitlines()]
        return [
            {k: type(v).__name__ for k, v in r.items() if k not in ("elapsed", "engine")} for r in records
        ]

    for path in history.write(NOW, tmp_path):
        assert shape(path) == shape(LOGS / path.name), path.name


def test_every_log_that_is_kept_is_tested() -> None:
    assert {log.stem for log in LOGS.glob("*.jsonl")} == {*NAMES, "0.1-completed"}


def test_a_changed_result_is_found_in_a_log_of_0_1() -> None:
    @function_tool
    def look(page: int) -> str:
        """Look at a page."""
        return "page 2: Bern" if page == 2 else f"page {page}: Zürich"

    one = agent()
    other = Agentor("clerk", "Be exact.", one.model, [look, one.tools[1]])
    report = replay(other, LOGS / "0.1.1-completed.jsonl", tools="live")
    assert (1, "the result of look (call_0_1)") in [(turn, d.what) for turn, d in report.differences]
