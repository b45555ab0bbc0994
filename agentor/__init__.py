"""agentor: agent runs that survive anything. Public names load on first use."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # for type checkers and editors; nothing is imported at run time
    from agentor.agent import Agentor as Agentor
    from agentor.engine.budget import Budget as Budget
    from agentor.engine.compaction import Summary as Summary
    from agentor.engine.decisions import Pending as Pending
    from agentor.engine.events import Event as Event
    from agentor.engine.models.litellm import LiteLLMModel as LiteLLMModel
    from agentor.engine.models.settings import ModelSettings as ModelSettings
    from agentor.engine.policy import Approve as Approve
    from agentor.engine.policy import Deny as Deny
    from agentor.engine.policy import Happened as Happened
    from agentor.engine.policy import NotHappened as NotHappened
    from agentor.engine.policy import Unknown as Unknown
    from agentor.engine.redact import Redactor as Redactor
    from agentor.engine.result import RunResult as RunResult
    from agentor.engine.store import FileStore as FileStore
    from agentor.engine.store import MemoryStore as MemoryStore
    from agentor.engine.store import SQLiteStore as SQLiteStore
    from agentor.engine.store.objects import ObjectStore as ObjectStore
    from agentor.engine.store.postgres import PostgresStore as PostgresStore
    from agentor.tools import Tool as Tool
    from agentor.tools import ToolContext as ToolContext
    from agentor.tools import function_tool as function_tool

_HOMES = {
    "Agentor": "agentor.agent",
    "Approve": "agentor.engine.policy",
    "Budget": "agentor.engine.budget",
    "Deny": "agentor.engine.policy",
    "Event": "agentor.engine.events",
    "FileStore": "agentor.engine.store",
    "Happened": "agentor.engine.policy",
    "LiteLLMModel": "agentor.engine.models.litellm",
    "MemoryStore": "agentor.engine.store",
    "ModelSettings": "agentor.engine.models.settings",
    "NotHappened": "agentor.engine.policy",
    "ObjectStore": "agentor.engine.store.objects",
    "Pending": "agentor.engine.decisions",
    "PostgresStore": "agentor.engine.store.postgres",
    "Redactor": "agentor.engine.redact",
    "RunResult": "agentor.engine.result",
    "SQLiteStore": "agentor.engine.store",
    "Summary": "agentor.engine.compaction",
    "Tool": "agentor.tools",
    "ToolContext": "agentor.tools",
    "Unknown": "agentor.engine.policy",
    "function_tool": "agentor.tools",
}

__all__ = [
    "Agentor",
    "Approve",
    "Budget",
    "Deny",
    "Event",
    "FileStore",
    "Happened",
    "LiteLLMModel",
    "MemoryStore",
    "ModelSettings",
    "NotHappened",
    "ObjectStore",
    "Pending",
    "PostgresStore",
    "Redactor",
    "RunResult",
    "SQLiteStore",
    "Summary",
    "Tool",
    "ToolContext",
    "Unknown",
    "function_tool",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("agentor")
    if name not in _HOMES:
        raise AttributeError(f"module 'agentor' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # the next look-up finds it at once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
