"""`Bucket`: a place in an object store, with conditional writes whose outcome is always found out."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import (
    Any,
    NamedTuple,
    ParamSpec,
    TypeVar,
)  # Any: options are passed on, and obstore's dictionaries come back
from urllib.parse import urlsplit

from agentor.engine.threads import in_thread
from agentor.errors import MissingExtra, StoreError

try:
    import obstore
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        InvalidPathError,
        NotSupportedError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )
    from obstore.store import from_url
except ImportError:
    raise MissingExtra("obstore", "objects") from None

P = ParamSpec("P")
T = TypeVar("T")
_PATIENCE_S = 10.0  # for one request with all its repeats
_ATTEMPT_S = 3.0
_BYTES_PER_S = 500_000  # a slower line than this is taken for a dead one
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_AT_ONCE = 32
_REFUSED = (AlreadyExistsError, PreconditionError, FileNotFoundError)  # 412, 409, and If-Match's 404
_PASSING = ("408", "409", "412", "425", "429")  # refusals that may end by themselves
_HOPELESS = (InvalidPathError, NotSupportedError, PermissionDeniedError, UnauthenticatedError)
_SECRET = re.compile(r"secret|key|token|sas|password|credential", re.IGNORECASE)

Version = dict[str, Any]  # what a conditional write names: an ETag, a generation


class Listed(NamedTuple):
    """An object as a listing shows it."""

    path: str
    size: int
    tag: str | None


class Found(NamedTuple):
    """An object that was read; `modified` is its time by the store's own clock."""

    data: bytes
    version: Version
    modified: float


class _Unsettled(Exception):
    """Another writer's request is under way: what it comes to is not known yet."""


class _Process:
    """obstore's threads are made at its first request, once per process, and a fork leaves them behind."""

    with_threads: int | None = None

    @classmethod
    def check(cls, run_id: str | None) -> None:
        """Raise in a forked child, where each request would wait for ever."""
        if cls.with_threads is None:
            cls.with_threads = os.getpid()
        elif cls.with_threads != os.getpid():
            raise StoreError(
                run_id,
                "object stores cannot be used in a forked child of a process that has used one: their "
                "threads do not come along; start this process with multiprocessing's 'spawn', or use "
                "object stores only after the fork",
            )


