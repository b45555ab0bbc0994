"""A model call that takes longer than it may is given up and tried again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from emulators.chat import OpenAIChat

from agentor import Agentor, MemoryStore, ModelSettings
from agentor.engine.events import Retry


class Hanging(OpenAIChat):
    """Answers nothing to the first request until the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()
        self._first = threading.Lock()

    def answer(self, path: str, headers: dict[str, str], body: Any) -> Any:
        if self._first.acquire(blocking=False):
            self.over.wait(60)
        return super().answer(path, headers, body)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_beyond_timeout_s_is_a_retry_that_the_log_has(stream: bool) -> None:
    with Hanging() as server:
        agent = Agentor(
            "a",
            model="openai/gpt-4o-mini",
            api_key="x",
            base_url=server.url,
            store=MemoryStore(),
            model_settings=ModelSettings(timeout_s=0.5),
        )
        if stream:
            _ = [event async for event in agent.astream("Say hello.", run_id="r")]
            result = await agent.aresume("r")
        else:
            result = await agent.arun("Say hello.", run_id="r")
        server.over.set()
    (retry,) = [event for event in result.events if isinstance(event, Retry)]
    assert result.status == "completed", result.error
    assert "Timeout" in str(retry.error_type)
    assert 0.4 < (retry.elapsed or 0) < 30
