"""`Transcript`: the state of a run, as its events add up to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any  # request parameters

from agentor.engine.events import Child, Generation, Interrupted, RunEnd
from agentor.engine.messages import EMPTY_CHAIN, Message, Spent, Usage, chain
from agentor.engine.opencalls import OpenCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What a run's events add up to. Immutable; `transcript.apply` gives the next one.

    `conversation` and `ids` are append-only and shared by all transcripts of a run: each one sees
    the first `length` messages and the first `known_ids` ids. So a turn costs what it adds.
    """

    conversation: list[Message] = field(default_factory=list, repr=False)
    length: int = 0
    ids: dict[str, int] = field(default_factory=dict, repr=False)  # call id -> turn
    known_ids: int = 0
    chained: int = 0  # messages covered by `chain_sha256`
    chain_sha256: bytes = EMPTY_CHAIN
    next_seq: int = 0

    agent: str | None = None
    model: str | None = None
    streams: bool = False  # its model calls stream, also when a resume has nobody to stream to
    fallback: str | None = None  # the fallback model that the run goes on with
    params: Mapping[str, Any] | None = None
    fingerprint: Mapping[str, Any] | None = None
    definitions: Mapping[str, Any] = field(default_factory=dict)  # of each tool so far, by its name
    output: Mapping[str, Any] | None = None  # the schema of answers
    limits: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0
    segment: int = 0  # run_starts so far
    starts: int = 0  # run_starts since the last generation or result

    turn: int = 0  # of the last generation; 0 before the first
    last: Generation | None = None  # the generation that the next step answers
    last_segment: int = 0  # the segment that wrote it
    calls: tuple[OpenCall, ...] = ()  # those of `last`, until the last one has its result
    decided: bool = False  # a request, an approval or a person's word stands in this turn
    failures: Mapping[str, int] = field(default_factory=dict)  # per tool
    disabled: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()  # tools switched off in this turn
    end: RunEnd | Interrupted | None = None  # how the last segment ended; None while one is open
    usage: Usage = field(default_factory=Usage)  # of its own calls of models
    cost: float | None = None
    children: Mapping[str, Child] = field(default_factory=dict)  # how each sub-agent's run stands, by its id
    budget: Mapping[str, Any] | None = None
    spent_before: Spent = field(default_factory=Spent)  # by the parent of a fork that counts from zero
    answers: int = 0  # of models
    tool_starts: int = 0
    active_s: float = 0.0  # of the segments that are over
    began_at: float | None = None  # the segment
    last_at: float | None = None  # the last event of the segment
    reuses: tuple[str, int] | None = None  # of a fork: the parent, and the seq behind which its results count
    asked: int | None = None  # tokens that the next request holds at least

    @property
    def spent(self) -> Spent:
        """What the run has used up so far, with its sub-agents, and its parent's part if it is a fork."""
        usage = self.whole_usage
        return Spent(
            turns=self.answers + sum(child.turns for child in self.children.values()),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            usd=self.whole_cost or 0.0,
            tool_calls=self.tool_starts + sum(child.tool_calls for child in self.children.values()),
            seconds_active=self.active_s + self._segment_s,
        )

    @property
    def whole_usage(self) -> Usage:
        """Tokens, those of sub-agents included."""
        return sum((c.usage for c in self.children.values() if c.usage is not None), self.usage)

    @property
    def whole_cost(self) -> float | None:
        """US dollars, those of sub-agents included; None where no price is known."""
        known = [cost for cost in (self.cost, *(c.cost for c in self.children.values())) if cost is not None]
        return sum(known) if known else None

    @property
    def _segment_s(self) -> float:
        return 0.0 if self.began_at is None else max((self.last_at or 0.0) - self.began_at, 0.0)

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, system message included; a fresh list of shared messages."""
        return self.conversation[: self.length]

    @property
    def has_system(self) -> bool:
        return any(m.get("role") == "system" for m in self.conversation[: self.length])

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """The calls of the last generation that have no result."""
        return tuple(c for c in self.calls if c.result is None)

    @property
    def status(self) -> str:
        """How the last segment ended, or `running`."""
        return "running" if self.end is None else self.end.status

    def sent(self) -> dict[str, Any]:
        """Digest of the request that the conversation is now; each message is hashed once."""
        return {"count": self.length, "sha256": self._chain().hex()}

    def _chain(self) -> bytes:
        return chain(self.chain_sha256, self.conversation[self.chained : self.length])
