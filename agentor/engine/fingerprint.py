"""What an agent was when it wrote a segment, and what has changed since, in words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any  # JSON schemas

from agentor.engine.calls import AgentSpec
from agentor.engine.messages import digest
from agentor.engine.transcript import Transcript
from agentor.errors import AgentChanged, AgentChangedWarning


def fingerprint_of(spec: AgentSpec) -> dict[str, Any]:
    """Digests of the instructions and of each tool's schema, with the kinds of its arguments."""
    tools = {
        name: {"hash": tool.fingerprint[:16], "arguments": _arguments(tool.parameters)}
        for name, tool in sorted(spec.tools.items())
    }
    return {"instructions": digest(spec.instructions)[:16], "tools": tools}


def changes(spec: AgentSpec, t: Transcript) -> list[str]:
    """How this agent differs from the one that wrote the run, for people."""
    if not t.fingerprint:
        return []
    now, then = fingerprint_of(spec), t.fingerprint
    found = ["its instructions"] if now["instructions"] != then.get("instructions") else []
    old, new = then.get("tools") or {}, now["tools"]
    found += [f"tool {name!r} is gone" for name in old if name not in new]
    found += [f"tool {name!r} is new" for name in new if name not in old]
    for name in new:
        if name in old and _hash(old[name]) != new[name]["hash"]:
            found.append(f"tool {name!r}{_difference(old[name], new[name])}")
    if t.model is not None and t.model not in spec.model_names:
        found.append(f"model {t.model!r} -> {spec.model_name!r}")
    return found


def refuse_change(spec: AgentSpec, run_id: str, t: Transcript, *, goes_on: bool) -> None:
    """Nothing, where this agent may go on with the run.

    Args:
        goes_on: Open calls go on; a new message would put them aside.

    Raises:
        AgentChanged: its tools lack one that an open call needs; or by `on_change="refuse"`.
    """
    had = (t.fingerprint or {}).get("tools") or {}
    missing = sorted({c.call.name for c in t.open_calls if c.call.name in had} - set(spec.tools))
    if goes_on and missing:
        what = f"open calls need the tool(s) {', '.join(missing)}, which this agent has not"
        raise AgentChanged(run_id, what, "give it the tool(s), or fork the run with a new message")
    if spec.on_change == "refuse" and (found := changes(spec, t)):
        how = "use the agent that wrote it, or on_change='warn'"
        raise AgentChanged(run_id, f"it was written by another agent: {'; '.join(found)}", how)


def warn_of_change(spec: AgentSpec, run_id: str, t: Transcript) -> None:
    """Say what differs, by `on_change="warn"`."""
    if spec.on_change == "warn" and (found := changes(spec, t)):
        text = f"run {run_id!r} goes on under a changed agent: {'; '.join(found)}"
        warnings.warn(text, AgentChangedWarning, stacklevel=3)


def _arguments(parameters: Mapping[str, Any]) -> dict[str, str]:
    required = parameters.get("required") or []
    return {
        name: _kind(schema) + ("" if name in required else ", optional")
        for name, schema in (parameters.get("properties") or {}).items()
    }


def _kind(schema: Any) -> str:
    """A schema in a word or two: enough to see what changed."""
    if not isinstance(schema, Mapping):
        return "anything"
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(_kind(one) for one in schema[choice])
    kind = schema.get("type") or ("object" if "$ref" in schema or "properties" in schema else "anything")
    kind = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
    return f"array of {_kind(schema['items'])}" if kind == "array" and "items" in schema else kind


def _hash(tool: Any) -> Any:
    return tool.get("hash") if isinstance(tool, Mapping) else tool


def _difference(old: Any, new: Mapping[str, Any]) -> str:
    before = old.get("arguments") if isinstance(old, Mapping) else None
    if before is None:
        return ""
    now = new["arguments"]
    said = [f"argument {name!r} is gone" for name in before if name not in now]
    said += [f"argument {name!r} is new: {now[name]}" for name in now if name not in before]
    said += [
        f"argument {name!r} was {before[name]}, is {now[name]}"
        for name in now
        if name in before and before[name] != now[name]
    ]
    return ": " + ", ".join(said or ["its description"])
