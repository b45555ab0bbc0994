"""`Redactor`: takes credentials out of whatever is written down: log, cassettes, exports, Python logging."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import fields, replace
from typing import Any  # events carry JSON

from agentor.engine import strictjson
from agentor.engine.events import Event
from agentor.engine.messages import Usage

MARK = "[redacted]"
_SHORTEST = 12  # a shorter value may be a common word; replacing it would garble texts
_SECRET_VARIABLE = re.compile(
    r"(API_?KEY|ACCESS_?KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?|DSN|DATABASE_URL)$", re.IGNORECASE
)
# Names of JSON keys and of HTTP headers, in lower case with underscores.
_SECRET_KEYS = {
    "access_token",
    "api_key",
    "apikey",
    "authorization",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "client_secret",
    "cookie",
    "credentials",
    "id_token",
    "passwd",
    "password",
    "private_key",
    "proxy_authorization",
    "refresh_token",
    "secret",
    "secret_key",
    "session_token",
    "set_cookie",
    "x_api_key",
    "x_auth_token",
    "x_goog_api_key",
}
# A provider's own words: with one letter changed, it refuses the conversation.
_OPAQUE = {"signature", "encrypted_content", "thought_signature", "thought_signatures", "thoughtSignature"}
_SIGNED = {  # types of blocks that are signed, or encrypted, as a whole
    "thinking",
    "redacted_thinking",
    "reasoning",
    "reasoning.text",
    "reasoning.summary",
    "reasoning.encrypted",
}
_COMMON_WORDS = {"cookie", "credentials", "secret"}  # as keys only, not in the middle of a text
_NAMES = "|".join(sorted(name.replace("_", "[_-]?") for name in _SECRET_KEYS - _COMMON_WORDS))
_SHAPES = (  # as their issuers document them; the group is what is kept
    r"()\bsk-(?:ant-|proj-|or-|live-|test-)?[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, OpenRouter, Stripe
    r"()\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}",
    r"()\bAIza[A-Za-z0-9_-]{30,}",  # Google
    r"()\bya29\.[A-Za-z0-9_-]{20,}",
    r"()\b(?:gsk|xai|csk|hf|r8|pplx|fw)[-_][A-Za-z0-9]{20,}",  # Groq, xAI, Cerebras, Hugging Face …
    r"()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # AWS
    r"()\bgh[pousr]_[A-Za-z0-9]{30,}",  # GitHub
    r"()\bgithub_pat_[A-Za-z0-9_]{30,}",
    r"()\bglpat-[A-Za-z0-9_-]{20,}",  # GitLab
    r"()\bxox[abeprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"()(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,}",  # JWT
    r"()-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----BEGIN).){0,10000}?"
    r"-----END [A-Z ]{0,40}PRIVATE KEY-----",
    r"(\bBearer\s+)(?=[^\s]*[0-9._=~+/-])[A-Za-z0-9._~+/=-]{12,}",
    r"(\bAuthorization:?\s+Basic\s+)[A-Za-z0-9+/=]{8,}",
    r"(\b[a-z][a-z0-9+.-]{0,20}://[^/\s:@]{0,200}:)[^/\s:@\[]{1,200}(?=@)",  # the password in a URL
    r"([?&](?:key|api[_-]?key|access_token|token|sig|signature)=)[^&\s\"'\[\\]+",
    rf"((?:\b|_)(?:{_NAMES})\\*[\"']?\s*[:=]\s*\\*[\"']?)(?!\[redacted|null|true|false|[\d.]+\b)[^\s\"'\\,;}}&\[]{{4,}}",
)
_PATTERN = [re.compile(shape, re.IGNORECASE | re.DOTALL) for shape in _SHAPES]
_WHOLE = ("error", "params", "metadata", "trace_metadata")  # where names and shapes always count


class Redactor:
    """Replaces credentials by `[redacted]`; doing it twice changes nothing more.

    Always: the values of secrets (`secrets`, and of environment variables whose names end in
    `API_KEY`, `TOKEN`, `SECRET`, `PASSWORD` … where they have 12 letters or more), wherever they
    stand; and in errors, settings and metadata also what has the name or the shape of a credential.
    With `content=True` names and shapes count in messages, tool arguments and results too. The
    model then sees what the log has, live and after a resume, so both stay equal. A signed block of
    thinking is never changed: its provider would refuse it.

    It is a filter for Python's logging too: `handler.addFilter(Redactor())`.

    Args:
        content: Look for names and shapes of credentials in the conversation as well.
        secrets: More values to replace.
        environment: Where to look for secrets; `os.environ` if not given.
        patterns: More shapes, as regular expressions; the whole match is replaced.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        secrets: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        patterns: Iterable[str] = (),
    ) -> None:
        environment = os.environ if environment is None else environment
        found = {value for name, value in environment.items() if _SECRET_VARIABLE.search(name)}
        self._secrets = _longest_first({*secrets, *found})
        self._content = content
        self._own = tuple(re.compile(pattern) for pattern in patterns)

    def knowing(self, secrets: Iterable[str]) -> Redactor:
        """The same, with more values to replace."""
        more = copy(self)
        more._secrets = _longest_first({*self._secrets, *secrets})
        return more

    def text(self, text: str) -> str:
        """A text without secrets, and without what has the shape of a credential."""
        text = self._without_secrets(text)
        for pattern in _PATTERN:
            text = pattern.sub(rf"\g<1>{MARK}", text)
        for pattern in self._own:
            text = pattern.sub(MARK, text)
        return text

    def data(self, value: Any) -> Any:
        """JSON without secrets and credentials, by their shape and by the names of their keys."""
        return self._clean(value, whole=True)

    def event(self, event: Event) -> Event:
        """An event as it may be written down; the event itself where there is nothing to take out."""
        changed: dict[str, Any] = {}
        for name in (f.name for f in fields(event) if f.name not in _UNWRITTEN):
            value = getattr(event, name)
            if value is not None and not isinstance(value, int | float | Usage):
                clean = self._clean(value, whole=self._content or name in _WHOLE)
                if clean is not value:
                    changed[name] = clean
        return replace(event, **changed) if changed else event

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean a record of Python's logging, tracebacks included; never drops one, never raises."""
        try:
            text = record.getMessage()
        except Exception as error:  # arguments that do not fit: logging would print that, and go on
            text = f"{record.msg} {record.args!r} ({error})"
        record.msg, record.args = self.text(text), None
        if record.stack_info:
            record.stack_info = self.text(record.stack_info)
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self.text(record.exc_text)
        return True

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MARK)
        return text

    def _clean(self, value: Any, *, whole: bool) -> Any:
        """The value, or a clean copy where something had to go."""
        if isinstance(value, str):
            clean = self._clean_text(value) if whole else self._without_secrets(value)
            return value if clean == value else clean
        if isinstance(value, Mapping):
            if value.get("type") in _SIGNED and any(value.get(k) for k in (*_OPAQUE, "data")):
                return value
            pairs = {
                self._without_secrets(str(key)): self._clean_key(str(key), item, whole=whole)
                for key, item in value.items()
            }
            same = all(a is b for a, b in zip(pairs.values(), value.values(), strict=False))
            return value if same and list(pairs) == list(value) else pairs
        if isinstance(value, list | tuple):
            items = [self._clean(item, whole=whole) for item in value]
            return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
        return value

    def _clean_text(self, text: str) -> str:
        """A text; one that is JSON, as a tool's arguments are, stays JSON."""
        if text[:1] in ("{", "["):
            try:
                data = strictjson.loads(text)
            except ValueError:
                return self.text(text)
            clean = self._clean(data, whole=True)
            return text if clean is data else strictjson.dumps(clean)
        return self.text(text)

    def _clean_key(self, key: str, value: Any, *, whole: bool) -> Any:
        if key in _OPAQUE and isinstance(value, str | list):
            whole = False  # a secret's value is replaced even there; what only looks like one stays
        secret = whole and is_secret_name(key)
        if secret and isinstance(value, str | int | float) and value not in ("", MARK):
            return MARK
        return self._clean(value, whole=whole)


def is_secret_name(name: str) -> bool:
    """True for the name of a JSON key or HTTP header whose value is a credential."""
    return name.lower().replace("-", "_") in _SECRET_KEYS


def _longest_first(values: Iterable[str]) -> tuple[str, ...]:
    """Those worth replacing; a longer one may hold a shorter one."""
    return tuple(sorted((v for v in values if len(v) >= _SHORTEST), key=len, reverse=True))


_UNWRITTEN = ("type", "seq", "at", "run_id", "request", "arguments")