class Bucket:
    """Requests to one place. Each is repeated for about ten seconds, and then a `StoreError`.

    A repeat after a lost answer finds what the first try wrote: equal bytes are a success.
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        parts = urlsplit(url)
        if parts.scheme == "file":
            raise ValueError(
                f"{url}: a folder has no conditional writes that could keep two workers apart, and obstore "
                "does not sync it to the medium; use FileStore, which does both"
            )
        place = parts.netloc.rpartition("@")[2]
        self.name = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
        secret = {k: v for k, v in {**options, **options.get("config", {})}.items() if _SECRET.search(k)}
        self._secrets = [value for value in secret.values() if isinstance(value, str) and value]
        limit = options.get("retry_config", {}).get("retry_timeout", timedelta(seconds=_PATIENCE_S))
        self._patience_s = limit.total_seconds()
        if parts.scheme != "memory":  # our own repeats know what a refused one means
            options = {**options, "retry_config": {"max_retries": 0}}
        try:
            self._store = from_url(url, **options)
        except (BaseError, ValueError) as error:
            raise StoreError(None, f"cannot open {self.name}: {self._cause(error)}") from None

    # --- writing --------------------------------------------------------------------------------

    async def put_new(
        self, run_id: str, path: str, data: bytes, seen: Version | None = None
    ) -> Version | None:
        """Put an object where none is, or in place of the version that was seen; its own version.

        None if one with other bytes stands there.
        """

        async def act() -> Version | None:
            try:
                mode: Any = "create" if seen is None else seen  # typed by obstore for each store apart
                put = await _done(obstore.put, self._store, path, data, mode=mode, use_multipart=False)
            except _REFUSED:
                there = await self._get(path)
                if there is not None and there.data == data:
                    return there.version
                if (there and there.version) == seen:
                    raise _Unsettled from None
                return None
            return _version(put)

        return await self._insist(run_id, f"write {path}", act, len(data))

    async def put(self, run_id: str, path: str, data: bytes) -> None:
        """Put an object, whatever is there."""

        async def act() -> None:
            await _done(obstore.put, self._store, path, data, use_multipart=False)

        await self._insist(run_id, f"write {path}", act, len(data))

    async def remove(self, run_id: str, paths: Sequence[str]) -> None:
        """Remove objects; those that are not there are no error."""

        async def act() -> None:
            try:
                await _done(obstore.delete, self._store, list(paths))
            except FileNotFoundError:
                for path in paths:
                    await _without_missing(_done(obstore.delete, self._store, path))

        if paths:
            await self._insist(run_id, f"remove {len(paths)} object(s)", act)

    # --- reading --------------------------------------------------------------------------------

    async def get(self, run_id: str, path: str, size: int = 0) -> Found | None:
        """An object; None where none is."""
        return await self._insist(run_id, f"read {path}", lambda: self._get(path), size)

    async def _get(self, path: str) -> Found | None:
        try:
            got = await _done(obstore.get, self._store, path)
            data = await _done(lambda: bytes(got.bytes()))
        except FileNotFoundError:
            return None
        return Found(data, _version(got.meta), got.meta["last_modified"].timestamp())

    async def below(self, run_id: str, folder: str, after: str | None = None) -> list[Listed]:
        """All objects below a folder, or those whose path is greater than `after`, by path."""

        async def act() -> list[Listed]:
            chunks = obstore.list(self._store, folder, offset=after, chunk_size=1000)
            found = await _done(lambda: [each for chunk in chunks for each in chunk])
            return sorted(Listed(each["path"], each["size"], each["e_tag"]) for each in found)

        return await self._insist(run_id, f"list {folder}", act)

    async def top(self) -> tuple[list[str], list[str]]:
        """The names of the folders, and of the objects, that stand here."""

        async def act() -> tuple[list[str], list[str]]:
            found = await _done(obstore.list_with_delimiter, self._store)
            return list(found["common_prefixes"]), [each["path"] for each in found["objects"]]

        return await self._insist(None, "list the runs", act)

    async def has_folder(self, run_id: str, folder: str) -> bool:
        """True if something is below it, also if that is a folder without objects, which some stores keep."""

        async def act() -> bool:
            found = await _done(obstore.list_with_delimiter, self._store, folder)
            return bool(found["common_prefixes"] or found["objects"])

        return await self._insist(run_id, f"list {folder}", act)

    async def now(self, run_id: str) -> float:
        """Epoch seconds by the store's own clock; some stores count whole ones only."""

        async def act() -> float:
            await _done(obstore.put, self._store, ".clock", b"", use_multipart=False)
            head = await _done(obstore.head, self._store, ".clock")
            return float(head["last_modified"].timestamp())

        return await self._insist(run_id, "ask for the time", act)

    # --- patience -------------------------------------------------------------------------------

    async def _insist(
        self, run_id: str | None, what: str, act: Callable[[], Awaitable[T]], size_bytes: int = 0
    ) -> T:
        _Process.check(run_id)
        allowance_s = size_bytes / _BYTES_PER_S
        until = time.monotonic() + self._patience_s + allowance_s
        pause_s = _FIRST_PAUSE_S
        while True:
            left_s = max(until - time.monotonic(), _FIRST_PAUSE_S)
            try:
                async with asyncio.timeout(min(_ATTEMPT_S + allowance_s, left_s)):
                    return await act()
            except (BaseError, TimeoutError, _Unsettled) as error:
                wait_s = pause_s * random.uniform(0.5, 1.0)  # so that those who met do not meet again
                if _is_hopeless(error):
                    raise self._failure(run_id, what, error, "mend that") from None
                if time.monotonic() + wait_s >= until:
                    way = f"tried for {self._patience_s:g} s; once it answers again"
                    raise self._failure(run_id, what, error, way) from None
            except Exception as error:  # no such bucket; an address or option at which obstore panics
                raise self._failure(run_id, what, error, "mend that") from None
            await asyncio.sleep(wait_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _failure(self, run_id: str | None, what: str, error: Exception, way: str) -> StoreError:
        return StoreError(
            run_id, f"{self.name} could not {what}: {self._cause(error)} ({way}, resume the run)"
        )

    def _cause(self, error: Exception) -> str:
        """What the store said, without its addresses' query (a signature may stand there) and any secret."""
        if isinstance(error, TimeoutError):
            return "it did not answer in time"
        if isinstance(error, _Unsettled):
            return "another writer's request did not come to an end"
        text = " ".join(str(error).split("\n\nDebug source")[0].split())
        text = re.sub(r"\?[^\s)\"]*", "", text)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return f"{type(error).__name__}: {text[:400]}"


def _done(request: Callable[P, T], *args: P.args, **options: P.kwargs) -> Awaitable[T]:
    """A request of obstore, on a thread of ours.

    Its own async requests are answered from threads that take the interpreter's lock for a moment longer:
    one process in four that ended right then was aborted (CPython 3.11, obstore 0.12).
    """
    return in_thread(lambda: request(*args, **options))


async def together(works: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """The outcomes of these calls, in their order; only so many run at a time."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(work: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await work()

    return await asyncio.gather(*map(one, works))


def _is_hopeless(error: Exception) -> bool:
    """True if the same request would be refused again."""
    refused = re.search(r"status code: (4\d\d)", str(error))  # of a list obstore says it in words only
    return isinstance(error, _HOPELESS) or (refused is not None and refused[1] not in _PASSING)


def _version(about: Any) -> Version:
    """What a conditional write may name: obstore takes no key whose value is None."""
    return {key: about[key] for key in ("e_tag", "version") if about.get(key) is not None}


async def _without_missing(removal: Awaitable[None]) -> None:
    try:
        await removal
    except FileNotFoundError:
        return
