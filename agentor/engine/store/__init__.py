"""Stores: where the logs of runs are kept."""

from agentor.engine.store.base import Store
from agentor.engine.store.file import FileStore
from agentor.engine.store.memory import MemoryStore
from agentor.engine.store.sqlite import SQLiteStore

__all__ = ["FileStore", "MemoryStore", "SQLiteStore", "Store"]
