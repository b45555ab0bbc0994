"""The lease of a run in an object store: one small object, changed by conditional writes only."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentor.engine import strictjson
from agentor.engine.store.holder import Holder
from agentor.engine.store.names import encoded
from agentor.engine.store.objectsbucket import Bucket, Version
from agentor.errors import StoreError

RESOLUTION_S = 1.0  # an object's time counts whole seconds
_STORED = ("epoch", "owner", "host", "pid", "machine", "since")  # of a Holder
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run's lease as it is stored.

    Attributes:
        holder: `since` is by its own clock, for people only; `expires` by the store's.
        ttl_s: None once it was given back.
        token: No other lease has it.
        renewals: Makes each version another text, so that its ETag is another one too.
        version: None where nothing is stored.
    """

    holder: Holder
    ttl_s: float | None = None
    token: str = ""
    renewals: int = 0
    version: Version | None = None

    def to_bytes(self) -> bytes:
        """The object's content."""
        about = {name: getattr(self.holder, name) for name in _STORED}
        own = {"ttl_s": self.ttl_s, "token": self.token, "renewals": self.renewals}
        return strictjson.dump_bytes({"format": _FORMAT, **about, **own})


def claimed(epoch: int, owner: str, ttl_s: float) -> Claim:
    """This process's claim to a run."""
    holder = Holder.here(epoch, owner, round(time.time(), 3), ttl_s)
    return Claim(holder=holder, ttl_s=ttl_s, token=uuid.uuid4().hex)


async def look(bucket: Bucket, run_id: str) -> Claim:
    """The claim that is stored now.

    Raises:
        StoreError: something else stands there.
    """
    path = _path(run_id)
    found = await bucket.get(run_id, path)
    if found is None:
        return Claim(holder=Holder())
    try:
        stored = strictjson.loads(found.data)
        ttl_s = stored["ttl_s"]
        expires = None if ttl_s is None else found.modified + ttl_s + RESOLUTION_S
        holder = Holder(**{name: stored[name] for name in _STORED}, expires=expires)
        return Claim(
            holder=holder,
            ttl_s=ttl_s,
            token=stored["token"],
            renewals=stored["renewals"],
            version=found.version,
        )
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{bucket.name}/{path} is no lease ({error!r}); remove it once no worker has the run"
        raise StoreError(run_id, reason) from error


async def store(bucket: Bucket, run_id: str, claim: Claim) -> Claim | None:
    """Put this claim in place of the version that it was made from; None if another one stands there."""
    version = await bucket.put_new(run_id, _path(run_id), claim.to_bytes(), claim.version)
    return None if version is None else replace(claim, version=version)


async def request(bucket: Bucket, run_id: str, epoch: int, reason: str) -> None:
    """Ask the holder with this epoch to stop."""
    await bucket.put(run_id, _cancel_path(run_id), strictjson.dump_bytes({"epoch": epoch, "reason": reason}))


async def requested(bucket: Bucket, run_id: str, epoch: int) -> str | None:
    """Why the holder with this epoch is asked to stop; None where it is not."""
    found = await bucket.get(run_id, _cancel_path(run_id))
    asked = None if found is None else strictjson.loads(found.data)
    return str(asked["reason"]) if asked is not None and asked["epoch"] == epoch else None


def _cancel_path(run_id: str) -> str:
    return f".cancels/{encoded(run_id)}.json"


def _path(run_id: str) -> str:
    # Not beside the log: a folder of a run is listed as a run, and a lease may come before its first record.
    return f".leases/{encoded(run_id)}.json"


class ObjectLease:
    """One holder's time on a run.

    Args:
        over: Called once this lease has ended, or was lost.
    """

    def __init__(self, bucket: Bucket, run_id: str, claim: Claim, over: Callable[[], None]) -> None:
        self._bucket, self._run_id, self._claim, self._over = bucket, run_id, claim, over
        self._given_back = False
        self.epoch, self.ttl_s = claim.holder.epoch, claim.ttl_s

    async def renew(self) -> None:
        """Another `ttl_s` seconds from now on.

        Raises:
            Fenced: the run has another holder.
            StoreError: the store does not answer.
        """
        while not self._given_back:
            claim = self._claim
            renewed = await store(self._bucket, self._run_id, replace(claim, renewals=claim.renewals + 1))
            if renewed is not None:
                self._claim = renewed
                return
            await self._look_again()
        raise replace(self._claim.holder, expires=None).fenced(self._run_id, self.epoch)

    async def release(self) -> None:
        """Give it back; nothing happens where it is another one's already."""
        if self._given_back:
            return
        self._given_back = True
        self._over()
        while (ended := await store(self._bucket, self._run_id, replace(self._claim, ttl_s=None))) is None:
            there = await look(self._bucket, self._run_id)
            if there.token != self._claim.token or there.ttl_s is None:
                return
            self._claim = there
        self._claim = ended

    async def _look_again(self) -> None:
        """A write of ours that was thought lost may stand there, or another worker's."""
        there = await look(self._bucket, self._run_id)
        if there.token != self._claim.token or there.ttl_s is None:
            self._over()
            raise there.holder.fenced(self._run_id, self.epoch)
        self._claim = there
