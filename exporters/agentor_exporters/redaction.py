"""The user's own word on each piece of content, before it takes the shape of any target."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any  # content is provider JSON

from agentor.engine import strictjson
from agentor.engine.events import Event, ToolCall, ToolResult
from agentor.engine.messages import Message, raw_calls
from agentor_exporters.content import parsed

log = logging.getLogger("agentor.tracing")
Redact = Callable[[str, Any, Event], Any]
LEFT_OUT = "[left out]"  # in place of a piece of a message


class Redaction:
    """Asks `redact(kind, value, event)` about each piece; what it returns is sent, None sends nothing.

    Messages have OpenAI's chat shape, as in `result.messages`. Results and arguments inside of them are
    asked about one by one first, with an event that has the tool's name, so that a hook which knows
    `tool_result` need not know messages. It gets a copy, and may change it. A piece is left out where the
    hook raises, or gives what is no JSON.
    """

    def __init__(self, redact: Redact | None) -> None:
        self._redact, self._warned = redact, False

    @property
    def is_set(self) -> bool:
        return self._redact is not None

    def piece(self, kind: str, value: Any, event: Event) -> Any:
        """The value as it may be sent; None for nothing of it."""
        if self._redact is None or value is None:
            return value
        try:
            allowed = self._redact(kind, copy.deepcopy(value), event)  # the value is the live conversation's
            return allowed if allowed is None else strictjson.loads(strictjson.dumps(allowed))
        except BaseException as error:  # the user's own: what it did not clear is not sent
            if not self._warned:  # by its kind alone: the text may quote what must not be seen
                log.warning("redact failed on %s (%s): such pieces are left out", kind, type(error).__name__)
            self._warned = True
            return None

    def messages(
        self, kind: str, said: Sequence[Message], event: Event, request: Sequence[Message] = ()
    ) -> list[Message]:
        """The messages as they may be sent.

        Args:
            request: Where the names of the tools are whose results are among them.
        """
        if self._redact is None:
            return list(said)
        names: dict[str, str] = {}
        if any(message.get("role") == "tool" for message in said):  # a look through the whole request
            names = {
                str(call.get("id")): str((call.get("function") or {}).get("name"))
                for message in (*request, *said)
                for call in raw_calls(message)
            }
        allowed = self.piece(kind, [self._inside(message, names) for message in said], event)
        if not isinstance(allowed, list):
            return []
        return [message for message in allowed if _is_message(message)]

    def _inside(self, message: Message, names: Mapping[str, str]) -> Message:
        """A message whose results and arguments were asked about."""
        if message.get("role") == "tool":
            call_id = str(message.get("tool_call_id"))
            content = message.get("content")
            about = ToolResult(name=names.get(call_id, ""), call_id=call_id)
            value = self.piece("tool_result", content, about)
            return {**message, "content": LEFT_OUT if value is None else value}
        if not raw_calls(message):
            return message
        return {**message, "tool_calls": [self._call(call) for call in raw_calls(message)]}

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = dict(call.get("function") or {})
        about = ToolCall(name=str(function.get("name") or ""), call_id=str(call.get("id") or ""))
        value = self.piece("tool_arguments", parsed(function.get("arguments")), about)
        if value is None:
            function["arguments"] = LEFT_OUT
        else:
            function["arguments"] = value if isinstance(value, str) else strictjson.dumps(value)
        return {**call, "function": function}


def _is_message(value: Any) -> bool:
    """Whether something that a hook gave has a message's shape."""
    if not isinstance(value, dict) or not isinstance(value.get("content"), str | list | None):
        return False
    calls = value.get("tool_calls")
    return calls is None or (
        isinstance(calls, list)
        and all(isinstance(c, dict) and isinstance(c.get("function"), dict | None) for c in calls)
    )
