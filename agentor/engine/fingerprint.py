"""What an agent was when it wrote a segment, and what has changed since."""

from __future__ import annotations

from typing import Any  # a JSON object

from agentor.engine.calls import AgentSpec
from agentor.engine.messages import digest
from agentor.engine.transcript import Transcript


def fingerprint_of(spec: AgentSpec) -> dict[str, Any]:
    """Digests of the instructions and of each tool's schema."""
    tools = {name: tool.fingerprint[:16] for name, tool in sorted(spec.tools.items())}
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
    found += [f"tool {name!r}" for name in new if name in old and old[name] != new[name]]
    if t.model is not None and t.model not in spec.model_names:
        found.append(f"model {t.model!r} -> {spec.model_name!r}")
    return found
