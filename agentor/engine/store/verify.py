"""Verify a run: read it again, and recompute what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentor.engine import codec
from agentor.engine.events import Event, Generation
from agentor.engine.messages import EMPTY_CHAIN, Message, chain
from agentor.engine.store.access import Access
from agentor.engine.transcript import hydrate
from agentor.errors import CorruptLog, RunNotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with the record `seq`."""

    seq: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a look at every record of a run found.

    Attributes:
        records: Records that were read; those behind a damage cannot be.
        requests: Model calls whose request was rebuilt and compared with its digest (`sent`).
        problems: In the order of the log; empty for a sound run.
    """

    run_id: str
    records: int
    requests: int
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        if self.ok:
            return f"run {self.run_id!r} is sound: {self.records} records, {self.requests} requests rebuilt"
        first = self.problems[0]
        way = f"repair(run_id, upto={first.seq - 1}) keeps what is before it"
        if not first.seq:
            way = "nothing stands before it: restore a copy, or delete the run"
        return (
            f"run {self.run_id!r} has {len(self.problems)} problem(s), the first at record {first.seq}: "
            f"{first.reason}; {way}"
        )


async def verify(access: Access, run_id: str) -> Verification:
    """Check numbers, checksums (where the store has them), digests of requests, and meaning.

    Raises:
        RunNotFound: no such run.
        UnsupportedLog: a newer agentor wrote it.
    """
    try:
        events = codec.sequence(run_id, await access.load_from(run_id, 0))
        if not events:
            raise RunNotFound(run_id, access.where)
        events, _ = hydrate(run_id, events)
    except CorruptLog as error:
        problem = Problem(seq=error.record, reason=error.reason)
        return Verification(run_id=run_id, records=error.record, requests=0, problems=[problem])
    requests, problems = _requests(events)
    return Verification(run_id=run_id, records=len(events), requests=requests, problems=problems)


def _requests(events: list[Event]) -> tuple[int, list[Problem]]:
    count, problems = 0, []
    digests = _Digests()
    for event in events:
        if not isinstance(event, Generation) or event.sent is None or event.request is None:
            continue
        count += 1
        conversation, length = event.request
        found = {"count": length, "sha256": digests.of(conversation, length).hex()}
        if found != event.sent:
            reason = (
                f"its request had {event.sent.get('count')} messages with the digest "
                f"{str(event.sent.get('sha256'))[:12]}, the records before it give {length} with "
                f"{found['sha256']!s:.12}: one of them was changed"
            )
            problems.append(Problem(seq=event.seq or 0, reason=reason))
    return count, problems


class _Digests:
    """Chained digests of a conversation that grows: each message is hashed once."""

    def __init__(self) -> None:
        self._conversation: list[Message] = []
        self._chain = [EMPTY_CHAIN]

    def of(self, conversation: list[Message], length: int) -> bytes:
        if conversation is not self._conversation:
            self._conversation, self._chain = conversation, [EMPTY_CHAIN]
        while len(self._chain) <= length:
            self._chain.append(chain(self._chain[-1], [conversation[len(self._chain) - 1]]))
        return self._chain[length]
