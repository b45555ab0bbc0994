"""What a store that gives leases must do; a part of `StoreConformance`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any  # a store's methods may be sync or async

from agentor.errors import Fenced, MissingExtra, RunBusy, RunNotFound
from agentor.testing.killed import Killed
from agentor.testing.samples import result
from agentor.testing.settled import Settled

try:
    import pytest
except ImportError:
    raise MissingExtra("pytest", "test") from None

OpenStore = Callable[[], Any]
WAIT_S = 60.0  # for what must happen soon; a slow machine is no fault of the store


class Leases:
    """Tests of leases; see `StoreConformance`."""

    shared = True  # False: what one object keeps, no other one sees (a store in memory)

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Settled:
        """The store under test, with its methods made sync."""
        return Settled(open_store())

    def test_a_held_run_is_busy_for_others_until_it_is_given_back(
        self, store: Settled, open_store: OpenStore
    ) -> None:
        store.needs("lease")
        other = Settled(open_store())
        lease = store.lease("r", "ann", 30.0)
        with pytest.raises(RunBusy) as caught:
            other.lease("r", "bob", 30.0)
        assert (caught.value.owner, caught.value.pid is not None) == ("ann", True)
        store.append_many("r", [result(0)], lease.epoch)
        lease.renew()
        lease.release()
        lease.release()
        with other.leased("r", "bob") as epoch:
            assert epoch > lease.epoch
            other.append_many("r", [result(1)], epoch)

    def test_a_request_to_stop_reaches_the_present_holder_and_no_later_one(
        self, store: Settled, open_store: OpenStore
    ) -> None:
        store.needs("request_cancel")
        store.append("r", result(0))
        lease = store.lease("r", "worker", 60.0)
        assert store.cancel_requested("r", lease.epoch) is None
        outside = Settled(open_store())
        outside.request_cancel("r", "enough \u2713 'quoted'")
        assert store.cancel_requested("r", lease.epoch) == "enough \u2713 'quoted'"
        outside.request_cancel("r", "now")
        assert store.cancel_requested("r", lease.epoch) == "now"
        for odd in ("long " * 40_000, "half \ud800 of a pair", "a \0 within"):  # not all to the letter
            outside.request_cancel("r", odd)
            assert (store.cancel_requested("r", lease.epoch) or "")[:2] == odd[:2]
        assert store.cancel_requested("other", lease.epoch) is None
        lease.release()
        later = store.lease("r", "worker", 60.0)
        assert store.cancel_requested("r", later.epoch) is None
        later.release()
        assert sorted(store.list_runs()) == ["r"]
        with pytest.raises(RunNotFound):
            store.request_cancel("nope", "x")
        if store.has("delete"):
            store.delete("r")
            with pytest.raises(RunNotFound):
                store.request_cancel("r", "x")

    def test_a_worker_whose_lease_is_over_is_fenced(self, store: Settled, open_store: OpenStore) -> None:
        store.needs("lease")
        other = Settled(open_store())
        old = store.lease("r", "ann", 0.5)
        store.append_many("r", [result(0)], old.epoch)
        if old.ttl_s is None:  # the kernel's: it ends with its holder, or when it is given back
            old.release()
        new = other.taken("r", WAIT_S)
        other.append_many("r", [result(1)], new.epoch)
        with pytest.raises(Fenced):
            store.append_many("r", [result(2)], old.epoch)
        if old.ttl_s is not None:
            with pytest.raises(Fenced):
                old.renew()
        old.release()
        other.append_many("r", [result(2)], new.epoch)
        new.release()
        assert len(store.load("r")) == 3

    def test_the_run_of_a_killed_worker_can_be_taken(self, store: Settled, open_store: OpenStore) -> None:
        store.needs("lease")
        with self._worker(open_store, "hold", "r", 1.0) as worker:
            held = worker.said()
            worker.kill()
        lease = store.taken("r", WAIT_S)
        assert lease.epoch > held
        store.append_many("r", [result(0)], lease.epoch)
        lease.release()

    # --- helpers --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _worker(self, open_store: OpenStore, act: str, run_id: str, number: float) -> Iterator[Killed]:
        if not self.shared:
            pytest.skip("no other process sees what this store keeps (`shared = False`)")
        with contextlib.ExitStack() as stack:
            try:
                worker = stack.enter_context(Killed(open_store, act, run_id, number))
            except (AttributeError, TypeError, ValueError) as error:  # what pickling raises
                pytest.fail(f"`open_store` must be picklable (functools.partial, not a lambda): {error!r}")
            yield worker
