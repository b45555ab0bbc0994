"""One assistant message out of stream deltas, every part in the order of its arrival."""

from __future__ import annotations

from typing import Any  # deltas are provider JSON

from agentor.engine import strictjson
from agentor.engine.messages import Message
from agentor.engine.models.families import normalise

_OWN = {  # what `add` knows; other keys are kept as they come
    "role",
    "function_call",
    "content",
    "reasoning_content",
    "thinking_blocks",
    "tool_calls",
    "provider_specific_fields",
}
_GROWING = ("text", "summary", "data")  # of a reasoning detail: these come in pieces


class Pieces(list[str]):
    """A text that is still coming: joined once, at its end, so that a long one costs what it is long."""


def joined(value: Any) -> Any:
    """The JSON of something with `Pieces` in it."""
    if isinstance(value, Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: joined(item) for key, item in value.items()}
    return [joined(item) for item in value] if isinstance(value, list) else value


class Accumulator:
    """Takes deltas (as dicts without nulls), gives the message."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []  # thinking, redacted_thinking and text, as they came
        self._thinking: dict[Any, dict[str, Any]] = {}  # by the provider's index
        self._reasoning = Pieces()
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[int, dict[str, Any]] = {}
        self._fields: dict[str, Any] = {}
        self._seen: set[tuple[str, bytes]] = set()  # items of lists in `_fields`
        self._more: dict[str, Any] = {}
        self.finish_reason: str | None = None

    def add(self, delta: dict[str, Any]) -> None:
        """Take one delta."""
        if reasoning := delta.get("reasoning_content"):
            self._reasoning.append(reasoning)
        for block in delta.get("thinking_blocks") or ():
            self._add_thinking(block)
        if content := delta.get("content"):
            self._add_text(content)
        for call in delta.get("tool_calls") or ():
            self._add_call(call)
        self._add_fields(delta.get("provider_specific_fields") or {})
        for key, value in delta.items():
            if key not in _OWN:
                self._add_more(key, value)

    def add_blocks(self, blocks: list[dict[str, Any]]) -> None:
        """Take whole content blocks of Anthropic's, each as it is and in their order."""
        for index, block in enumerate(blocks):
            if block.get("type") == "tool_use":
                arguments = block.get("arguments") or strictjson.dumps(block.get("input") or {})
                function = {"name": block["name"], "arguments": arguments}
                self._add_call({"index": index, "id": block.get("id"), "function": function})
            elif block.get("type") != "text" or block.get("text"):
                self._blocks.append({k: v for k, v in block.items() if v is not None})

    def add_details(self, pieces: list[dict[str, Any]]) -> None:
        """Take the pieces of OpenRouter's `reasoning_details`; those of one index and type are one."""
        whole: dict[Any, dict[str, Any]] = {}
        for piece in pieces:
            item = whole.setdefault((piece.get("index"), piece.get("type")), {})
            for key, value in piece.items():
                if key in _GROWING and isinstance(value, str):
                    item.setdefault(key, Pieces()).append(value)
                elif value is not None:
                    item[key] = value
        if whole:
            self._more["reasoning_details"] = list(whole.values())

    def _add_text(self, text: str) -> None:
        if not (self._blocks and self._blocks[-1]["type"] == "text"):
            self._blocks.append({"type": "text", "text": Pieces()})
        self._blocks[-1]["text"].append(text)

    def _add_thinking(self, block: dict[str, Any]) -> None:
        if block.get("type") != "thinking":
            self._blocks.append({k: v for k, v in block.items() if k != "index" and v is not None})
            return
        index = block.get("index")
        current = self._thinking.get(index)
        # Without an index a new block begins where something else came in between.
        if current is None or (index is None and self._blocks[-1] is not current):
            current = {"type": "thinking", "thinking": Pieces()}
            self._thinking[index] = current
            self._blocks.append(current)
        current["thinking"].append(block.get("thinking") or "")
        if signature := block.get("signature"):
            current.setdefault("signature", Pieces()).append(signature)

    def _add_call(self, delta: dict[str, Any]) -> None:
        function, index = delta.get("function") or {}, delta.get("index") or 0
        call = self._by_index.get(index)
        if call is None or not _goes_on(call, delta.get("id"), function.get("name")):
            call = {"id": "", "type": "function", "function": {"name": "", "arguments": Pieces()}}
            self._by_index[index] = call
            self._calls.append(call)
        call["id"] = delta.get("id") or call["id"]
        name = function.get("name") or ""
        if not (delta.get("id") and call["function"]["name"]):  # with its id again, it is the same name
            call["function"]["name"] += name
        call["function"]["arguments"].append(function.get("arguments") or "")
        if fields := delta.get("provider_specific_fields"):
            call["provider_specific_fields"] = {**call.get("provider_specific_fields", {}), **fields}

    def _add_fields(self, fields: dict[str, Any]) -> None:
        for key, value in fields.items():
            if not isinstance(value, list):
                self._fields[key] = value
                continue
            kept = self._fields.setdefault(key, [])
            for item in value:  # LiteLLM gives some of them more than once
                mark = (key, strictjson.canonical(item))
                if mark not in self._seen:
                    self._seen.add(mark)
                    kept.append(item)

    def _add_more(self, key: str, value: Any) -> None:
        piece = Pieces([value]) if isinstance(value, str) else value
        kept = self._more.get(key)
        if isinstance(piece, list) and isinstance(kept, type(piece)):
            kept.extend(piece)
        else:
            self._more[key] = list(piece) if type(piece) is list else piece

    @property
    def likely_end(self) -> str:
        """The finish reason of an answer that is whole and does not say how it ended."""
        return "tool_calls" if self._calls else "stop"

    def refuse(self, text: str) -> None:
        """Take the whole of a refusal."""
        self._more["refusal"] = text

    def message(self, origin: str) -> Message:
        """The whole assistant message so far, as one of this origin."""
        out: dict[str, Any] = {**self._more}
        if len(self._blocks) > 1 or any(b["type"] != "text" for b in self._blocks):
            out["content"] = self._blocks
        else:
            if self._blocks:
                out["content"] = self._blocks[0]["text"]
            if self._reasoning:
                out["reasoning_content"] = self._reasoning
        if self._calls:
            out["tool_calls"] = self._calls
        if self._fields:
            out["provider_specific_fields"] = self._fields
        return normalise(joined(out), origin)


def _goes_on(call: dict[str, Any], call_id: str | None, name: str | None) -> bool:
    """True for another piece of a call; some servers repeat its id and name in each.

    Ollama sends each whole call under index 0 again, without an id: a name opens a new call there.
    """
    if call_id and call["id"]:
        return bool(call_id == call["id"])
    return not (name and call["function"]["name"] and _is_whole(call["function"]["arguments"]))


def _is_whole(arguments: Pieces) -> bool:
    try:
        return isinstance(strictjson.loads("".join(arguments)), dict)
    except ValueError:
        return False
