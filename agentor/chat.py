"""Streams: a run's events while it goes, and as the items that agentor 0.1 documents for chat front ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal  # Any: a JSON object

from agentor.engine import strictjson
from agentor.engine.events import Event, RunEnd, RunStart, TextDelta, ToolCall, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAction:
    """A tool call, or its result."""

    name: str
    type: Literal["tool_called", "tool_output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamItem:
    """One item: a piece of text in `message`, a tool call, a tool's result, or why a run stopped.

    The first item carries the `run_id` and nothing else.
    """

    run_id: str | None
    message: str | None = None
    tool_action: ToolAction | None = None
    type: str = "run_item_stream_event"

    def to_dict(self) -> dict[str, Any]:
        """The item as a JSON object; `tool_action` is an object or null."""
        action = self.tool_action
        return {
            "type": self.type,
            "run_id": self.run_id,
            "message": self.message,
            "tool_action": None if action is None else {"name": action.name, "type": action.type},
        }

    def to_json(self) -> str:
        """The item as one line of JSON text, line end included."""
        return strictjson.dumps(self.to_dict()) + "\n"


def item_of(event: Event) -> StreamItem | None:
    """The item that a chat front end is shown for this event; None for those it is not shown."""
    run_id = event.run_id
    if isinstance(event, RunStart):
        return StreamItem(run_id=run_id)
    if isinstance(event, TextDelta) and event.text:
        return StreamItem(run_id=run_id, message=event.text)
    if isinstance(event, ToolCall):
        action = ToolAction(name=event.name, type="tool_called")
        return StreamItem(run_id=run_id, tool_action=action)
    if isinstance(event, ToolResult):
        action = ToolAction(name=event.name, type="tool_output")
        return StreamItem(run_id=run_id, message=event.content, tool_action=action)
    if isinstance(event, RunEnd) and event.status != "completed":
        return StreamItem(run_id=run_id, message=event.error or f"the run ended as {event.status}")
    return None


async def streamed(
    run: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Any]],
) -> AsyncIterator[Event]:
    """The events that a run hands over while it goes; leaving the loop early cancels it.

    Args:
        run: Given the function that takes each event, the run itself.
    """
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(run(queue.put_nowait))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
