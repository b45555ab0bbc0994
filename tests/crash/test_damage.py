"""Every way to damage a log gives the right prefix or `CorruptLog`: no other error, nothing skipped."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentor.engine import codec
from agentor.engine.events import Event, numbered
from agentor.errors import CorruptLog

EVENTS = [
    Event.from_dict(data)
    for data in (
        {
            "type": "run_start",
            "agent": "a",
            "messages": [{"role": "user", "content": "gr\u00fc\u00dfe \ud83d"}],
        },
        {"type": "generation", "turn": 1, "calls": [{"id": "c", "function": {"name": "f"}}]},
        {"type": "tool_call", "name": "f", "call_id": "c", "turn": 1},
        {"type": "tool_result", "name": "f", "call_id": "c", "turn": 1, "result": "x\ny\0z"},
        {"type": "run_end", "status": "completed", "text": "done"},
    )
]


def written(events: list[Event]) -> list[bytes]:
    lines, crc = [], 0
    for place, event in enumerate(events):
        line, crc = codec.encode(numbered(event, place, 1.5), crc)
        lines.append(line)
    return lines


LINES = written(EVENTS)
LOG = b"".join(LINES)
TRUE = [event.to_json() for event in codec.decode("r", LOG).events]


def read(data: bytes) -> list[str] | None:
    """What the log gives; None for CorruptLog. Whatever it gives must be a prefix of the truth."""
    try:
        given_back = [event.to_json() for event in codec.decode("r", data).events]
    except CorruptLog as error:
        assert error.run_id == "r"
        assert error.offset is not None
        return None
    assert given_back == TRUE[: len(given_back)]
    return given_back


def test_an_undamaged_log_reads_whole() -> None:
    assert read(LOG) == TRUE
    assert len(TRUE) == len(EVENTS)


def test_every_single_byte_change_is_damage() -> None:
    for offset in range(len(LOG) - 1):
        for value in (LOG[offset] ^ 1, LOG[offset] ^ 0x80, ord("\n"), ord(" "), 0):
            changed = LOG[:offset] + bytes([value]) + LOG[offset + 1 :]
            if changed == LOG:
                continue
            assert read(changed) is None, offset


def test_a_changed_last_line_end_is_damage() -> None:
    assert read(LOG[:-1] + b"x") is None


def test_every_truncation_gives_the_whole_records_before_it() -> None:
    for size in range(len(LOG)):
        whole = LOG[:size].count(b"\n")
        assert read(LOG[:size]) == TRUE[:whole]


def test_a_dropped_line_is_damage_unless_it_is_the_last() -> None:
    for place in range(len(LINES)):
        data = b"".join(LINES[:place] + LINES[place + 1 :])
        assert read(data) == (TRUE[:-1] if place == len(LINES) - 1 else None)


def test_swapped_lines_are_damage() -> None:
    for a in range(len(LINES)):
        for b in range(a):
            lines = list(LINES)
            lines[a], lines[b] = lines[b], lines[a]
            assert read(b"".join(lines)) is None


def test_an_equal_repeat_of_a_record_is_dropped() -> None:
    for place, line in enumerate(LINES):
        for later in range(place + 1, len(LINES) + 1):
            assert read(b"".join([*LINES[:later], line, *LINES[later:]])) == TRUE


@pytest.mark.parametrize(
    "junk",
    [
        b'{"type":"x","seq":' + b"9" * 5000 + b"}",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe{}",
        b'"text"',
        b"null",
        b'{"type":"x"}',
        b'{"type":"x","seq":5}',
        b'{"type":5}',
        b'{"type":"run_end","status":["x"]}',
        b"NaN",
        b"",
    ],
)
def test_foreign_lines_are_damage_wherever_they_stand(junk: bytes) -> None:
    for place in range(1, len(LINES) + 1):
        assert read(b"".join([*LINES[:place], junk + b"\n", *LINES[place:]])) is None
    with pytest.raises(CorruptLog):
        codec.decode("r", sealed(junk))


def sealed(body: bytes) -> bytes:
    """A line with a checksum that fits, whatever stands in it."""
    return body[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(body[:-1] + b"}")


def test_unwritten_sectors_at_the_end_are_a_torn_tail() -> None:
    assert read(LOG + b"\0" * 4096) == TRUE
    assert read(LOG + LINES[-1][:20] + b"\0" * 100) == TRUE
    assert read(LOG[: -len(LINES[-1])] + b"\0" * (len(LINES[-1]) - 1) + b"\n") == TRUE[:-1]


@given(st.binary(max_size=300))
def test_no_bytes_at_all_raise_anything_else(data: bytes) -> None:
    for log in (data, LOG + data, data + LOG, LOG[:100] + data + LOG[100:]):
        try:
            codec.decode("r", log)
        except CorruptLog:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_any_json_survives_the_round_trip(extra: dict[str, object]) -> None:
    extra.pop("crc", None)  # the checksum's own key
    event = Event.from_dict({**extra, "type": "custom", "seq": 0, "at": 1.0})
    line, _ = codec.encode(event, 0)
    (back,) = codec.decode("r", line).events
    assert back == event
    assert json.loads(line)["type"] == "custom"


LEGACY = (
    b'{"type": "run_start", "agent": "a", "messages": [{"role": "user", "content": "hi"}]}\n'
    b'{"type": "generation", "turn": 1, "text": "yes", "messages": [{"role": "user", "content": "hi"}]}\n'
)


def test_a_log_of_agentor_0_1_reads_by_place_and_our_first_checksum_covers_it() -> None:
    decoded = codec.decode("r", LEGACY)
    assert [event.seq for event in decoded.events] == [0, 1]
    assert decoded.crc == zlib.crc32(LEGACY)
    line, _ = codec.encode(numbered(EVENTS[-1], 2, 1.0), decoded.crc)
    assert len(codec.decode("r", LEGACY + line).events) == 3
    with pytest.raises(CorruptLog):
        codec.decode("r", LEGACY.replace(b"hi", b"ho") + line)
    with pytest.raises(CorruptLog):
        codec.decode("r", LEGACY + line + LEGACY)


def test_a_log_of_agentor_0_1_may_lack_its_last_line_end() -> None:
    decoded = codec.decode("r", LEGACY[:-1])
    assert len(decoded.events) == 2
    assert decoded.newline_missing
    assert len(codec.decode("r", LEGACY[:-10]).events) == 1
