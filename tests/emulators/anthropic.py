"""Anthropic's Messages API."""

from __future__ import annotations

import json
import re
from typing import Any

from emulators.base import Emulator, Json, Refused, Step, Talk, known_keys, need, pieces, signature, sse

BODY = (
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "temperature",
    "top_p",
    "stop_sequences",
    "stream",
    "metadata",
)
BLOCKS = {
    "text": ("type", "text", "cache_control"),
    "image": ("type", "source", "cache_control"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
    "tool_use": ("type", "id", "name", "input", "cache_control"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "cache_control"),
}


class Anthropic(Emulator):
    name = "anthropic"

    def answer(self, path: str, headers: dict[str, str], body: Json) -> Json | str:
        if path != "/v1/messages":
            raise Refused(404, f"no such path: {path}")
        if not headers.get("x-api-key"):
            raise Refused(401, "x-api-key header is required")
        need("anthropic-version" in headers, "anthropic-version: header is required")
        known_keys("body", body, *BODY)
        need(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
        thinking = (body.get("thinking") or {}).get("type") == "enabled"
        if thinking:
            need(body["thinking"]["budget_tokens"] < body["max_tokens"], "max_tokens must be greater")
        talk = self._read(body["messages"], thinking)
        return self._write(self.step(body, talk), body, thinking, len(talk.seen))

    def error(self, refused: Refused) -> Json:
        kind = "invalid_request_error" if refused.status < 429 else "overloaded_error"
        return {"type": "error", "error": {"type": kind, "message": refused.message}}

    # --- the request ----------------------------------------------------------------------------

    def _read(self, messages: list[Json], thinking: bool) -> Talk:
        talk = Talk()
        need(messages and messages[0]["role"] == "user", "messages: first message must use the user role")
        last_loop: list[list[Json]] = []  # the assistant turns with calls since the last prompt
        for place, message in enumerate(messages):
            where = f"messages.{place}"
            known_keys(where, message, "role", "content")
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            need(blocks, f"{where}: content must not be empty")
            for block in blocks:
                need(block.get("type") in BLOCKS, f"{where}: unknown block {block.get('type')}")
                known_keys(where, block, *BLOCKS[block["type"]])
                need(block["type"] != "text" or block["text"].strip(), f"{where}: text must be non-empty")
            if message["role"] == "assistant":
                self._assistant(where, blocks, talk)
                last_loop.append(blocks)
            else:
                need(message["role"] == "user", f"{where}: unexpected role {message['role']!r}")
                self._user(blocks, talk)
                if talk.answers == 0:
                    last_loop = []
        talk.end()
        for blocks in last_loop if thinking else []:
            starts = blocks[0]["type"] in ("thinking", "redacted_thinking")
            need(starts, "Expected `thinking` or `redacted_thinking`, but found `text` or `tool_use`")
        return talk

    def _assistant(self, where: str, blocks: list[Json], talk: Talk) -> None:
        for place, block in enumerate(blocks):
            if block["type"] == "thinking":
                valid = signature(self.name, blocks[:place], block["thinking"])
                need(block["signature"] == valid, f"{where}: Invalid `signature` in `thinking` block")
            elif block["type"] == "redacted_thinking":
                valid = signature(self.name, blocks[:place])
                need(block["data"] == valid, f"{where}: Invalid `data` in `redacted_thinking` block")
        ids = [b["id"] for b in blocks if b["type"] == "tool_use"]
        for call_id in ids:
            need(re.fullmatch(r"[a-zA-Z0-9_-]+", call_id), f"{where}: id: String should match pattern")
        talk.assistant(ids)

    def _user(self, blocks: list[Json], talk: Talk) -> None:
        results = [b for b in blocks if b["type"] == "tool_result"]
        need(blocks[: len(results)] == results, "tool_result blocks must come first")
        for block in results:
            talk.result(block["tool_use_id"])
        talk.end()  # all results of a turn stand in the one message after it
        texts = [b["text"] for b in blocks if b["type"] == "text"]
        if texts:
            talk.user(texts[-1])

    # --- the answer -----------------------------------------------------------------------------

    def _write(self, step: Step, body: Json, thinking: bool, known: int) -> Json | str:
        blocks: list[Json] = []
        for kind, *rest in step.parts:
            if kind == "text":
                blocks.append({"type": "text", "text": rest[0]})
            elif kind == "thinking" and thinking:
                sign = signature(self.name, blocks, rest[0])
                blocks.append({"type": "thinking", "thinking": rest[0], "signature": sign})
            elif kind == "redacted" and thinking:
                blocks.append({"type": "redacted_thinking", "data": signature(self.name, blocks)})
            elif kind == "call":
                call_id = f"toolu_{known + sum(b['type'] == 'tool_use' for b in blocks) + 1:02d}"
                blocks.append({"type": "tool_use", "id": call_id, "name": rest[0], "input": rest[1]})
        reason = "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"
        message = {
            "id": f"msg_{len(self.requests):02d}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": blocks,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 20, "output_tokens": 12, "cache_read_input_tokens": 4},
        }
        return sse(_events(message), named=True) if body.get("stream") else message


def _events(message: Json) -> list[Json]:
    start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        empty, deltas = _deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 12}})
    return [*events, {"type": "message_stop"}]


def _deltas(block: Json) -> tuple[Json, list[Json]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(block["text"])]
    if block["type"] == "thinking":
        thought: list[Any] = [{"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"])]
        sign = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*thought, sign]
    if block["type"] == "tool_use":
        text = json.dumps(block["input"], ensure_ascii=False)
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in pieces(text)]
    return block, []
