"""A log record: one JSON line with a number and a chained checksum; what is torn, and what is damage."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from agentor.engine import strictjson
from agentor.engine.events import Event
from agentor.errors import CorruptLog

_KEY = b',"crc":"'
_UNWRITTEN = bytes(8)  # sectors that never reached the medium read as zeros
_TAIL = len(_KEY) + 8 + 2  # ,"crc":"xxxxxxxx"}


def encode(event: Event, crc: int) -> tuple[bytes, int]:
    """The record's line, and the checksum that the next record chains to.

    Args:
        crc: The checksum of the record before; 0 for the first.
    """
    return seal(body(event), crc)


def body(event: Event) -> bytes:
    """The record without its checksum."""
    data = event.to_dict()
    data.pop("crc", None)  # the one key that is ours: an event read from a raw line may carry it
    return strictjson.dump_bytes(data)


def seal(record: bytes, crc: int) -> tuple[bytes, int]:
    """`encode`, of a record's `body`."""
    crc = zlib.crc32(record, crc)
    return record[:-1] + _KEY + b'%08x"}\n' % crc, crc


@dataclass(slots=True)
class Decoded:
    """A log's bytes, read."""

    events: list[Event] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # the offset behind each record
    crcs: list[int] = field(default_factory=list)  # the checksum that the next one chains to, there
    size: int = 0  # of the valid part; a torn tail begins here
    crc: int = 0
    torn: bytes = b""
    newline_missing: bool = False  # the last record is whole but for its line end (agentor 0.1)

    @property
    def next_seq(self) -> int:
        return len(self.events)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place between two records of a log: what is read from there on continues the chain."""

    seq: int = 0
    offset: int = 0
    crc: int = 0


def decode(run_id: str, data: bytes, start: Mark | None = None) -> Decoded:
    """Read a log, or what stands in it behind `start`.

    A tail without a line end, or of unwritten sectors (NUL bytes), was never acknowledged: it is
    left out, and given as `torn`. An equal repeat of a record is dropped. Logs of agentor 0.1 have
    neither numbers nor checksums: their lines are numbered by place, and our first checksum chains
    over all bytes before it.

    Raises:
        CorruptLog: any other damage. No other exception escapes, and nothing is skipped.
    """
    return _Reader(run_id, data, start or Mark()).read()


class _Reader:
    def __init__(self, run_id: str, data: bytes, start: Mark) -> None:
        self.run_id, self.data, self.first = run_id, data, start
        self.out = Decoded(crc=start.crc)
        self.sealed = start.seq > 0  # a record with a checksum has been seen

    def read(self) -> Decoded:
        data, out, start = self.data, self.out, 0
        find, crc32, loads, from_dict = data.find, zlib.crc32, strictjson.loads, Event.from_dict
        while (end := find(b"\n", start)) >= 0:
            line = data[start:end]
            if line[-_TAIL:-10] == _KEY:
                crc = crc32(b"}", crc32(line[:-_TAIL], out.crc))
                if b"%08x" % crc == line[-10:-2] and line[-2:] == b'"}':
                    try:
                        record = loads(line)
                        del record["crc"]
                        event = from_dict(record)
                    except (ValueError, TypeError, KeyError, AttributeError) as error:
                        self._damage(start, str(error))
                    if event.seq != self.first.seq + len(out.events):
                        self._damage(start, f"its seq is {event.seq}")
                    self._accept(event, crc, end + 1)
                    self.sealed = True
                    start = end + 1
                    continue
            if not self._other_line(line, start, end + 1):
                return out
            start = end + 1
        self._tail(start)
        return out

    def _accept(self, event: Event, crc: int, end: int) -> None:
        out = self.out
        object.__setattr__(event, "run_id", self.run_id)  # ours alone so far: no copy needed
        out.events.append(event)
        out.ends.append(end)
        out.crcs.append(crc)
        out.size, out.crc = end, crc

    def _other_line(self, line: bytes, start: int, end: int) -> bool:
        """A line that does not continue the chain; False where the log ends before it."""
        if self._is_repeat(line, end - start):
            self.out.size = end
            return True
        if _UNWRITTEN in line and b'"crc":"' not in self.data[end:]:
            self.out.torn = self.data[start:]  # sectors that a power loss left unwritten
            return False
        if _KEY in line:
            self._damage(start, "its checksum does not fit")
        if self.sealed:
            self._damage(start, "it has no checksum")
        if line.strip():
            self._accept(self._legacy(line, start), zlib.crc32(self.data[:end]), end)
        else:
            self.out.size, self.out.crc = end, zlib.crc32(self.data[:end])
        return True

    def _is_repeat(self, line: bytes, length: int) -> bool:
        if _KEY not in line:
            return False
        ends, begin = self.out.ends, 0
        for end in ends:
            if end - begin == length and self.data[begin : end - 1] == line:
                return True
            begin = end
        return False

    def _legacy(self, line: bytes, start: int) -> Event:
        try:
            record = strictjson.loads(line)
            event = Event.from_dict(record)
        except (ValueError, TypeError, AttributeError) as error:
            self._damage(start, str(error))
        if "seq" in record or "crc" in record:
            self._damage(start, "it has a seq and no checksum")
        return replace(event, seq=len(self.out.events))

    def _tail(self, start: int) -> None:
        tail, out = self.data[start:], self.out
        if not tail:
            return
        if self._verifies(tail[:-1]):
            self._damage(start, "its line end was changed")
        if self.sealed or not _is_legacy(tail):
            out.torn = tail
            return
        crc = zlib.crc32(self.data + b"\n")  # agentor 0.1 lost only the line end
        self._accept(self._legacy(tail, start), crc, len(self.data))
        out.newline_missing = True

    def _verifies(self, line: bytes) -> bool:
        crc = zlib.crc32(b"}", zlib.crc32(line[:-_TAIL], self.out.crc))
        return line[-_TAIL:] == _KEY + b'%08x"}' % crc

    def _damage(self, offset: int, reason: str) -> NoReturn:
        record = self.first.seq + len(self.out.events)
        raise CorruptLog(self.run_id, record, self.first.offset + offset, reason[:200])


def _is_legacy(line: bytes) -> bool:
    try:
        record = strictjson.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and "seq" not in record


def sequence(run_id: str, events: Iterable[Event]) -> list[Event]:
    """Check the numbers of what any store gave back; equal repeats are dropped.

    Raises:
        CorruptLog: a gap, other content at a taken number, or a record without a number after one
            that has it.
    """
    seen: list[Event] = []
    numbered = False
    for event in events:
        place = len(seen)
        if event.seq is None:
            if numbered:
                raise CorruptLog(run_id, place, None, "it has no seq, the record before has")
            event = replace(event, seq=place, run_id=run_id)
        else:
            numbered = True
            if event.seq < place:
                if seen[event.seq] != event:
                    raise CorruptLog(run_id, place, None, f"another record stands at seq {event.seq}")
                continue
            if event.seq > place:
                raise CorruptLog(run_id, place, None, f"seq {place} is missing, {event.seq} follows")
            if event.run_id != run_id:
                event = replace(event, run_id=run_id)
        seen.append(event)
    return seen
