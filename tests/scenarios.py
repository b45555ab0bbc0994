"""The recorded conversations: who is asked what, and how a run of each is driven, whole or from a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulators.anthropic import Anthropic
from emulators.base import Emulator
from emulators.chat import DeepSeek, Mistral, OpenAIChat, OpenRouter
from emulators.gemini import Gemini
from emulators.responses import OpenAIResponses

from agentor import Agentor, LiteLLMModel, MemoryStore, ModelSettings, RunResult, function_tool
from agentor.engine.events import Event, Generation, Retry

FOLDER = Path(__file__).resolve().parents[1] / "cassettes"
BRIEF = "Look the weather up with the tool, never guess it. When you have the result, answer in one plain sentence."
RUN = "recorded"


@dataclass(frozen=True)
class Provider:
    """Who is asked, and who stands in for it where there is no key."""

    name: str
    model: str
    address: str
    key: str = ""  # environment variable
    stand_in: type[Emulator] | None = None  # None: a real local model
    settings: dict[str, Any] = field(default_factory=dict)


THINKING = {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
ANTHROPIC = Provider(
    "anthropic",
    "anthropic/claude-sonnet-4-5",
    "https://api.anthropic.com",
    "ANTHROPIC_API_KEY",
    Anthropic,
    THINKING,
)
GEMINI = Provider(
    "gemini",
    "gemini/gemini-3-pro-preview",
    "https://generativelanguage.googleapis.com",
    "GEMINI_API_KEY",
    Gemini,
)
RESPONSES = Provider(
    "openai-responses",
    "openai/gpt-5-mini",
    "https://api.openai.com",
    "OPENAI_API_KEY",
    OpenAIResponses,
    {"responses_route": True},
)
CHAT = Provider("openai-chat", "openai/gpt-4o-mini", "https://api.openai.com", "OPENAI_API_KEY", OpenAIChat)
DEEPSEEK = Provider(
    "deepseek", "deepseek/deepseek-reasoner", "https://api.deepseek.com", "DEEPSEEK_API_KEY", DeepSeek
)
MISTRAL = Provider(
    "mistral", "mistral/mistral-large-latest", "https://api.mistral.ai", "MISTRAL_API_KEY", Mistral
)
OPENROUTER = Provider(
    "openrouter",
    "openrouter/anthropic/claude-sonnet-4.5",
    "https://openrouter.ai",
    "OPENROUTER_API_KEY",
    OpenRouter,
)
LOCAL = "http://localhost:8080"
ANY = ("completed", "max_turns", "truncated")
SMALL = Provider(
    "llama.cpp", "openai/qwen2.5-coder-1.5b", LOCAL, settings={"max_tokens": 120, "temperature": 0}
)
TINY = Provider(
    "llama.cpp", "openai/qwen2.5-coder-0.5b", LOCAL, settings={"max_tokens": 120, "temperature": 0}
)


@dataclass(frozen=True)
class Scenario:
    """One recorded conversation; the prompts after the first are follow-ups in the same run."""

    provider: Provider
    name: str
    prompts: tuple[str, ...]
    stream: bool = False
    max_turns: int = 6
    settings: dict[str, Any] = field(default_factory=dict)
    wanted: tuple[str, ...] = ("completed",)  # statuses that the run may end with
    retries: int = 0
    tools: tuple[str, ...] = ("get_weather", "book_hotel")
    odd: str = ""  # a pattern that the arguments of the calls, in order, are to hold

    @property
    def path(self) -> Path:
        return FOLDER / self.provider.name / f"{self.name}.yaml"

    def agent(self, store: MemoryStore, *, url: str | None = None, key: str = "recorded") -> Agentor:
        """The agent of this conversation; without a `url` it asks the provider's own address."""
        settings = {**self.provider.settings, **self.settings}
        if url is None and self.provider.stand_in is None:
            url = f"{self.provider.address}/v1"
        model = LiteLLMModel(
            self.provider.model, api_key=key, base_url=url, settings=ModelSettings(**settings)
        )
        tools = [tool for tool in TOOLS if tool.name in self.tools]
        return Agentor("weather", BRIEF, model, tools, store=store, max_turns=self.max_turns)


@function_tool(on_crash="retry")
def get_weather(city: str) -> str:
    """Look up the weather of one city."""
    return {"London": "sunny, 22 C", "Paris": "sunny", "Köln": "rain"}.get(city, "unknown city")


