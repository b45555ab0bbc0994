"""Any exception of LiteLLM, a provider's SDK or the HTTP client as one `ModelError`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any  # exceptions of libraries that this file does not import

from agentor.errors import ModelError

# By class name, so that nothing is imported. LiteLLM's classes also derive from the OpenAI SDK's,
# and its error of a stream that broke derives from the one of an unavailable service: it is first.
_LOST = {"MidStreamFallbackError", "IncompleteRead", "RemoteProtocolError"}
_TIMEOUT = "the provider did not answer in time; ModelSettings(timeout_s=...) sets how long to wait"
_HINTS = {  # final: the same request would fail again
    "AuthenticationError": "the API key is missing, wrong or expired; set the provider's key in the "
    "environment or pass api_key=",
    "PermissionDeniedError": "this key may not use this model; ask for access, or choose another model",
    "NotFoundError": "the provider does not know this model or address; check model= and base_url=",
    "ContextWindowExceededError": "the conversation is longer than the model can take; fork the run at an "
    "earlier turn, or choose a model with a larger context window",
    "ContentPolicyViolationError": "the provider's content policy refuses this conversation; change it",
    "UnsupportedParamsError": "the model does not take one of the settings; leave it out of model_settings",
    "UnprocessableEntityError": "the provider refuses the request as it is, and would refuse it again",
    "BadRequestError": "the provider refuses the request as it is, and would refuse it again",
    "BudgetExceededError": "LiteLLM's own budget is used up; raise litellm.max_budget",
    "QuotaExceededError": "the account's quota or credit is used up; add credit, then resume the run",
}
_PASSING = {  # worth another try, later
    "Timeout": _TIMEOUT,
    "APITimeoutError": _TIMEOUT,
    "RateLimitError": "the provider's rate limit is reached; resume the run later",
    "InternalServerError": "the provider failed; resume the run later",
    "BadGatewayError": "the provider cannot be reached through its gateway; resume the run later",
    "ServiceUnavailableError": "the provider is overloaded or down; resume the run later",
    "APIConnectionError": "the provider cannot be reached; check the network and base_url=, then resume",
    "TimeoutException": _TIMEOUT,
    "TransportError": "the connection failed; check the network and base_url=, then resume the run",
    "ConnectionError": "the connection failed; check the network and base_url=, then resume the run",
    "TimeoutError": _TIMEOUT,
}
# LiteLLM judges some providers' errors by their words; the status says more than these of its classes.
_VAGUE = ("APIConnectionError", "APIError", "BadRequestError", "InternalServerError")
_BY_STATUS = {
    408: "Timeout",
    429: "RateLimitError",
    500: "InternalServerError",
    502: "BadGatewayError",
    503: "ServiceUnavailableError",
    504: "Timeout",
    529: "ServiceUnavailableError",
}
_BROKEN_ENDS = {  # a provider's word for an end that is no answer
    "MALFORMED_FUNCTION_CALL",
    "MALFORMED_RESPONSE",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "ERROR",
    "error",
    "network_error",
}
_BROKEN_CONNECTION = {"ReadError", "RemoteProtocolError", "ClientPayloadError", "ContentLengthError"}
_WRAPPING = re.compile(r"^(litellm\.\w+: )+(\w+: )?((\w+Exception|\w+Error)( \w+Error)?( - |: ))*")
_NO_JSON = re.compile("Error converting to valid response|Empty or invalid response from LLM")
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|credit balance is too low")
_RETRY_DELAY = re.compile(r'"retryDelay":\s*"([0-9]+(?:\.[0-9]+)?)s"')  # in the body of Google's errors


def as_model_error(error: Exception, model: str, *, streaming: bool, said: str | None = None) -> ModelError:
    """What failed, whether a repeat may help, and what to do.

    A fault inside LiteLLM while a stream is read (it raises `ValueError` or `AttributeError` there
    where a provider sends an error in the middle) counts as a lost stream.

    Args:
        said: The provider's own error in the middle of the stream, where it was seen.
    """
    chain = _chain(error)
    if own := [e for e in chain if isinstance(e, ModelError)]:  # ours, wrapped on its way out
        return own[0]
    names = _names(error)
    status = _status(chain)
    original = getattr(error, "original_exception", None)
    if isinstance(original, Exception) and _never_began(error, original, status):
        return as_model_error(original, model, streaming=False)
    if streaming and any(type(e).__name__ in _BROKEN_CONNECTION for e in chain):
        text = f"the answer broke off: {said or _text(error)}"  # LiteLLM reads statuses out of such texts
        return _make(error, model, "LostStream", text, retryable=True, status=None)
    if names[0] in _LOST or (streaming and not hasattr(error, "status_code") and "OSError" not in names):
        text = f"the answer broke off: {said or _text(error)}"
        return _make(error, model, "LostStream", text, retryable=True, status=status)
    kind = next((name for name in names if name in _HINTS or name in _PASSING), names[0])
    text, raw = _text(error), str(error)
    if any(isinstance(e, (json.JSONDecodeError, AttributeError)) for e in chain) or _NO_JSON.search(raw):
        return unreadable(model, error)
    if _QUOTA.search(raw):
        kind = "QuotaExceededError"
    elif _never_answered(chain):
        kind, status = "APIConnectionError", None  # LiteLLM makes up a status
    elif kind in _VAGUE and status in _BY_STATUS:
        kind = _BY_STATUS[status]
    elif status == 403 and kind not in _HINTS:  # LiteLLM has a class of its own for few providers' 403
        kind = "PermissionDeniedError"
    elif status in (413, 422) and kind not in _HINTS:
        kind = "UnprocessableEntityError"
    retryable = kind not in _HINTS and (kind in _PASSING or (status is not None and status >= 500))
    again = "the provider failed; resume the run later" if retryable else "it would fail again"
    hint = _HINTS.get(kind) or _PASSING.get(kind) or again
    return _make(error, model, kind, f"{hint}: {text}", retryable=retryable, status=status)


def broken_off(model: str, reason: str) -> ModelError:
    """An answer that ended without saying that it is over."""
    return ModelError(reason, error_type="LostStream", retryable=True, provider=_provider(model), model=model)


def no_answer(model: str, *, unstreamed: bool) -> ModelError:
    """An answer with nothing in it, and no tokens spent on it.

    Args:
        unstreamed: A stream was asked for, and one JSON body came, which LiteLLM does not read.
    """
    stuck = "this server does not stream answers; use run instead of a stream, or another base_url="
    return ModelError(
        stuck if unstreamed else "there is no answer in it; does this server stream answers?",
        error_type="NoAnswer",
        retryable=not unstreamed,
        provider=_provider(model),
        model=model,
    )


def unreadable(model: str, error: Exception) -> ModelError:
    """A whole answer that LiteLLM, or we, cannot read: asking again would pay for the same."""
    return ModelError(
        "the provider's answer cannot be read; is base_url= that of this provider's API? "
        f"({type(error).__name__}: {_text(error)})",
        error_type="UnreadableAnswer",
        provider=_provider(model),
        model=model,
    )


def check_ending(model: str, reason: str) -> None:
    """Nothing, for an end that a provider meant.

    Raises:
        ModelError: the provider gave up on the answer; retryable.
    """
    if reason in _BROKEN_ENDS:
        raise ModelError(
            f"the provider gave up on the answer: {reason}",
            error_type="BrokenAnswer",
            retryable=True,
            provider=_provider(model),
            model=model,
        )


def _make(
    error: Exception, model: str, kind: str, text: str, *, retryable: bool, status: int | None
) -> ModelError:
    headers = _headers(error)
    request_id = next((headers[name] for name in _REQUEST_IDS if name in headers), None)
    return ModelError(
        text,
        error_type=kind,
        retryable=retryable,
        retry_after_s=_retry_after_s(headers, str(error)),
        provider=_provider(model) or getattr(error, "llm_provider", None),
        model=model,
        status=status,
        request_id=request_id,
    )


_REQUEST_IDS = ("x-request-id", "request-id", "x-goog-request-id", "cf-ray")


def _names(error: object) -> list[str]:
    return [cls.__name__ for cls in type(error).__mro__]


def _text(error: Exception) -> str:
    """The provider's own words, out of what LiteLLM makes of them."""
    text = " ".join(str(error).split())
    if (found := re.search(r"\{.*\}", text)) is not None:
        try:
            body = json.loads(found.group().replace("\\'", "'"))
            inner = body.get("error") if isinstance(body.get("error"), dict) else body
            text = str(inner.get("message") or text)
        except (ValueError, RecursionError, AttributeError):
            pass  # not JSON: the text as it is
    text = _WRAPPING.sub("", text)[:1000]
    return text or type(error).__name__


