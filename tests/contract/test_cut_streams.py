"""A stream that stops anywhere before its end is never taken for an answer."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from scenarios import SCENARIOS, Scenario
from wire import Reply, Wire

from agentor import LiteLLMModel, ModelSettings
from agentor.engine.models.base import ModelResponse
from agentor.errors import ModelError

USER = [{"role": "user", "content": "x"}]
STREAMED = [s for s in SCENARIOS if s.name in ("parallel-calls-streamed", "one-call-streamed")]
OFFSETS = 24  # of each kind in each stream; their places change from run to run of the suite
STATUSES = {400, 401, 403, 404, 413, 422, 429}  # byte counts that stand in an error's text, and read as these


def body_of(scenario: Scenario) -> str:
    return str(yaml.safe_load(scenario.path.read_text())["interactions"][0]["response"]["body"]["string"])


async def answer(scenario: Scenario, reply: Reply) -> ModelResponse:
    with Wire([reply]) as wire:
        settings = ModelSettings(**scenario.provider.settings)
        url = wire.url + ("" if scenario.provider.name == "anthropic" else "/v1")
        model = LiteLLMModel(scenario.provider.model, api_key="k", base_url=url, settings=settings)
        chunks = [chunk async for chunk in model.stream(USER)]
    assert chunks[-1].final is not None
    return chunks[-1].final


@pytest.mark.parametrize("broken", [False, True], ids=["clean end", "broken connection"])
@pytest.mark.parametrize("scenario", STREAMED, ids=lambda s: s.provider.name)
async def test_a_stream_cut_at_any_byte_is_lost_or_whole(scenario: Scenario, broken: bool) -> None:
    text = body_of(scenario)
    data = text.encode()
    whole = await answer(scenario, Reply(text))
    seed = random.randrange(10**6)
    offsets = {*random.Random(seed).sample(range(1, len(data)), OFFSETS), *(STATUSES if broken else ())}
    for offset in sorted(offset for offset in offsets if offset < len(data)):
        cut: Any = Reply(text, cut=offset) if broken else Reply(data[:offset].decode("utf-8", "ignore"))
        try:
            got = await answer(scenario, cut)
        except ModelError as error:
            assert error.retryable, f"seed {seed}, byte {offset}: {error}"
        else:
            assert got.message == whole.message, f"seed {seed}, byte {offset}"
            assert got.finish_reason == whole.finish_reason, f"seed {seed}, byte {offset}"
