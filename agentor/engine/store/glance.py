"""A run at a glance from the first and the last bytes of its file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any  # a record's JSON

from agentor.engine import codec, strictjson
from agentor.engine.events import Event
from agentor.engine.store.disk import read_all
from agentor.engine.store.runlog import Folder
from agentor.engine.store.summary import RunInfo, advanced
from agentor.errors import CorruptLog, StoreError

_WINDOW = 4096  # bytes: most first and last records are shorter
_ENDS = ("run_end", "interrupted", "run_start")  # the kinds that settle a run's status
_TURNS = ("generation", "tool_call", "tool_result", "run_end")


def glances(folder: Folder, names: Iterable[tuple[str, str]]) -> list[RunInfo]:
    """What the logs under these names say, for pairs of run id and file name; missing ones are left out."""
    infos = []
    for run_id, name in names:
        try:
            fd = folder.open(run_id, name, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except (PermissionError, StoreError):
            infos.append(RunInfo(run_id=run_id, status="unreadable", records=None))
            continue
        try:
            info = glance(run_id, fd)
        finally:
            os.close(fd)
        if info is not None:
            infos.append(info)
    return infos


def glance(run_id: str, fd: int) -> RunInfo | None:
    """What the log in an open file says of its run; None for a file without a record.

    Reads as much of both ends as it must: usually one window of each.
    """
    size = os.fstat(fd).st_size
    tail = os.pread(fd, _WINDOW, max(0, size - _WINDOW))
    try:
        first = _first(fd, tail if size <= _WINDOW else os.pread(fd, _WINDOW, 0))
        if first is None or "seq" not in first:  # a log of agentor 0.1 numbers nothing
            return _by_reading(run_id, fd)
        window, begin = _WINDOW, max(0, size - _WINDOW)
        while (info := _from_ends(run_id, first, tail, begin == 0)) is None:
            if begin == 0:
                return _by_reading(run_id, fd)
            window *= 8
            begin = max(0, size - window)
            tail = os.pread(fd, window, begin)
        return info
    except (ValueError, TypeError, KeyError, AttributeError):
        return _by_reading(run_id, fd)


def _first(fd: int, head: bytes) -> dict[str, Any] | None:
    end = head.find(b"\n")
    if end < 0:  # a long first message
        head = read_all(fd)
        end = head.find(b"\n")
        if end < 0:
            return None
    record: dict[str, Any] = json.loads(head[:end])
    return record


def _from_ends(run_id: str, first: dict[str, Any], tail: bytes, whole: bool) -> RunInfo | None:
    """The summary, or None where the tail does not reach back far enough."""
    stop = tail.rfind(b"\n")
    start = tail.rfind(b"\n", 0, max(stop, 0)) + 1
    if stop < 0 or (start == 0 and not whole):
        return None
    last: dict[str, Any] = json.loads(tail[start:stop])
    if last["type"] == "run_end" and "turns" in last:  # by far the most frequent: nothing else is read
        return RunInfo(
            run_id=run_id,
            agent=first.get("agent"),
            model=first.get("model"),
            status=last["status"],
            created_at=first["at"],
            updated_at=last["at"],
            records=last["seq"] + 1,
            turns=last["turns"],
            cost=last.get("cost"),
        )
    lines = tail[:stop].split(b"\n")
    events = [Event.from_dict(strictjson.loads(line)) for line in lines[0 if whole else 1 :]]
    kinds = [event.type for event in events]
    if not whole and not (any(k in _ENDS for k in kinds) and any(k in _TURNS for k in kinds)):
        return None
    return advanced(advanced(RunInfo(run_id=run_id), [Event.from_dict(first)]), events)


def _by_reading(run_id: str, fd: int) -> RunInfo | None:
    try:
        decoded = codec.decode(run_id, read_all(fd))
    except CorruptLog as error:
        return RunInfo(run_id=run_id, status="corrupt", records=error.record)
    return advanced(RunInfo(run_id=run_id), decoded.events) if decoded.events else None
