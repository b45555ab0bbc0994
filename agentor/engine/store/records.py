"""A record as a text under a number: what the stores that keep no file of lines share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentor.engine import codec, strictjson
from agentor.engine.events import Event, numbered
from agentor.errors import Conflict, CorruptLog, RunExists


def record(event: Event) -> str:
    """The event as one line of JSON that any UTF-8 text column takes."""
    return codec.body(event).decode()


def event_of(run_id: str, seq: int, text: str) -> Event:
    """The event of a record.

    Raises:
        CorruptLog: the text is none.
    """
    try:
        event = Event.from_dict(strictjson.loads(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptLog(run_id, seq, None, str(error)) from None
    if event.seq != seq:
        raise CorruptLog(run_id, seq, None, f"its seq is {event.seq}")
    return numbered(event, seq, event.at, run_id)


def events_of(run_id: str, rows: Sequence[tuple[int, str]], first: int = 0) -> list[Event]:
    """The events of numbered records, which begin with number `first`.

    Raises:
        CorruptLog: one of them is none, or a number is missing.
    """
    for place, (seq, _) in enumerate(rows, first):
        if seq != place:
            raise CorruptLog(run_id, place, None, f"seq {place} is missing, {seq} follows")
    return [event_of(run_id, seq, text) for seq, text in rows]


def placed(run_id: str, events: Sequence[Event], following: int) -> list[Event]:
    """The events with the numbers under which they go into a log that has `following` records.

    Raises:
        Conflict: a number is skipped.
    """
    out: list[Event] = []
    for event in events:
        seq = following if event.seq is None else event.seq
        if seq > following:
            raise Conflict(run_id, seq, f"seq {following} comes first")
        out.append(event if event.seq is not None else numbered(event, seq, event.at))
        following = max(following, seq + 1)
    return out


def fresh(
    run_id: str, events: Sequence[Event], following: int, stored: Mapping[int, str]
) -> list[tuple[Event, str]]:
    """What a log with `following` records does not have yet of a batch: numbered events and their records.

    Args:
        stored: Those of the log's records whose numbers the batch repeats.

    Raises:
        RunExists: seq 0 of a run that begins otherwise.
        Conflict: another record stands at a number, or one is skipped.
        ValueError, TypeError: an event is no JSON.
    """
    new: list[tuple[Event, str]] = []
    for event in placed(run_id, events, following):
        seq, text = event.seq or 0, record(event)
        if seq == following + len(new):
            new.append((event, text))
        elif text != (stored.get(seq) if seq < following else new[seq - following][1]):
            raise Conflict(run_id, seq) if seq else RunExists(run_id)
    return new


def sound_records(run_id: str, rows: Sequence[tuple[int, str]], upto: int | None) -> list[Event]:
    """The events up to record `upto`, or up to the first damage where it is None.

    Raises:
        ValueError: nothing is damaged and no `upto` given, or a record up to it is damaged.
    """
    sound: list[Event] = []
    for place, (seq, text) in enumerate(rows):
        try:
            sound.append(events_of(run_id, [(seq, text)], place)[0])
        except CorruptLog:
            break
    return sound[: kept(run_id, len(sound), upto, damaged=len(sound) < len(rows))]


def kept(run_id: str, sound: int, upto: int | None, *, damaged: bool) -> int:
    """How many records a repair keeps of a log whose first `sound` ones are in order.

    Args:
        upto: The last one to keep; None: all that are sound.

    Raises:
        ValueError: nothing is damaged and no `upto` given, or a record up to it is damaged.
    """
    if upto is None and not damaged:
        raise ValueError(f"the log of run {run_id!r} is sound; upto= cuts it all the same")
    cut = sound if upto is None else upto + 1
    if not 1 <= cut <= sound:
        which = f"records 0 to {sound - 1} are sound" if sound else "no record is sound"
        raise ValueError(f"run {run_id!r} cannot be cut behind record {upto}: {which}")
    return cut
