"""The names of OpenTelemetry's GenAI conventions, in the spelling that dashboards read.

Source: open-telemetry/semantic-conventions v1.41.1, `docs/gen-ai/`, the last release with these pages;
since then they are in open-telemetry/semantic-conventions-genai. `OTEL_SEMCONV_STABILITY_OPT_IN` with
`gen_ai_latest_experimental` among its values chooses the newer spelling.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime

from agentor.engine.spans import ModelSpan

SCOPE = "agentor"
MAX_ATTRIBUTES = 30  # of one span: some backends take 32, and the SDK evicts the oldest ones

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
MODEL = "gen_ai.request.model"
STREAM = "gen_ai.request.stream"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
COST = "gen_ai.usage.cost"  # no convention; Langfuse reads it
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
SERVER = "server.address"

SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"

# Settings of a request, by their name in the log.
SETTINGS = {
    "temperature": "gen_ai.request.temperature",
    "max_tokens": "gen_ai.request.max_tokens",
    "top_p": "gen_ai.request.top_p",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "stop": "gen_ai.request.stop_sequences",
}

# What is ours.
RUN = "agentor.run.id"
SEGMENT = "agentor.run.segment"
STATUS = "agentor.run.status"
DURING = "agentor.run.interrupted_during"
TURN = "agentor.turn"
SEQ = "agentor.event.seq"
ATTEMPT = "agentor.attempt"
TURNS = "agentor.turns"
CALLS = "agentor.tool_calls"
USAGE_IN = "agentor.usage.input_tokens"  # `gen_ai.usage.*` on an agent span would count tokens twice
USAGE_OUT = "agentor.usage.output_tokens"
FORKED_FROM = "agentor.fork.parent_run.id"
FORKED_AT = "agentor.fork.parent_seq"
COPY = "agentor.fork.copy"
PARENT_RUN = "agentor.parent_run.id"
CHILD_RUN = "agentor.child_run.id"
METADATA = "agentor.metadata"
OFFSET = "agentor.input.messages.offset"
TRUNCATED = "agentor.truncated"
CONTENT_BYTES = "agentor.content.bytes"
SHIFT = "agentor.time.shift_s"
LINK = "agentor.link.type"
RETRY = "agentor.retry"

# LiteLLM's name of a provider -> the convention's.
PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "cohere_chat": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
_BARE = {
    "claude": "anthropic",
    "gemini": "gcp.gemini",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
}


@dataclass(frozen=True, slots=True)
class Conventions:
    """What differs between the versions of the conventions."""

    cache_write: str
    provider_on_agent: bool
    schema_url: str


DASHBOARDS = Conventions(
    "gen_ai.usage.cache_creation.input_tokens", True, "https://opentelemetry.io/schemas/1.41.0"
)
NEWEST = Conventions(
    "gen_ai.usage.cache_write.input_tokens", False, "https://opentelemetry.io/schemas/1.45.0"
)


def conventions_of_environment() -> Conventions:
    """That which `OTEL_SEMCONV_STABILITY_OPT_IN` (a list with commas) asks for."""
    wanted = os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
    return NEWEST if "gen_ai_latest_experimental" in (word.strip() for word in wanted) else DASHBOARDS


def provider_of(model: str | None, origin: str | None) -> tuple[str, str | None]:
    """The provider's name in the convention, and the host of a server of one's own.

    Args:
        model: As it was asked for, such as `anthropic/claude-sonnet-4-5`.
        origin: What the answer says of where it came from, such as `openai@host`.
    """
    name, _, host = (origin or "").removeprefix("responses:").partition("@")
    name = name.partition(":")[0] or (model or "").rpartition("/")[0].partition("/")[0]
    bare = next((value for key, value in _BARE.items() if (model or "").startswith(key)), "custom")
    return PROVIDERS.get(name, name) or bare, host or None


def asked_of(span: ModelSpan) -> tuple[str, str | None]:
    """`provider_of` a model call, by its model and by what its answer says."""
    made = span.generation
    origin = made.rest.get("origin") if made is not None and made.rest else None
    return provider_of(span.model, origin if isinstance(origin, str) else None)


def rfc3339(at: float) -> str:
    """A time as text, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat()
