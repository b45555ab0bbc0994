"""Anthropic's Messages API below LiteLLM: the content blocks of an answer, exactly.

LiteLLM runs blocks of text together, and takes tools that Anthropic itself runs for calls. Source:
Anthropic's API reference, "Streaming Messages".
"""

from __future__ import annotations

from typing import Any  # provider JSON

from agentor.engine import strictjson
from agentor.engine.models.accumulate import Pieces, joined

_ENDS = {  # stop_reason -> finish_reason; all others cut an answer off
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_GROWING = ("text", "thinking", "signature", "partial_json")


def finish_reason(stop_reason: str) -> str:
    """OpenAI's name for the end of an answer."""
    return _ENDS.get(stop_reason, "length")


class Blocks:
    """The content blocks of a streamed answer, from the stream's own events."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Take one event of the stream; one that is none of a block is passed over."""
        index = event.get("index")
        if event.get("type") == "content_block_start" and isinstance(index, int):
            self._blocks[index] = {
                key: Pieces([value]) if key in _GROWING else value
                for key, value in event["content_block"].items()
            }
        elif event.get("type") == "content_block_delta" and index in self._blocks:
            block, delta = self._blocks[index], event["delta"]
            if (citation := delta.get("citation")) is not None:
                block["citations"] = [*(block.get("citations") or []), citation]
            for name in _GROWING:
                if piece := delta.get(name):
                    block.setdefault(name, Pieces()).append(piece)

    def whole(self) -> list[dict[str, Any]]:
        """The blocks so far, in order; a call's arguments as the object that their text is."""
        return [_parsed(joined(self._blocks[index])) for index in sorted(self._blocks)]


def _parsed(block: dict[str, Any]) -> dict[str, Any]:
    if (text := block.pop("partial_json", None)) is not None:
        try:
            block["input"] = strictjson.loads(text)
        except ValueError:
            block["arguments"] = text  # for the tool to refuse, with the model's own words
    return block
