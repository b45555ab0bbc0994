"""Failed model calls: what is tried again, what goes to a fallback model, and what the log says of it."""

from __future__ import annotations

import pytest

from agentor import Agentor, LiteLLMModel, MemoryStore, ModelSettings, RunResult
from agentor.engine.events import Generation, Retry
from agentor.engine.policy import MAX_WAIT_S, retry_wait_s
from agentor.testing import ScriptedModel, call, error

QUICK = error("overloaded", retryable=True)


def ping() -> str:
    """Answer."""
    return "pong"


def retries(result: RunResult) -> list[tuple[int, str | None, str | None]]:
    return [(e.attempt, e.model, e.fallback) for e in result.events if isinstance(e, Retry)]


async def test_a_fallback_goes_on_with_the_same_run_and_every_attempt_is_in_the_log() -> None:
    first = ScriptedModel([call("ping"), QUICK], name="first")
    second = ScriptedModel(["unused", "from the second"], name="second")
    agent = Agentor("a", model=first, tools=[ping], fallback_models=[second], store=MemoryStore())
    result = await agent.arun("go")
    assert (result.status, result.final_output) == ("completed", "from the second")
    assert retries(result) == [
        (1, "first", None),
        (2, "first", None),
        (3, "first", None),
        (4, "first", "second"),
    ]
    assert [m["role"] for m in second.requests[0]["messages"]] == ["user", "assistant", "tool"]
    assert [e.model for e in result.events if isinstance(e, Generation)] == ["first", "second"]


async def test_an_error_that_would_come_again_goes_to_the_fallback_at_once() -> None:
    first = ScriptedModel([error("bad key")], name="first")
    agent = Agentor("a", model=first, fallback_models=[ScriptedModel(["ok"], name="second")])
    result = await agent.arun("go")
    assert (result.final_output, retries(result)) == ("ok", [(1, "first", "second")])
    assert len(first.requests) == 1


def two_models(store: MemoryStore, first: ScriptedModel, second: ScriptedModel) -> Agentor:
    return Agentor("a", model=first, tools=[ping], fallback_models=[second], store=store)


async def test_a_run_stays_with_its_fallback_also_when_it_is_resumed() -> None:
    def unasked(messages: object, tools: object) -> str:
        raise AssertionError("the first model was asked again")

    whole = MemoryStore()
    script = [call("ping"), call("ping"), "done"]
    first = ScriptedModel([error("down")], name="first")
    await two_models(whole, first, ScriptedModel(script, name="second")).arun("go", run_id="r")
    log = whole.load("r")
    place = next(n for n, e in enumerate(log) if isinstance(e, Retry))
    for cut in range(place + 1, len(log)):
        store = MemoryStore()
        for event in log[:cut]:
            store.append("r", event)
        again = two_models(store, ScriptedModel(unasked, name="first"), ScriptedModel(script, name="second"))
        resumed = await again.aresume("r")
        assert (resumed.status, resumed.final_output) == ("completed", "done")


async def test_a_run_that_failed_with_every_model_begins_with_the_first_one_again() -> None:
    store = MemoryStore()
    first = ScriptedModel([error("down")], name="first")
    failed = await two_models(store, first, ScriptedModel([error("bad key")], name="second")).arun("go")
    assert (failed.status, failed.error) == ("failed", "bad key")
    mended = two_models(store, ScriptedModel(["up"], name="first"), ScriptedModel(["no"], name="second"))
    assert (await mended.aresume(str(failed.run_id))).final_output == "up"


async def test_a_follow_up_asks_the_first_model_again() -> None:
    first = ScriptedModel([error("down"), "here again"], name="first")
    agent = Agentor(
        "a", model=first, fallback_models=[ScriptedModel(["ok"], name="second")], store=MemoryStore()
    )
    run = await agent.arun("go")
    assert run.run_id is not None
    assert (await agent.acontinue_run(run.run_id, "and?")).final_output == "here again"


async def test_a_run_fails_when_the_last_model_has_failed() -> None:
    models = [ScriptedModel([error(name)], name=name) for name in ("one", "two", "three")]
    result = await Agentor("a", model=models[0], fallback_models=models[1:]).arun("go")
    assert (result.status, result.error) == ("failed", "three")
    assert retries(result) == [(1, "one", "two"), (1, "two", "three")]


def test_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="twice: gpt-4o"):
        Agentor("a", model="gpt-4o", fallback_models=["gpt-4o"])
    with pytest.raises(TypeError, match="list of models"):
        Agentor("a", model="gpt-4o", fallback_models="o3-pi")
    with pytest.raises(TypeError, match="model"):
        Agentor("a", model="gpt-4o", fallback_models=[3])  # type: ignore[list-item]


def test_a_fallback_given_as_a_string_gets_the_settings_that_any_provider_takes() -> None:
    settings = ModelSettings(temperature=0.5, thinking={"type": "enabled"}, extra_headers={"x": "y"}, top_k=3)
    agent = Agentor(
        "a", model="anthropic/claude-sonnet-4-5", model_settings=settings, fallback_models=["gpt-4o"]
    )
    (fallback,) = agent._runs._spec.fallbacks
    assert isinstance(fallback, LiteLLMModel)
    assert fallback.params == {"temperature": 0.5, "drop_params": True}


def test_the_waits_grow_and_the_providers_own_wish_counts() -> None:
    def wait(attempt: int, after_s: float | None = None) -> float | None:
        return retry_wait_s(error("x", retryable=True, retry_after_s=after_s), attempt)

    assert [wait(n) for n in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, None]
    assert wait(1, 33.0) == 33.0
    assert wait(1, MAX_WAIT_S + 1) is None  # hours: better another model, or a resume