@function_tool(on_crash="retry")
def book_hotel(city: str, days: int, guests: list[str]) -> str:
    """Book a hotel in one city for some days."""
    return f"booked in {city} for {days} days and {len(guests)} guests"


TOOLS = [get_weather, book_hotel]
ONE = "What is the weather in Paris?"
BOTH = "Compare the weather in Paris and Köln."
LOOK = "Where does it rain? Look at Paris, then at Köln."
MORE = "And what did you find?"


def _of(provider: Provider) -> list[Scenario]:
    return [
        Scenario(provider, "one-call", (ONE,)),
        Scenario(provider, "parallel-calls-streamed", (BOTH,), stream=True),
        Scenario(provider, "follow-up", (BOTH, MORE)),
        Scenario(provider, "three-turns-streamed", (LOOK, MORE), stream=True),
        Scenario(provider, "overloaded", ("Say hello when you can.",), retries=2),
    ]


SCENARIOS = [
    *(s for p in (ANTHROPIC, GEMINI, RESPONSES, CHAT, DEEPSEEK, MISTRAL, OPENROUTER) for s in _of(p)),
    Scenario(ANTHROPIC, "refused", ("Say nothing.",), wanted=("failed",)),
    Scenario(CHAT, "refused", ("Say nothing.",), wanted=("failed",)),
    Scenario(GEMINI, "internal-error-streamed", ("Say hello after you fell over.",), stream=True, retries=1),
    Scenario(RESPONSES, "refused", ("Say nothing.",), wanted=("failed",)),
    Scenario(SMALL, "documented", ("What is the weather in London?",), tools=("get_weather",)),
    Scenario(SMALL, "one-call", ("What is the weather in London?",)),
    Scenario(
        SMALL, "one-call-streamed", ("What is the weather in London?", "Say hello to Anna."), stream=True
    ),
    Scenario(
        SMALL,
        "text-before-a-call-with-a-doubled-argument",
        ("What is the weather in Paris, London, Rome and Oslo?",),
        max_turns=2,
        wanted=ANY,
        odd=r'"city".*"city"',
    ),
    Scenario(
        SMALL,
        "arguments-of-the-wrong-type",
        ("Look up the weather in London and Paris at the same time.",),
        settings={"temperature": 1.0},
        max_turns=2,
        wanted=ANY,
        odd=r'"city": ?\[',
    ),
    Scenario(
        TINY,
        "parallel-calls",
        ("Look up the weather in London and Paris.",),
        settings={"tool_choice": "required"},
        max_turns=2,
        wanted=ANY,
        odd=r'"London"\}.*"Paris"',
    ),
    Scenario(
        SMALL,
        "cut-off-by-the-token-limit",
        ("Book a hotel in Paris for a week, for me.",),
        settings={"tool_choice": "required"},
        wanted=("truncated",),
    ),
    Scenario(
        SMALL,
        "server-error",
        ("What is the weather in London?",),
        settings={"temperature": 1.0},
        retries=1,
    ),
    Scenario(
        TINY,
        "the-same-call-again-and-again",
        ("Book a hotel in Paris for three days for Ann and Bob.",),
        max_turns=3,
        wanted=("max_turns",),
    ),
    Scenario(
        TINY,
        "arguments-that-are-not-in-the-schema-streamed",
        ("What is the weather in London?",),
        stream=True,
        max_turns=3,
        wanted=("max_turns",),
    ),
]


async def play(
    scenario: Scenario, agent: Agentor, log: Sequence[Event] = (), *, run_id: str = RUN
) -> RunResult:
    """Drive the conversation to its end: anew, or on from a log of it."""
    asked = sum(1 for e in log if e.type == "run_start" and getattr(e, "messages", None))
    if asked:
        result = await agent.aresume(run_id)
    elif scenario.stream:
        _ = [event async for event in agent.astream(scenario.prompts[0], run_id=run_id)]
        asked, result = 1, await agent.aresume(run_id)
    else:
        asked, result = 1, await agent.arun(scenario.prompts[0], run_id=run_id)
    for prompt in scenario.prompts[asked:]:
        if result.status == "completed":
            result = await agent.acontinue_run(run_id, prompt)
    return result


def answered(log: Sequence[Event]) -> int:
    """How many answers of the provider a log holds, failed ones among them."""
    return sum(1 for event in log if isinstance(event, Generation | Retry))
