"""The names that users rely on."""

from __future__ import annotations

import importlib

import pytest

import agentor

PUBLIC = [
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


def test_the_public_names_are_exactly_these() -> None:
    assert agentor.__all__ == PUBLIC == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_loads(name: str) -> None:
    assert getattr(agentor, name).__doc__


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("agentor", "Agentor"),
        ("agentor", "function_tool"),
        ("agentor.engine.store", "FileStore"),
        ("agentor.engine.store", "MemoryStore"),
        ("agentor.engine.store", "Store"),
        ("agentor.engine.events", "Event"),
    ],
)
def test_names_that_agentor_0_1_documents_stay_importable(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        agentor.nonsense  # noqa: B018
    assert agentor.__version__
