"""OpenAI's Responses API, with nothing stored."""

from __future__ import annotations

import json
import re
from typing import Any

from emulators.base import Emulator, Json, Refused, Step, Talk, known_keys, need, pieces, signature, sse

BODY = (
    "model",
    "input",
    "instructions",
    "include",
    "store",
    "stream",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "temperature",
    "top_p",
    "max_output_tokens",
    "metadata",
)
ITEMS = {
    "message": ("type", "id", "role", "status", "phase", "content"),
    "reasoning": ("type", "id", "summary", "content", "encrypted_content", "status"),
    "function_call": ("type", "id", "call_id", "name", "arguments", "status"),
    "function_call_output": ("type", "id", "call_id", "output", "status"),
}
USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 32,
}


class OpenAIResponses(Emulator):
    name = "openai"
    path = "/v1"

    def answer(self, path: str, headers: dict[str, str], body: Json) -> Json | str:
        if path != "/v1/responses":
            raise Refused(404, f"no such path: {path}")
        if not headers.get("authorization"):
            raise Refused(401, "You didn't provide an API key.")
        known_keys("body", body, *BODY)
        need(body.get("store") is False, "this emulator stores nothing")
        talk = self._read(body["input"])
        step = self.step(body, talk)
        encrypted = "reasoning.encrypted_content" in body.get("include", ())
        output = self._output(step, encrypted, len(talk.seen))
        response: Json = {
            "id": f"resp_{len(self.requests):02d}",
            "object": "response",
            "created_at": 1,
            "model": body["model"],
            "status": "completed",
            "output": output,
            "usage": USAGE,
        }
        return sse(_events(response), named=True) if body.get("stream") else response

    # --- the request ----------------------------------------------------------------------------

    def _read(self, items: list[Json]) -> Talk:
        talk = Talk()
        group: list[str] = []  # calls of the answer being read
        reasons: set[str] = set()
        open_reasoning = ""
        for place, item in enumerate(items):
            where = f"input[{place}]"
            kind = item.get("type", "message")
            need(kind in ITEMS, f"{where}: unknown type {kind!r}")
            known_keys(where, item, *ITEMS[kind])
            if kind == "reasoning":
                self._reasoning(where, item)
                open_reasoning = item["id"]
                reasons.add(item["id"])
                continue
            if kind == "function_call":
                need(re.fullmatch(r".{1,64}", item["call_id"]), f"{where}: call_id is too long")
                owner = item.get("id", "").rpartition("-")[2] if "-" in item.get("id", "") else None
                need(owner is None or owner in reasons, f"{where}: without its required 'reasoning' item")
                group.append(item["call_id"])
                open_reasoning = ""
                continue
            if group:
                talk.assistant(group)
                group = []
            if kind == "function_call_output":
                talk.result(item["call_id"])
            elif item["role"] == "assistant":
                open_reasoning = ""
                last = items[place + 1].get("type") if place + 1 < len(items) else None
                if last not in ("function_call", "reasoning"):
                    talk.assistant([])
            elif item["role"] == "user":
                content = item["content"]
                talk.user(content if isinstance(content, str) else content[-1]["text"])
        need(
            not open_reasoning,
            f"Item {open_reasoning!r} of type 'reasoning' was provided without its required following item.",
        )
        if group:
            talk.assistant(group)
        talk.end()
        return talk

    def _reasoning(self, where: str, item: Json) -> None:
        need(
            item.get("encrypted_content"),
            f"Item with id {item['id']!r} not found. Items are not persisted when `store` is set to false.",
        )
        valid = signature(self.name, item["id"], item["summary"])
        need(item["encrypted_content"] == valid, f"{where}: the encrypted content could not be verified")

    # --- the answer -----------------------------------------------------------------------------

    def _output(self, step: Step, encrypted: bool, known: int) -> list[Json]:
        output: list[Json] = []
        number = len(self.requests)
        reasoning = ""
        for place, (kind, *rest) in enumerate(step.parts):
            if kind == "thinking" and encrypted:
                reasoning = f"rs_{number:02d}{place}"
                summary = [{"type": "summary_text", "text": rest[0]}]
                secret = signature(self.name, reasoning, summary)
                item = {"type": "reasoning", "id": reasoning, "summary": summary, "encrypted_content": secret}
                output.append(item)
            elif kind == "text":
                part = {"type": "output_text", "text": rest[0], "annotations": []}
                head = {"type": "message", "id": f"msg_{number:02d}{place}", "role": "assistant"}
                output.append({**head, "status": "completed", "content": [part]})
            elif kind == "call":
                known += 1
                call: dict[str, Any] = {"type": "function_call", "id": f"fc_{number:02d}{place}"}
                if reasoning:
                    call["id"] += f"-{reasoning}"
                call |= {"call_id": f"call_{known:02d}", "name": rest[0], "status": "completed"}
                output.append({**call, "arguments": json.dumps(rest[1], ensure_ascii=False)})
        return output


def _events(response: Json) -> list[Json]:
    begin = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begin}]
    for index, item in enumerate(response["output"]):
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        where = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            for piece in pieces(item["content"][0]["text"]):
                text = {
                    "type": "response.output_text.delta",
                    "content_index": 0,
                    "delta": piece,
                    "logprobs": [],
                }
                events.append({**text, **where})
        if item["type"] == "reasoning":
            for piece in pieces(item["summary"][0]["text"]):
                thought = {
                    "type": "response.reasoning_summary_text.delta",
                    "summary_index": 0,
                    "delta": piece,
                }
                events.append({**thought, **where})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": response})
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]
