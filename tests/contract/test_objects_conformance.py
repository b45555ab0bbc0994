"""`ObjectStore` on a real S3 server, and in memory, against the suite that ships with the package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from servers import s3

from agentor.engine.store.objects import ObjectStore
from agentor.testing.conformance import StoreConformance


class TestObjectStoreOnS3(StoreConformance):
    @pytest.fixture
    def open_store(self, s3_endpoint: str) -> Callable[[], Any]:
        return functools.partial(ObjectStore, s3.fresh_url(), **s3.options(s3_endpoint))


class TestObjectStoreInMemory(StoreConformance):
    shared = False

    @pytest.fixture
    def open_store(self) -> Callable[[], Any]:
        one = ObjectStore("memory://")
        return lambda: one
