"""Results that a fork's parent has, for calls that the fork makes again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any  # arguments are JSON

from agentor.engine import strictjson
from agentor.engine.events import Event, ToolCall, ToolResult
from agentor.engine.words import INTERRUPTED

RECORDED = "recorded"  # `by` of a result that was taken from the parent


class Known:
    """What the parent's calls gave behind the cut, each result for one equal call of the fork.

    Args:
        parent: The parent's events behind the cut, hydrated.
        own: The fork's behind its marker: what they have taken already is not there again.
    """

    def __init__(self, parent: Iterable[Event], own: Iterable[Event] = ()) -> None:
        self._results: dict[tuple[str, bytes], list[ToolResult]] = {}
        keys: dict[str, tuple[str, bytes]] = {}
        for event in parent:
            if isinstance(event, ToolCall) and event.args is not None:
                keys[event.call_id] = _key(event.name, event.args)
            elif isinstance(event, ToolResult) and event.error_type != INTERRUPTED and event.call_id in keys:
                self._results.setdefault(keys.pop(event.call_id), []).append(event)
        taken = {e.taken_from for e in own if isinstance(e, ToolResult) and e.taken_from is not None}
        for key, results in self._results.items():
            self._results[key] = [r for r in results if r.seq not in taken]

    def take(self, name: str, args: dict[str, Any]) -> ToolResult | None:
        """The next result of such a call; None where there is none any more."""
        results = self._results.get(_key(name, args))
        return results.pop(0) if results else None


def _key(name: str, args: dict[str, Any]) -> tuple[str, bytes]:
    return name, strictjson.canonical(args)
