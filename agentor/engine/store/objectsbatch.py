"""A batch of records as one object: its form, what the next one continues, what is damage."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn  # Any: a header's JSON

from agentor.engine import codec, strictjson
from agentor.engine.events import Event
from agentor.engine.store.objectsbucket import Listed
from agentor.engine.store.summary import RunInfo, advanced
from agentor.errors import CorruptLog, UnsupportedLog

_NAME = re.compile(r"(\d{8})-(\d{8})\.jsonl")
_FORMAT = 1
_KEY = b',"crc":"'


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One object of a log: `index` objects and `seq` records stand before it."""

    index: int
    seq: int
    path: str
    size: int = 0
    tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What the next object of a log continues.

    Attributes:
        index: Its number.
        crc: Of the last record.
        epoch: The highest one that the log names.
        info: The run so far; its `records` is the next record's number.
        last: The object before; None in an empty log.
    """

    index: int = 0
    crc: int = 0
    epoch: int = 0
    info: RunInfo
    last: Key | None = None

    @property
    def seq(self) -> int:
        return self.info.records or 0


@dataclass(frozen=True, slots=True)
class _Head:
    """An object's first line, and what follows it; `restart`: the objects before it count no more."""

    index: int
    seq: int
    chain: int
    epoch: int
    info: RunInfo
    restart: bool
    body: bytes


def keys_of(run_id: str, listed: Iterable[Listed]) -> list[Key]:
    """The objects of a log, in order; others in its folder are somebody else's.

    Raises:
        CorruptLog: two of them claim one place.
    """
    keys = []
    for path, size, tag in listed:
        if match := _NAME.fullmatch(path.rpartition("/")[2]):
            keys.append(Key(int(match[1]), int(match[2]), path, size, tag))
    keys.sort()
    for one, two in pairwise(keys):
        if one.index == two.index:
            raise CorruptLog(run_id, two.seq, None, f"{one.path} and {two.path} claim one place")
    return keys


def path_of(folder: str, index: int, seq: int) -> str:
    """Where the object goes that has `index` objects and `seq` records before it."""
    return f"{folder}/{index:08d}-{seq:08d}.jsonl"


def batch(
    end: End, events: Sequence[Event], epoch: int, path: str, *, restart: bool = False
) -> tuple[bytes, End]:
    """The next object's bytes, and the log's end behind it.

    Args:
        restart: The log begins anew with this one, whose events are all that is left of it.
    """
    info = RunInfo(run_id=end.info.run_id) if restart else end.info
    crc, lines = 0 if restart else end.crc, []
    head: dict[str, Any] = {"format": _FORMAT, "epoch": epoch, "index": end.index}
    head |= {"seq": info.records or 0, "chain": f"{crc:08x}"}
    for event in events:
        line, crc = codec.encode(event, crc)
        lines.append(line)
    info = advanced(info, events)
    about = {name: value for name, value in asdict(info).items() if name != "run_id" and value is not None}
    head |= {"restart": True} if restart else {}
    text = strictjson.dump_bytes({**head, "info": about})
    first = text[:-1] + _KEY + b'%08x"}\n' % zlib.crc32(text)
    last = Key(end.index, end.seq, path)
    return b"".join((first, *lines)), End(index=end.index + 1, crc=crc, epoch=epoch, info=info, last=last)


class Part(NamedTuple):
    """The objects to read for some records; `whole`: nothing that counts stands before them."""

    keys: list[Key]
    whole: bool


def part(keys: Sequence[Key], seq: int) -> Part:
    """The objects that hold the records from `seq` on, and at least the last one.

    What a restart makes void is removed in any order, so a gap may stand before it; the objects from
    the last gap on are read all, and one of them must be a restart then.
    """
    first = start = max(len(keys) - 1, 0)
    while start > 0 and keys[start - 1].index == keys[start].index - 1:
        start -= 1
    while first > 0 and keys[first].seq > seq:
        first -= 1
    if first <= start or keys[start].index > 0:
        return Part(list(keys[min(first, start) :]), True)
    return Part(list(keys[first:]), False)


