"""`export_test`: a run from production as a test that anybody can run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agentor.engine import codec
from agentor.engine.events import Event, Generation
from agentor.engine.redact import Redactor
from agentor.engine.transcript import Transcript, apply
from agentor.replay.source import SUFFIX

_HEAD = '''"""The recorded run {run_id}: today's agent must do as it did. Written by `agentor export-test`."""

import pytest


@pytest.mark.agentor(run="runs/{file}", agent="{agent}")
def test_{name}_does_as_recorded(agentor_report):
    agentor_report.check()
'''
_CASSETTE = """

@pytest.mark.agentor(run="runs/{file}", agent="{agent}", model="live", cassette="cassettes/{cassette}")
def test_{name}_asks_its_provider_as_recorded(agentor_cassette, agentor_report):
    agentor_report.check()
"""


def redacted(events: Sequence[Event], redactor: Redactor) -> list[Event]:
    """The events as they may leave the house, with the digests of what the requests are now."""
    t, found = Transcript(), list[Event]()
    for event in events:
        event = redactor.event(event)
        if isinstance(event, Generation) and event.sent is not None:
            event = replace(event, sent=t.sent())
        found.append(event)
        t = apply(t, event)
    return found


def log_of(events: Sequence[Event]) -> bytes:
    """Events as a log's file."""
    lines, crc = list[bytes](), 0
    for event in events:
        line, crc = codec.encode(event, crc)
        lines.append(line)
    return b"".join(lines)


def export_test(
    run_id: str,
    events: Sequence[Event],
    folder: str | Path,
    *,
    agent: str,
    redactor: Redactor | None = None,
    cassette: str | Path | None = None,
    name: str | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write a pytest file that replays a run, the run itself without credentials, and its cassette.

    Args:
        run_id, events: The run, hydrated.
        folder: Of tests; the run goes to `runs/` in it, the cassette to `cassettes/`.
        agent: Today's agent, as `module:name`.
        redactor: Takes out what must not get into a repository; `Redactor(content=True)` if not given.
        cassette: The recorded traffic of the run, which is copied.
        name: Of the test; by default the run's id.

    Returns: The files written, the test first.

    Raises:
        FileExistsError: one of them is there, and `overwrite` is False; then none is written.
        ValueError: `agent` is no `module:name`.
    """
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", agent):
        raise ValueError(f"agent must be module:name, not {agent!r}")
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name or run_id)[:100].strip("-.") or "run"
    word = re.sub(r"\W+", "_", safe, flags=re.ASCII).strip("_").lower()
    about = {"run_id": safe, "file": safe + SUFFIX, "agent": agent, "name": word, "cassette": safe + ".yaml"}
    text = _HEAD.format_map(about)
    files = {
        Path(folder, f"test_{word}.py"): text.encode(),
        Path(folder, "runs", about["file"]): log_of(redacted(events, redactor or Redactor(content=True))),
    }
    tape = Path(folder, "cassettes", about["cassette"])
    if cassette is not None:
        files[Path(folder, f"test_{word}.py")] = (text + _CASSETTE.format_map(about)).encode()
    wanted = [*files, *([tape] if cassette is not None else [])]
    if not overwrite and (there := [path for path in wanted if path.exists()]):
        raise FileExistsError(f"{there[0]} is there already")
    for path in wanted:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        if path is tape and cassette is not None:
            shutil.copyfile(cassette, temporary)
        else:
            temporary.write_bytes(files[path])
        os.replace(temporary, path)
    return wanted
