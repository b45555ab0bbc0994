"""What users give to an agent, checked and in the engine's own types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # metadata is the user's own JSON

from agentor.engine import strictjson
from agentor.engine.calls import name_of
from agentor.engine.messages import Message
from agentor.engine.models import Model
from agentor.engine.models.litellm import LiteLLMModel
from agentor.engine.models.settings import ModelSettings

Input = str | Sequence[Message]


def built_model(
    model: str | Model, settings: ModelSettings | None, api_key: str | None, base_url: str | None
) -> Model:
    """A model string as a `LiteLLMModel`, a model object as it is; TypeError or ValueError else."""
    if isinstance(model, str):
        built = LiteLLMModel(model, api_key=api_key, base_url=base_url, settings=settings)
        built.preload()
        return built
    if not isinstance(model, Model):
        raise TypeError(f"model= takes a model string or an object with complete and stream, not {model!r}")
    given = {"model_settings": settings, "api_key": api_key, "base_url": base_url}
    if unused := [name for name, value in given.items() if value is not None]:
        raise ValueError(
            f"{', '.join(unused)}: only for a model given as a string; set it on the model object"
        )
    return model


def built_fallbacks(
    fallbacks: Sequence[str | Model], first: Model, settings: ModelSettings | None
) -> tuple[Model, ...]:
    """The models to ask when `first` fails for good; a string gets the settings that any provider takes.

    Raises:
        TypeError: no model string and no model.
        ValueError: two models of one name, which the log could not tell apart.
    """
    if isinstance(fallbacks, str):
        raise TypeError(f"fallback_models takes a list of models, not the text {fallbacks!r}")
    portable = None if settings is None else settings.portable()
    built = tuple(built_model(m, portable if isinstance(m, str) else None, None, None) for m in fallbacks)
    names = [name_of(m) for m in (first, *built)]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"fallback_models names a model twice: {', '.join(sorted(doubled))}")
    return built


def messages_of(input: Input | list[str]) -> list[Message]:
    """The input as messages; ValueError where it cannot be sent or saved."""
    if isinstance(input, str):
        return [{"role": "user", "content": input}]
    messages = [dict(message) for message in input if not isinstance(message, str)]
    if not messages:
        raise ValueError("input is an empty list; there is nothing to answer")
    if bad := [m for m in messages if not isinstance(m.get("role"), str)]:
        raise ValueError(f"a message needs a text under 'role': {bad[0]!r}")
    _must_be_json("input", messages)
    return messages


def is_batch(input: Input | list[str]) -> bool:
    """True for a list of texts: one run each."""
    return not isinstance(input, str) and bool(input) and all(isinstance(i, str) for i in input)


def json_object(name: str, value: dict[str, Any] | None) -> dict[str, Any] | None:
    """A copy of a JSON object; ValueError where it is none."""
    if value is None:
        return None
    _must_be_json(name, value)
    return dict(value)


def _must_be_json(name: str, value: object) -> None:
    try:
        strictjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be saved as JSON: {error}") from None


def count(name: str, value: int) -> int:
    """The value, if it is a whole number from 1 on; ValueError else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1 on, not {value!r}")
    return value


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """The value, if it is one of these; ValueError else."""
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
    return value
