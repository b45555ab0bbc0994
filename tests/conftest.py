"""Async tests run on a loop of their own; nothing else is shared."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine only.
settings.register_profile("agentor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("agentor")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a real S3 server; it starts once, and only if a test asks for it."""
    from servers import s3

    if reason := s3.missing():
        pytest.skip(reason)
    with s3.server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A real PostgreSQL server; it starts once, and only if a test asks for it."""
    from servers.postgres import postgres_or_skip

    server = postgres_or_skip(fsync="off")  # no test here cuts the power
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _imports_end_with_their_test() -> Iterator[None]:
    """LiteLLM's import on a thread must not meet the warning filters of another test."""
    yield
    for thread in threading.enumerate():
        if thread.name == "agentor-import":
            thread.join()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(_run(function(**{name: pyfuncitem.funcargs[name] for name in names})))
    return True


async def _run(test: Coroutine[Any, Any, None]) -> None:
    try:
        await test
    finally:
        # LiteLLM keeps its clients by event loop, and would leave this one's open.
        cleanup = sys.modules.get("litellm.llms.custom_httpx.async_client_cleanup")
        if cleanup is not None:
            await cleanup.close_litellm_async_clients()
