"""What was said, as the JSON of the conventions: whole, or cut inside its texts, and always valid."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any  # messages are provider JSON

from agentor.engine import strictjson
from agentor.engine.messages import Message, parsed_arguments

MAX_PART_BYTES = 32 * 1024  # of one text, argument or result
MAX_ATTRIBUTE_BYTES = 256 * 1024
SHORT = 256  # bytes of arguments that are shown a second time, beside their result
_SHORTEST = 64  # bytes that a text is cut to, before whole items are left out
_NOTE_BYTES = 60  # of the note that says how much was cut
_FINISH = {
    "tool_calls": "tool_call",
    "tool_use": "tool_call",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
}
_MODALITIES = ("image", "audio", "video")


def finish_reason(reason: str | None, failed: bool) -> str:
    """The convention's word for how an answer ended."""
    if failed or reason is None:
        return "error" if failed else "stop"
    return _FINISH.get(reason, reason)


def instructions(text: str) -> list[dict[str, Any]]:
    """`gen_ai.system_instructions`."""
    return [{"type": "text", "content": text}]


def message(said: Message, shown: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One message in the convention's shape.

    Args:
        shown: What stands in place of a result, by call id, that another span has.
    """
    role = str(said.get("role", "user"))
    if role == "tool":
        call_id = said.get("tool_call_id")
        elsewhere = (shown or {}).get(str(call_id))
        response = _plain(said.get("content")) if elsewhere is None else elsewhere
        return {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": call_id, "response": response}],
        }
    parts: list[dict[str, Any]] = []
    if isinstance(reasoning := said.get("reasoning_content"), str) and reasoning:
        parts.append({"type": "reasoning", "content": reasoning})
    content = said.get("content")
    if isinstance(content, str) and content:
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += [_part(block) for block in content]
    parts += [_call(call) for call in said.get("tool_calls") or []]
    return {"role": "system" if role == "developer" else role, "parts": parts}


def _plain(content: Any) -> Any:
    if isinstance(content, list) and all(isinstance(b, dict) and b.get("type") == "text" for b in content):
        return "".join(str(b.get("text", "")) for b in content)
    return content


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    return {
        "type": "tool_call",
        "id": call.get("id"),
        "name": function.get("name") or "",
        "arguments": parsed(function.get("arguments")),
    }


def parsed(arguments: Any) -> Any:
    """Arguments as JSON; the raw text where it is none."""
    return parsed_arguments(arguments) if isinstance(arguments, str) else arguments


def structured(result: str) -> Any:
    """A result that is a JSON object or list as what it is; any other text as the text."""
    if result[:1] not in ("{", "["):
        return result
    value = parsed(result)
    return value if isinstance(value, dict | list) else result


def last_text(sent: str | None) -> str | None:
    """The last text in messages that are JSON already."""
    texts: list[str] = []
    said = [] if sent is None else strictjson.loads(sent)
    for one in said if isinstance(said, list) else []:
        parts = one.get("parts") if isinstance(one, dict) else None  # a redactor may have put anything there
        texts += [p["content"] for p in parts or [] if isinstance(p, dict) and p.get("type") == "text"]
    return str(texts[-1]) if texts else None


def _part(block: Any) -> dict[str, Any]:
    if not isinstance(block, dict):
        return {"type": "text", "content": str(block)}
    kind = str(block.get("type", "text"))
    if kind == "text" or kind in ("input_text", "output_text"):
        return {"type": "text", "content": str(block.get("text", ""))}
    if kind == "thinking":
        return {"type": "reasoning", "content": str(block.get("thinking", ""))}
    modality = next((m for m in _MODALITIES if kind.startswith((m, f"input_{m}"))), None)
    if modality is None:
        return {"type": kind}  # signed, encrypted or unknown: nothing to read
    source = block.get(kind, block)
    url = source.get("url") if isinstance(source, dict) else source
    if isinstance(url, str) and not url.startswith("data:"):
        return {"type": "uri", "modality": modality, "uri": url}
    mime = url[5:].split(";")[0] if isinstance(url, str) else None
    return {"type": "blob", "modality": modality, "mime_type": mime, "content": ""}  # the log has it


class Fitted:
    """JSON texts that keep within a span's limits; it remembers whether it had to cut.

    Args:
        limit_bytes: Of one attribute.
    """

    def __init__(self, limit_bytes: int = MAX_ATTRIBUTE_BYTES) -> None:
        self._limit = limit_bytes
        self.cut = False
        self.whole_bytes = 0  # of all texts before they were cut

    def text(self, value: str) -> str:
        """A text as it is, or cut at its end."""
        size = len(value.encode("utf-8", "replace"))
        self.whole_bytes += size
        limit = min(self._limit, MAX_PART_BYTES)
        if size <= limit:
            return clean(value)
        self.cut = True
        fitted = clean(str(_cut(value, max(limit - _NOTE_BYTES, 0))))
        return fitted if len(fitted.encode()) <= limit else clean(value)[: limit // 4]

    def json(self, value: Any) -> str:
        """The value as JSON text, with its longest texts cut and then its first items left out."""
        text = _dumps(value)
        size = len(text.encode())
        self.whole_bytes += size
        if size <= min(self._limit, MAX_PART_BYTES):
            return text
        keep = MAX_PART_BYTES
        if len(_dumps(_cut(value, _SHORTEST)).encode()) > self._limit:
            keep = _SHORTEST  # so many texts that not even short ones find room
        while True:
            fitted = _dumps(_cut(value, keep))
            if len(fitted.encode()) <= self._limit:
                self.cut = self.cut or fitted != text
                return fitted
            if keep > _SHORTEST:
                keep //= 2
            elif isinstance(value, list) and len(value) > 1:
                value = value[len(value) // 2 :]
            else:
                self.cut = True
                return _dumps(f"[{size} bytes left out]") if self._limit >= 32 else '""'


def _cut(value: Any, keep: int) -> Any:
    """A copy in which no text is longer than `keep` bytes."""
    if isinstance(value, str):
        data = value.encode("utf-8", "replace")
        if len(data) <= keep:
            return value
        return data[:keep].decode("utf-8", "ignore") + f"… [{len(data) - keep} of {len(data)} bytes cut]"
    if isinstance(value, Mapping):
        small = {key: _cut(item, keep) for key, item in value.items()}
        inner = value.get("arguments", value.get("response"))
        if isinstance(inner, dict | list) and len(_dumps(inner)) > keep:
            name = "arguments" if "arguments" in value else "response"
            small[name] = _cut(_dumps(inner), keep)
        return small
    if isinstance(value, list):
        return [_cut(item, keep) for item in value]
    return value


def _dumps(value: Any) -> str:
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def clean(text: str) -> str:
    """A text that can be sent: half of a surrogate pair would make a whole batch unsendable."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def messages(said: Sequence[Message], shown: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """`gen_ai.input.messages`."""
    return [message(one, shown) for one in said]
