"""`PostgresStore` on a real server: the conformance suite, and what it promises besides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from servers.postgres import PostgresServer, postgres_or_skip

from agentor.engine.store.postgres import PostgresStore
from agentor.testing.conformance import StoreConformance


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = postgres_or_skip(fsync="off")
    yield server
    server.close()


@pytest.fixture
def dsn(server: PostgresServer) -> str:
    return server.new_database()


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def open_store(self, dsn: str) -> Callable[[], Any]:
        return functools.partial(PostgresStore, dsn)