def read(
    run_id: str, objects: Sequence[tuple[Key, bytes]], *, whole: bool, before: End | None = None
) -> tuple[list[Event], End]:
    """The records of objects that follow each other, and the log's end; a restart makes void what is before.

    Args:
        whole: The log begins with them.
        before: The log's end before them. None: the first one says itself what it continues.

    Raises:
        CorruptLog: one is damaged, missing, or another one's. Nothing is skipped.
        UnsupportedLog: a newer agentor wrote it.
    """
    chosen: list[tuple[Key, _Head]] = []
    for key, data in reversed(objects):
        chosen.append((key, _head(run_id, key, data)))
        if chosen[-1][1].restart:
            break
    events: list[Event] = []
    end = before or End(info=RunInfo(run_id=run_id))
    for key, head in reversed(chosen):
        if head.restart or (before is None and not whole and not events and key == objects[0][0]):
            seq = 0 if head.restart else head.seq
            end = End(index=key.index, crc=head.chain, info=RunInfo(run_id=run_id, records=seq))
        found, end = _continued(run_id, end, key, head)
        events += found
    return events, end


def _continued(run_id: str, end: End, key: Key, head: _Head) -> tuple[list[Event], End]:
    if key.index != end.index:
        _damage(run_id, end.seq, f"object {end.index} of the log is missing, {key.path} follows")
    if (head.index, head.seq, head.chain) != (end.index, end.seq, end.crc):
        _damage(run_id, end.seq, f"{key.path} does not continue the object before it")
    try:
        decoded = codec.decode(run_id, head.body, codec.Mark(end.seq, 0, end.crc))
    except CorruptLog as error:
        _damage(run_id, error.record, f"{key.path}, {error.reason}")
    if decoded.torn or decoded.next_seq != (head.info.records or 0) - end.seq:
        _damage(run_id, end.seq + decoded.next_seq, f"{key.path} is cut short")
    after = End(index=key.index + 1, crc=decoded.crc, epoch=head.epoch, info=head.info, last=key)
    return decoded.events, after


def sound(run_id: str, objects: Sequence[tuple[Key, bytes]]) -> tuple[list[Event], bool]:
    """The records before the first damage; True if there is none."""
    cut = len(objects)
    while True:
        try:
            events, end = read(run_id, objects[:cut], whole=True)
            break
        except CorruptLog as error:
            cut = min(cut - 1, sum(key.seq <= error.record for key, _ in objects))
    if cut == len(objects):
        return events, True
    body = objects[cut][1].partition(b"\n")[2]
    while True:
        try:
            return events + codec.decode(run_id, body, codec.Mark(end.seq, 0, end.crc)).events, False
        except CorruptLog as error:
            body = body[: error.offset]


def is_restart(run_id: str, key: Key, data: bytes) -> bool:
    """True if the log begins anew with this object."""
    try:
        return _head(run_id, key, data).restart
    except CorruptLog:
        return False


def _head(run_id: str, key: Key, data: bytes) -> _Head:
    line, _, body = data.partition(b"\n")
    text = line[: -len(_KEY) - 10] + b"}"
    if line[len(text) - 1 :] != _KEY + b'%08x"}' % zlib.crc32(text):
        _damage(run_id, key.seq, f"the first line of {key.path} is damaged")
    head = strictjson.loads(text)
    if head["format"] > _FORMAT:
        raise UnsupportedLog(run_id, f"{key.path} has format {head['format']}, known is {_FORMAT}")
    restart = head.get("restart", False)
    if head["index"] != key.index or (head["seq"] != key.seq and not restart):
        _damage(run_id, key.seq, f"{key.path} is object {head['index']} in fact, from record {head['seq']}")
    info = RunInfo(run_id=run_id, **head["info"])
    chain = int(head["chain"], 16)
    return _Head(head["index"], head["seq"], chain, head["epoch"], info, restart, body)


def _damage(run_id: str, seq: int, reason: str) -> NoReturn:
    raise CorruptLog(run_id, seq, None, reason)
