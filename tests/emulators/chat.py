"""OpenAI's chat completions, and the providers that speak them with differences."""

from __future__ import annotations

import json
import re
from typing import Any

from emulators.base import Emulator, Json, Refused, Step, Talk, known_keys, need, pieces, signature, sse

BODY = (
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "max_tokens",
    "stream",
    "stream_options",
    "response_format",
    "seed",
    "stop",
    "reasoning_effort",
)
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 12,
    "total_tokens": 32,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


class OpenAIChat(Emulator):
    name = "openai"
    path = "/v1"
    message_keys: tuple[str, ...] = ()  # more keys of an assistant message than OpenAI knows
    body_keys: tuple[str, ...] = ()
    call_id = r".{1,40}"
    reasoning = ""  # the key under which reasoning comes

    def answer(self, path: str, headers: dict[str, str], body: Json) -> Json | str:
        if path != f"{self.path}/chat/completions":
            raise Refused(404, f"no such path: {path}")
        if not headers.get("authorization"):
            raise Refused(401, "You didn't provide an API key.")
        known_keys("body", body, *BODY, *self.body_keys)
        talk = self._read(body["messages"])
        message = self._message(self.step(body, talk), len(talk.seen))
        reason = "tool_calls" if "tool_calls" in message else "stop"
        head: Json = {"id": f"chatcmpl-{len(self.requests):02d}", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return {**head, "object": "chat.completion", "choices": [choice], "usage": USAGE}
        head["object"] = "chat.completion.chunk"
        steps = [{"index": 0, "delta": d, "finish_reason": None} for d in self._deltas(message)]
        steps.append({"index": 0, "delta": {}, "finish_reason": reason})
        chunks = [{**head, "choices": [s]} for s in steps]
        return sse([*chunks, {**head, "choices": [], "usage": USAGE}], done=True)

    # --- the request ----------------------------------------------------------------------------

    def _read(self, messages: list[Json]) -> Talk:
        talk = Talk()
        for place, message in enumerate(messages):
            where = f"messages[{place}]"
            role = message["role"]
            if role == "assistant":
                known_keys(where, message, "role", "content", "tool_calls", *self.message_keys)
                calls = message.get("tool_calls") or []
                need(calls or message.get("content") is not None, f"{where}: content or tool_calls is needed")
                for one in calls:
                    known_keys(where, one, "id", "type", "function")
                    known_keys(where, one["function"], "name", "arguments")
                    need(
                        re.fullmatch(self.call_id, one["id"]), f"{where}: invalid tool call id {one['id']!r}"
                    )
                    need(
                        isinstance(one["function"]["arguments"], str), f"{where}: arguments must be a string"
                    )
                talk.assistant([one["id"] for one in calls])
                self._check(where, message)
            elif role == "tool":
                known_keys(where, message, "role", "content", "tool_call_id")
                talk.result(message["tool_call_id"])
            else:
                need(role in ("user", "system", "developer"), f"{where}: unknown role {role!r}")
                known_keys(where, message, "role", "content")
                if role == "user":
                    content = message["content"]
                    talk.user(content if isinstance(content, str) else content[-1]["text"])
        talk.end()
        return talk

    def _check(self, where: str, message: Json) -> None:
        """What this provider wants of an assistant message besides."""

    # --- the answer -----------------------------------------------------------------------------

    def _message(self, step: Step, known: int) -> Json:
        message: Json = {"role": "assistant", "content": None}
        calls: list[Json] = []
        for kind, *rest in step.parts:
            if kind == "text":
                message["content"] = (message["content"] or "") + rest[0]
            elif kind == "thinking" and self.reasoning:
                message[self.reasoning] = message.get(self.reasoning, "") + rest[0]
            elif kind == "call":
                function = {"name": rest[0], "arguments": json.dumps(rest[1], ensure_ascii=False)}
                calls.append(
                    {"id": self._new_id(known + len(calls) + 1), "type": "function", "function": function}
                )
        if calls:
            message["tool_calls"] = calls
        return message

    def _new_id(self, number: int) -> str:
        return f"call_{signature(self.name, number)[:24]}"

    def _deltas(self, message: Json) -> list[Json]:
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        if self.reasoning in message:
            deltas += [{self.reasoning: p} for p in pieces(message[self.reasoning])]
        deltas += [{"content": p} for p in pieces(message["content"] or "")]
        for index, one in enumerate(message.get("tool_calls") or []):
            function = {"name": one["function"]["name"], "arguments": ""}
            deltas.append({"tool_calls": [{**one, "index": index, "function": function}]})
            for piece in pieces(one["function"]["arguments"]):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        return deltas


class DeepSeek(OpenAIChat):
    """It wants the reasoning of the turns since the last user message back, where they call tools."""

    name = "deepseek"
    path = "/beta"
    message_keys = ("reasoning_content",)
    body_keys = ("thinking",)
    call_id = r".+"
    reasoning = "reasoning_content"

    def _check(self, where: str, message: Json) -> None:
        if message.get("tool_calls"):
            need("reasoning_content" in message, f"Missing `reasoning_content` field in {where}")


class Mistral(OpenAIChat):
    name = "mistral"
    call_id = r"[a-zA-Z0-9]{9}"
    body_keys = ("safe_prompt",)

    def _new_id(self, number: int) -> str:
        return signature(self.name, number)[:9]


class OpenRouter(OpenAIChat):
    """Reasoning comes with its signature in `reasoning_details`, and wants to go back in it."""

    name = "openrouter"
    path = "/api/v1"
    message_keys = ("reasoning_details", "reasoning")
    body_keys = ("usage", "reasoning", "include_reasoning")
    call_id = r"[a-zA-Z0-9_-]{1,64}"
    reasoning = "reasoning"

    def _message(self, step: Step, known: int) -> Json:
        message = super()._message(step, known)
        if text := message.get("reasoning"):
            sign = signature(self.name, text)
            detail = {"type": "reasoning.text", "text": text, "signature": sign, "index": 0}
            message["reasoning_details"] = [{**detail, "format": "anthropic-claude-v1"}]
        return message

    def _deltas(self, message: Json) -> list[Json]:
        deltas = [d for d in super()._deltas(message) if "reasoning" not in d]
        for detail in message.get("reasoning_details") or []:
            known: Json = {"type": detail["type"], "index": detail["index"], "format": detail["format"]}
            steps: list[dict[str, Any]] = [{"text": p} for p in pieces(detail["text"])]
            texts = [{"reasoning": s["text"], "reasoning_details": [{**known, **s}]} for s in steps]
            last = {"reasoning_details": [{**known, "signature": detail["signature"]}]}
            deltas[1:1] = [*texts, last]
        return deltas

    def _check(self, where: str, message: Json) -> None:
        for detail in message.get("reasoning_details") or []:
            need(detail["signature"] == signature(self.name, detail["text"]), f"{where}: invalid signature")