def _provider(model: str) -> str | None:
    return model.partition("/")[0] if "/" in model else None


def _chain(error: BaseException) -> list[BaseException]:
    """The error and those that it was raised from, at most ten."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found and len(found) < 10:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found


def _never_began(error: Exception, original: Exception, status: int | None) -> bool:
    """True for a call that the provider refused, and that LiteLLM reports as a stream that broke."""
    names = _names(original)
    if any(name in _HINTS for name in names):
        return True
    answered = status in _BY_STATUS and (status != 500 or "APIConnectionError" not in names)
    return answered and bool(getattr(error, "is_pre_first_chunk", False))


def _never_answered(chain: list[BaseException]) -> bool:
    refused = ("ClientConnectorError", "ConnectError", "ConnectTimeout")
    return any(isinstance(e, ConnectionError) or type(e).__name__ in refused for e in chain)


def _status(chain: list[BaseException]) -> int | None:
    """The provider's own status, which LiteLLM changes for some: it is on the error below LiteLLM's."""
    for error in reversed(chain):
        try:
            status = int(getattr(error, "status_code", None) or 0)
        except (TypeError, ValueError):
            continue
        if status >= 400:
            return status
    return None


def _headers(error: Exception) -> dict[str, str]:
    for owner in (error, getattr(error, "response", None)):
        for name in ("litellm_response_headers", "headers"):
            headers: Any = getattr(owner, name, None)
            if headers:
                return {
                    str(k).lower().removeprefix("llm_provider-"): str(v) for k, v in dict(headers).items()
                }
    return {}


def _retry_after_s(headers: dict[str, str], text: str) -> float | None:
    """`retry-after-ms`, or `Retry-After` as seconds or as a date (RFC 9110, 10.2.3), or Google's."""
    try:
        if "retry-after-ms" in headers:
            return float(headers["retry-after-ms"]) / 1000
        if (value := headers.get("retry-after")) is not None:
            if re.fullmatch(r"[0-9.]+", value):
                return float(value)
            return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
    found = _RETRY_DELAY.search(text)
    return float(found.group(1)) if found else None
