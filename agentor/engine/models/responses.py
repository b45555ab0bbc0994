"""OpenAI's Responses API: requests and answers as JSON, both ways without loss.

Source: OpenAI's API reference, "Responses". The output items of an answer go back as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # items are provider JSON

from agentor.engine.messages import Message, raw_calls
from agentor.errors import ModelError

Item = dict[str, Any]
_RENAMED = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
_UNKNOWN = ("frequency_penalty", "presence_penalty", "seed", "stop")  # the API has none of these
_PARTS = {"text": "input_text", "image_url": "input_image", "file": "input_file"}
_RETRYABLE = ("server_error", "rate_limit_exceeded")  # codes of a response that failed


def parameters(params: dict[str, Any]) -> dict[str, Any]:
    """Settings under the names of this API.

    Raises:
        ValueError: a setting that this API does not have.
    """
    if unknown := [name for name in _UNKNOWN if name in params]:
        raise ValueError(
            f"{', '.join(unknown)}: OpenAI's Responses API has no such setting; leave it out, or ask the "
            "model over chat completions with ModelSettings(responses_route=False)"
        )
    out = {_RENAMED.get(name, name): value for name, value in params.items()}
    if (effort := out.pop("reasoning_effort", None)) is not None:
        own = effort if isinstance(effort, dict) else {"effort": effort}
        out["reasoning"] = {**(out.get("reasoning") or {}), **own}
    if (verbosity := out.pop("verbosity", None)) is not None:
        out["text"] = {**(out.get("text") or {}), "verbosity": verbosity}
    choice = out.get("tool_choice")
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        out["tool_choice"] = {"type": "function", "name": choice["function"].get("name")}
    return out


def tool_items(tools: Sequence[dict[str, Any]]) -> list[Item]:
    """Tools of the chat shape in this API's; `strict` is said, since its default is the other one."""
    return [
        {"type": "function", "strict": False, **tool["function"]} if "function" in tool else tool
        for tool in tools
    ]


def text_format(response_format: dict[str, Any]) -> dict[str, Any]:
    """A `response_format` of the chat shape as this API's `text.format`."""
    schema = response_format.get("json_schema")
    return {"type": "json_schema", **schema} if isinstance(schema, dict) else response_format


# --- the conversation ---------------------------------------------------------------------------


def input_items(messages: Sequence[Message]) -> list[Item]:
    """The conversation as input items."""
    out: list[Item] = []
    for message in messages:
        content = message.get("content")
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            out.append({"type": "function_call_output", "call_id": call_id, "output": _parts(content)})
        elif message["role"] != "assistant":
            out.append({"role": message["role"], "content": _parts(content)})
        elif message.get("response_items"):
            out += _whole(message)
        else:
            if content:
                out.append({"role": "assistant", "content": content})
            out += [_call_item(call) for call in raw_calls(message)]
    return out


def _parts(content: Any) -> Any:
    if not isinstance(content, list):
        return "" if content is None else content
    return [_part(part) if isinstance(part, dict) else part for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = _PARTS.get(str(part.get("type")))
    if kind == "input_text":
        return {"type": kind, "text": part.get("text", "")}
    if kind == "input_image":
        image = part["image_url"]
        image = {"url": image} if isinstance(image, str) else dict(image)
        return {"type": kind, "image_url": image.pop("url"), **image}
    if kind == "input_file":
        return {"type": kind, **part["file"]}
    return part


def _call_item(call: dict[str, Any]) -> Item:
    function = call["function"]
    return {
        "type": "function_call",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


# --- the answer ---------------------------------------------------------------------------------


def message_of(output: Sequence[Item]) -> dict[str, Any]:
    """The assistant message of an answer's output items; `response_items` can give them back."""
    text, refusal, calls, items = "", "", [], []
    texts = [part for item in output for part in _texts(item)]
    for item in output:
        kind = item.get("type")
        if kind == "function_call":
            function = {"name": item.get("name") or "", "arguments": item.get("arguments") or ""}
            calls.append({"id": item.get("call_id") or "", "type": "function", "function": function})
            items.append({k: v for k, v in item.items() if k not in ("call_id", "name", "arguments")})
            continue
        if kind == "message":
            parts = []
            for part in item.get("content") or ():
                if part.get("type") == "output_text":
                    text += part["text"]
                    if len(texts) == 1:  # it is `content` already, and stands there once
                        part = {k: v for k, v in part.items() if k != "text"}
                refusal += part.get("refusal") or ""
                parts.append(part)
            item = {**item, "content": parts}
        items.append(item)
    message: dict[str, Any] = {"role": "assistant", "response_items": items}
    if text or not calls:
        message["content"] = text
    if calls:
        message["tool_calls"] = calls
    if refusal:
        message["refusal"] = refusal
    return message


def _texts(item: Item) -> list[Item]:
    parts = item.get("content") or () if item.get("type") == "message" else ()
    return [part for part in parts if part.get("type") == "output_text"]


def _whole(message: Message) -> list[Item]:
    """The items of `message_of` again, as they came; a call's id is the conversation's."""
    calls, out = list(raw_calls(message)), []
    for item in message["response_items"]:
        if item.get("type") == "function_call":
            out.append({**item, **_call_item(calls.pop(0))} if calls else item)
        elif item.get("type") == "message":
            parts = []
            for part in item.get("content") or ():
                if part.get("type") == "output_text" and "text" not in part:
                    part = {**part, "text": message.get("content") or ""}
                parts.append(part)
            out.append({**item, "content": parts})
        elif item.get("type") != "reasoning" or item.get("encrypted_content") or item.get("content"):
            out.append(item)  # reasoning that the provider neither stores nor sent cannot be named
    return out


def ending(response: dict[str, Any], message: Message, model: str) -> tuple[str, str]:
    """How an answer ended: OpenAI's name for it in chat completions, and this API's own.

    Raises:
        ModelError: the response failed.
    """
    status = str(response.get("status") or "completed")
    if status == "incomplete":
        reason = str((response.get("incomplete_details") or {}).get("reason"))
        return ("content_filter" if reason == "content_filter" else "length"), reason
    if status != "completed":
        error = response.get("error") or {}
        code = str(error.get("code") or status)
        raise ModelError(
            f"the response ended as {status!r}: {error.get('message') or 'no reason was given'}",
            error_type=code,
            retryable=code in _RETRYABLE,
            model=model,
        )
    if message.get("refusal"):
        return "content_filter", "refusal"
    return ("tool_calls" if message.get("tool_calls") else "stop"), status


class Collected:
    """The events of a streamed response, until its end."""

    def __init__(self) -> None:
        self.response: dict[str, Any] | None = None
        self.error = ""
        self._items: list[Item] = []

    def add(self, event: dict[str, Any]) -> tuple[str, str]:
        """Take one event; returns the text and the reasoning that it brings."""
        kind = str(event.get("type"))
        if kind == "response.output_text.delta":
            return str(event.get("delta") or ""), ""
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            return "", str(event.get("delta") or "")
        if kind == "response.output_item.done":
            self._items.append(event["item"])
        elif kind == "error":
            said = event.get("error") or event
            self.error = str(said.get("message") or said.get("code") or "")
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self.response = event["response"]
            # OpenAI encrypts the reasoning anew in this last event; the items are what it gave first.
            if len(self._items) >= len(self.response.get("output") or ()):
                self.response["output"] = self._items
        return "", ""
