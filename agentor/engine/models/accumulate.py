"""One assistant message out of stream deltas, every part in the order of its arrival."""

from __future__ import annotations

from typing import Any  # deltas are provider JSON

from agentor.engine import strictjson
from agentor.engine.messages import Message
from agentor.engine.models.families import normalise

_KNOWN = {
    "role",
    "content",
    "reasoning_content",
    "thinking_blocks",
    "tool_calls",
    "provider_specific_fields",
    "annotations",
    "images",
    "audio",
    "function_call",
    "refusal",
}


_GROWING = ("text", "summary", "data")  # of a reasoning detail: these come in pieces


class Accumulator:
    """Takes deltas (as dicts without nulls), gives the message."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []  # thinking, redacted_thinking and text, as they came
        self._thinking: dict[Any, dict[str, Any]] = {}  # by the provider's index
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[int, dict[str, Any]] = {}
        self._fields: dict[str, Any] = {}
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
        _merge(self._fields, delta.get("provider_specific_fields") or {})
        _merge(self._more, {k: v for k, v in delta.items() if k not in _KNOWN})

    def add_anthropic(self, blocks: list[dict[str, Any]]) -> None:
        """Take the content blocks of Anthropic's Messages API, each as it is and in their order."""
        for index, block in enumerate(blocks):
            if block.get("type") == "tool_use":
                function = {"name": block["name"], "arguments": _arguments(block)}
                self._add_call({"index": index, "id": block.get("id"), "function": function})
            elif block.get("type") != "text" or block.get("text"):
                self._blocks.append({k: v for k, v in block.items() if v is not None})

    def add_details(self, pieces: list[dict[str, Any]]) -> None:
        """Take the pieces of OpenRouter's `reasoning_details`; those of one index are one."""
        whole: dict[Any, dict[str, Any]] = {}
        for place, piece in enumerate(pieces):
            item = whole.setdefault(piece.get("index", ("own", place)), {})
            for key, value in piece.items():
                if key in _GROWING and isinstance(item.get(key), str) and value:
                    item[key] += value
                elif value is not None:
                    item[key] = value
        if whole:
            self._more["reasoning_details"] = list(whole.values())

    def _add_text(self, text: str) -> None:
        if self._blocks and self._blocks[-1]["type"] == "text":
            self._blocks[-1]["text"] += text
        else:
            self._blocks.append({"type": "text", "text": text})

    def _add_thinking(self, block: dict[str, Any]) -> None:
        if block.get("type") != "thinking":
            self._blocks.append({k: v for k, v in block.items() if k != "index" and v is not None})
            return
        index = block.get("index")
        current = self._thinking.get(index)
        # Without an index a new block begins where something else came in between.
        if current is None or (index is None and self._blocks[-1] is not current):
            current = {"type": "thinking", "thinking": ""}
            self._thinking[index] = current
            self._blocks.append(current)
        current["thinking"] += block.get("thinking") or ""
        if signature := block.get("signature"):
            current["signature"] = current.get("signature", "") + signature

    def _add_call(self, delta: dict[str, Any]) -> None:
        function = delta.get("function") or {}
        index = delta.get("index") or 0
        call = self._by_index.get(index)
        # Ollama sends each whole call under index 0 again: a new name or id opens a new call.
        renewed = call is not None and (
            (function.get("name") and call["function"]["name"])
            or (delta.get("id") and call["id"] and delta["id"] != call["id"])
        )
        if call is None or renewed:
            call = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            self._by_index[index] = call
            self._calls.append(call)
        call["id"] = delta.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""
        if fields := delta.get("provider_specific_fields"):
            call["provider_specific_fields"] = {**call.get("provider_specific_fields", {}), **fields}

    @property
    def likely_end(self) -> str:
        """The finish reason of an answer that is whole and does not say how it ended."""
        return "tool_calls" if self._calls else "stop"

    def message(self, origin: str) -> Message:
        """The whole assistant message so far, as one of this origin."""
        out: Message = {"role": "assistant", **self._more}
        if len(self._blocks) > 1 or any(b["type"] != "text" for b in self._blocks):
            out["content"] = self._blocks
        else:
            if self._blocks:
                out["content"] = self._blocks[0]["text"]
            if self._reasoning:
                out["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            out["tool_calls"] = self._calls
        if self._fields:
            out["provider_specific_fields"] = self._fields
        return normalise(out, origin)


def _arguments(block: dict[str, Any]) -> str:
    return str(block["arguments"]) if "arguments" in block else strictjson.dumps(block.get("input") or {})


class AnthropicBlocks:
    """The content blocks of a streamed answer of Anthropic's, from its own events.

    LiteLLM runs blocks of text together and takes tools that Anthropic itself runs for calls.
    """

    def __init__(self) -> None:
        self._open: dict[int, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Take one event of the stream; one that is none of a block is passed over."""
        index = event.get("index")
        if event.get("type") == "content_block_start" and isinstance(index, int):
            self._open[index] = dict(event["content_block"])
        elif event.get("type") == "content_block_delta" and index in self._open:
            self._grow(self._open[index], event["delta"])

    @staticmethod
    def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
        if (citation := delta.get("citation")) is not None:
            block["citations"] = [*(block.get("citations") or []), citation]
        for name in ("text", "thinking", "signature", "partial_json"):
            if piece := delta.get(name):
                block[name] = (block.get(name) or "") + piece

    def blocks(self) -> list[dict[str, Any]]:
        """The blocks so far, in order; a call's arguments as the object that their text is."""
        return [self._whole(dict(self._open[index])) for index in sorted(self._open)]

    @staticmethod
    def _whole(block: dict[str, Any]) -> dict[str, Any]:
        if (text := block.pop("partial_json", None)) is not None:
            try:
                block["input"] = strictjson.loads(text)
            except ValueError:
                block["arguments"] = text  # for the tool to refuse, with the model's own words
        return block


def _merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, list) and isinstance(into.get(key), list):
            into[key] = into[key] + [item for item in value if item not in into[key]]
        elif value is not None:
            into[key] = value
