"""Runs as portable files, and from one store to another."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from agentor.engine import codec
from agentor.engine.events import Event
from agentor.engine.store.access import Access
from agentor.engine.store.names import check_run_id, decoded_id
from agentor.errors import CorruptLog, RunExists, RunNotFound, StoreError


async def export(access: Access, run_id: str, file: Path) -> int:
    """Write a run as `FileStore` would: one JSON line per record, numbered, with chained checksums.

    The file (0600) appears whole, or not at all.

    Returns:
        The number of records.

    Raises:
        RunNotFound, CorruptLog: as named.
        StoreError: the file cannot be written.
    """
    events = await _load(access, run_id)
    crc, lines = 0, []
    for event in events:
        line, crc = codec.encode(event, crc)
        lines.append(line)
    temporary = file.with_name(f".{file.name}.new-{os.getpid()}")
    try:
        await asyncio.to_thread(_write, b"".join(lines), temporary, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise StoreError(run_id, f"cannot export it to {file}: {error.strerror}") from error
    return len(events)


def _write(data: bytes, temporary: Path, file: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, file)


async def import_run(access: Access, file: Path, run_id: str | None = None) -> str:
    """Take a run from an exported file, or from a log of `FileStore` or of agentor 0.1.

    Args:
        run_id: Its id here; None: the one that the file's name stands for.

    Returns:
        The id.

    Raises:
        RunExists: another run has the id; the same one twice is no error.
        CorruptLog: the file is damaged, or was not written to its end.
        StoreError: it cannot be read.
    """
    run_id = decoded_id(file.name.removesuffix(".jsonl")) if run_id is None else run_id
    check_run_id(run_id)
    try:
        data = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        raise StoreError(run_id, f"cannot import it from {file}: {error.strerror}") from error
    decoded = codec.decode(run_id, data)
    if decoded.torn:
        reason = "the file ends in the middle of a record"
        raise CorruptLog(run_id, len(decoded.events), decoded.size, reason)
    await _put(access, run_id, decoded.events)
    return run_id


async def copy_run(source: Access, run_id: str, target: Access, new_id: str | None = None) -> str:
    """Copy a run into another store, record by record the same.

    Returns:
        Its id there.

    Raises:
        RunNotFound, CorruptLog: about the run here.
        RunExists: another run has the id there; the same one twice is no error.
    """
    new_id = run_id if new_id is None else new_id
    await _put(target, new_id, await _load(source, run_id))
    return new_id


async def _load(access: Access, run_id: str) -> list[Event]:
    events = codec.sequence(run_id, await access.load_from(run_id, 0))
    if not events:
        raise RunNotFound(run_id, access.where)
    return events


async def _put(access: Access, run_id: str, events: list[Event]) -> None:
    if not events:
        raise StoreError(run_id, "there is no record to import")
    present = codec.sequence(run_id, await access.load_from(run_id, 0))
    if present != events[: len(present)]:
        raise RunExists(run_id)
    rest = events[len(present) :]
    while rest:  # in one act, where the store can do that
        del rest[: await access.append(run_id, rest)]
