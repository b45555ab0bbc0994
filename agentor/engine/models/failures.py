"""Any exception of LiteLLM, a provider's SDK or the HTTP client as one `ModelError`."""

from __future__ import annotations

from typing import Any  # exceptions of libraries that this file does not import

from agentor.errors import ModelError

# By class name, so that nothing is imported. LiteLLM's classes also derive from the OpenAI SDK's.
_LOST = {"MidStreamFallbackError", "IncompleteRead", "RemoteProtocolError"}
_FINAL = {
    "AuthenticationError",
    "PermissionDeniedError",
    "NotFoundError",
    "BadRequestError",
    "ContextWindowExceededError",
    "ContentPolicyViolationError",
    "UnprocessableEntityError",
    "UnsupportedParamsError",
    "BudgetExceededError",
}
_RETRYABLE = {
    "Timeout",
    "APITimeoutError",
    "RateLimitError",
    "InternalServerError",
    "BadGatewayError",
    "ServiceUnavailableError",
    "APIConnectionError",
    "TimeoutException",
    "TransportError",
    "ConnectionError",
    "TimeoutError",
}
_HINTS = {
    "AuthenticationError": "set the provider's API key in the environment, or pass api_key=",
    "PermissionDeniedError": "this key may not use this model",
    "NotFoundError": "check the model's name and base_url",
    "ContextWindowExceededError": "the conversation is longer than the model can take",
    "RateLimitError": "the provider's rate limit is reached",
    "BadRequestError": "the provider refuses the request; it would refuse it again",
}


def as_model_error(error: Exception, model: str, *, streaming: bool) -> ModelError:
    """What failed, whether a repeat may help, and what to do.

    A fault inside LiteLLM while a stream is read (it raises `ValueError` or `AttributeError` there
    where a provider sends an error in the middle) counts as a lost stream.
    """
    if isinstance(error, ModelError):
        return error
    names = [cls.__name__ for cls in type(error).__mro__]
    status = _status(error)
    if names[0] in _LOST or (streaming and not hasattr(error, "status_code") and "OSError" not in names):
        return _make(error, model, "LostStream", True, status, "the answer broke off")
    kind = next((name for name in names if name in _FINAL or name in _RETRYABLE), names[0])
    retryable = kind in _RETRYABLE or (status is not None and status >= 500)
    if kind in _FINAL or status in (403, 413, 422) or "insufficient_quota" in str(error):
        retryable = False
    return _make(error, model, kind, retryable, status, _HINTS.get(kind, ""))


def lost_stream(model: str, reason: str) -> ModelError:
    """A stream that ended without saying that it is over."""
    return ModelError(reason, error_type="LostStream", retryable=True, provider=_provider(model), model=model)


def _make(
    error: Exception, model: str, kind: str, retryable: bool, status: int | None, hint: str
) -> ModelError:
    text = " ".join(str(error).split())[:1000] or type(error).__name__
    return ModelError(
        f"{hint}: {text}" if hint else text,
        error_type=kind,
        retryable=retryable,
        retry_after_s=_retry_after_s(error),
        provider=getattr(error, "llm_provider", None) or _provider(model),
        model=model,
        status=status,
        request_id=_headers(error).get("x-request-id") or _headers(error).get("request-id"),
    )


def _provider(model: str) -> str | None:
    return model.partition("/")[0] if "/" in model else None


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    try:
        return None if status is None else int(status)
    except (TypeError, ValueError):
        return None


def _headers(error: Exception) -> dict[str, str]:
    for owner in (error, getattr(error, "response", None)):
        for name in ("litellm_response_headers", "headers"):
            headers: Any = getattr(owner, name, None)
            if headers:
                return {str(k).lower(): str(v) for k, v in dict(headers).items()}
    return {}


def _retry_after_s(error: Exception) -> float | None:
    try:
        return float(_headers(error)["retry-after"])
    except (KeyError, ValueError):
        return None
