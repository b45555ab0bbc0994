"""Google's generateContent."""

from __future__ import annotations

import base64
from typing import Any

from emulators.base import Emulator, Json, Refused, Step, Talk, known_keys, need, pieces, signature, sse

BODY = (
    "contents",
    "systemInstruction",
    "system_instruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
)
PARTS = ("text", "thought", "thoughtSignature", "functionCall", "function_call", "functionResponse")
PARTS = (*PARTS, "function_response", "inlineData", "inline_data")
# Google's documented word for a call that another model made.
ANY_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
USAGE = {"promptTokenCount": 20, "candidatesTokenCount": 8, "thoughtsTokenCount": 4, "totalTokenCount": 32}


class Gemini(Emulator):
    name = "gemini"
    path = "/v1alpha"

    def answer(self, path: str, headers: dict[str, str], body: Json) -> Json | str:
        model, _, method = path.partition("?")[0].removeprefix("/v1alpha/models/").partition(":")
        if method not in ("generateContent", "streamGenerateContent"):
            raise Refused(404, f"no such path: {path}")
        need(headers.get("x-goog-api-key"), "API key not valid. Please pass a valid API key.")
        known_keys("body", body, *BODY)
        step = self.step(body, self._read(body["contents"]))
        whole = {
            "modelVersion": model,
            "responseId": f"resp-{len(self.requests):02d}",
            "usageMetadata": USAGE,
        }
        parts = self._parts(step)
        if method == "generateContent":
            return {**whole, "candidates": [_candidate(parts, end=True)]}
        return sse([{**whole, "candidates": [c]} for c in _chunks(parts)])

    def error(self, refused: Refused) -> Json:
        return {"error": {"code": refused.status, "message": refused.message, "status": "FAILED"}}

    def _read(self, contents: list[Json]) -> Talk:
        talk = Talk()
        number = 0
        for place, content in enumerate(contents):
            known_keys(f"contents[{place}]", content, "role", "parts")
            need(content["parts"], "contents.parts must not be empty")
            for part in content["parts"]:
                known_keys(f"contents[{place}].parts", part, *PARTS)
                need(set(part) - {"thought", "thoughtSignature"}, "a part must have data")
            calls = [p for p in content["parts"] if "functionCall" in p or "function_call" in p]
            results = [p for p in content["parts"] if "functionResponse" in p or "function_response" in p]
            if content["role"] == "model":
                self._signed(content["parts"], calls)
                ids = [
                    f"{number + n} {_get(p, 'function_call', 'functionCall')['name']}"
                    for n, p in enumerate(calls)
                ]
                number += len(ids)
                talk.assistant(ids)
            elif results:
                need(
                    len(results) == len(talk.calls), "as many function responses as function calls are needed"
                )
                for part in results:
                    name = _get(part, "function_response", "functionResponse")["name"]
                    talk.result(next((c for c in talk.calls if c.endswith(f" {name}")), name))
            if content["role"] == "user" and (texts := [p["text"] for p in content["parts"] if "text" in p]):
                talk.user(texts[-1])
        talk.end()
        return talk

    def _signed(self, parts: list[Json], calls: list[Json]) -> None:
        for part in parts:
            given = part.get("thoughtSignature")
            if call := part.get("functionCall") or part.get("function_call"):
                needed = calls[0] is part  # the first call of a step carries the signature
                valid = signature(self.name, call["name"], call["args"])
                need(
                    given in (valid, ANY_SIGNATURE) or not (needed or given),
                    "Function call is missing a valid thought_signature",
                )
            elif given:
                need(given == signature(self.name, part["text"]), "Corrupted thought signature.")

    def _parts(self, step: Step) -> list[Json]:
        parts: list[Json] = []
        signed = False
        for kind, *rest in step.parts:
            if kind == "thinking":
                parts.append({"text": rest[0], "thought": True})
            elif kind == "text":
                parts.append({"text": rest[0]})
            elif kind == "call":
                part: Json = {"functionCall": {"name": rest[0], "args": rest[1]}}
                if not signed:
                    part["thoughtSignature"] = signature(self.name, rest[0], rest[1])
                signed = True
                parts.append(part)
        return parts


def _get(part: Json, *names: str) -> Any:
    return next(part[name] for name in names if name in part)


def _candidate(parts: list[Json], *, end: bool) -> Json:
    content = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {**content, "finishReason": "STOP"} if end else content


def _chunks(parts: list[Json]) -> list[Json]:
    small: list[list[Json]] = []
    for part in parts:
        small += [[{**part, "text": p}] for p in pieces(part["text"])] if "text" in part else [[part]]
    return [*[_candidate(p, end=False) for p in small], _candidate([{"text": ""}], end=True)]
