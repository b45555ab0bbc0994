"""What a recorded conversation with a provider holds: the tool results, the final text, the usage."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from agentor import LiteLLMModel, ModelSettings, Tool, ToolContext

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "tapes"
ROUTES = {  # (provider, api) -> LiteLLM's prefix and the path of its base URL
    ("anthropic", "messages"): ("anthropic", ""),
    ("cerebras", "chat"): ("cerebras", "/v1"),
    ("cohere", "chat"): ("cohere_chat", "/v2/chat"),
    ("deepseek", "chat"): ("deepseek", ""),
    ("gemini", "generateContent"): ("gemini", "/v1beta"),
    ("groq", "chat"): ("groq", "/openai/v1"),
    ("mistral", "chat"): ("mistral", "/v1"),
    ("openrouter", "chat"): ("openrouter", "/api/v1"),
}


def tape_server() -> Any:
    """The module that plays tapes; it lies beside them."""
    spec = importlib.util.spec_from_file_location("tape_server", FOLDER / "tape_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_for(tape: dict[str, Any], base: str) -> LiteLLMModel:
    provider, api = tape["provider"], tape["api"]
    prefix, path = ROUTES.get((provider, api), ("openai", "/v1"))
    settings = ModelSettings(max_tokens=64, responses_route=api == "responses")
    model = f"{prefix}/{tape['model']}"
    return LiteLLMModel(model, api_key="test-key", base_url=base + path, settings=settings)


def tools_of(tape: dict[str, Any]) -> list[Tool]:
    """The tools that the tape's model calls; each gives what the real one gave, and may run again."""
    calls = [_calls(tape, _whole(tape, n)) for n in range(len(tape["responses"]))]
    results = [_results(tape["requests"][n]) for n in range(len(tape["requests"]))]
    names = {name for turn in calls for _, name in turn}

    def give(ctx: ToolContext, args: dict[str, Any]) -> str:
        after = results[ctx.turn] if ctx.turn < len(results) else {}
        if ctx.call_id in after:
            return after[ctx.call_id]
        in_order = list(after.values())[-len(calls[ctx.turn - 1]) :]
        index = ctx.call_id.rpartition("_")[2]
        return in_order[int(index)] if index.isdigit() and int(index) < len(in_order) else "42"

    schema = {"type": "object", "properties": {}}
    return [
        Tool(name=n, description=n, parameters=schema, invoke=give, on_crash="retry") for n in sorted(names)
    ]


def final_text(tape: dict[str, Any]) -> str:
    """The text of the last answer, empty where it is a call."""
    last = _whole(tape, len(tape["responses"]) - 1)
    if tape["api"] == "messages":
        return "".join(b["text"] for b in last["content"] if b["type"] == "text")
    if tape["api"] == "responses":
        parts = [p for item in last["output"] if item["type"] == "message" for p in item["content"]]
        return "".join(p["text"] for p in parts if p["type"] == "output_text")
    if tape["api"] == "generateContent":
        parts = last["candidates"][0]["content"].get("parts", [])
        return "".join(p.get("text", "") for p in parts if not p.get("thought"))
    message = last["message"] if "message" in last else last["choices"][0]["message"]
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)


def used(tape: dict[str, Any], answer: int) -> tuple[int, int]:
    """The tokens in and out that the provider reported for one answer."""
    whole = _whole(tape, answer)
    usage = whole.get("usage") or whole.get("usageMetadata") or {}
    if tape["api"] == "generateContent":
        out = usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)
        return usage["promptTokenCount"], out
    if tape["provider"] == "cohere":
        return usage["tokens"]["input_tokens"], usage["tokens"]["output_tokens"]
    if tape["api"] == "chat":
        return usage["prompt_tokens"], usage["completion_tokens"]
    cached = 0
    if tape["api"] == "messages":
        cached = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    return usage["input_tokens"] + cached, usage["output_tokens"]


def _whole(tape: dict[str, Any], n: int) -> dict[str, Any]:
    """An answer as one JSON object; of a stream, what its events add up to."""
    body = tape["responses"][n]["body"]
    if not isinstance(body, str):
        return dict(body)
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    if tape["api"] == "responses":
        return dict(next(e["response"] for e in events if e["type"] == "response.completed"))
    calls: dict[int, dict[str, Any]] = {}
    text, usage = "", {}
    for event in events:
        usage = event.get("usage") or usage
        for choice in event.get("choices", []):
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or []:
                calls.setdefault(call["index"], call)
    message = {"content": text, "tool_calls": list(calls.values())}
    return {"choices": [{"message": message}], "usage": usage}


def _calls(tape: dict[str, Any], whole: dict[str, Any]) -> list[tuple[str, str]]:
    """(id, tool) of each call of an answer."""
    if tape["api"] == "messages":
        return [(b["id"], b["name"]) for b in whole["content"] if b["type"] == "tool_use"]
    if tape["api"] == "responses":
        return [(i["call_id"], i["name"]) for i in whole["output"] if i["type"] == "function_call"]
    if tape["api"] == "generateContent":
        parts = whole["candidates"][0]["content"].get("parts", [])
        return [("", p["functionCall"]["name"]) for p in parts if "functionCall" in p]
    message = whole["message"] if "message" in whole else whole["choices"][0]["message"]
    return [(c["id"], c["function"]["name"]) for c in message.get("tool_calls") or []]


def _results(request: dict[str, Any]) -> dict[str, str]:
    """The tool results in a request, by call id, in their order."""
    found: dict[str, Any] = {}
    for item in request.get("input") or []:
        if isinstance(item, dict) and item.get("type") == "function_call_output":
            found[item["call_id"]] = item["output"]
    for message in request.get("messages") or request.get("contents") or []:
        if message.get("role") == "tool":
            found[message["tool_call_id"]] = message["content"]
        parts = message.get("parts") or message.get("content")
        for part in parts if isinstance(parts, list) else []:
            if part.get("type") == "tool_result":
                found[part["tool_use_id"]] = part["content"]
            elif "functionResponse" in part:
                answer = part["functionResponse"]
                found[answer.get("id") or str(len(found))] = answer["response"]
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in found.items()}
