"""`StoreConformance`: what every store must do, as a test class for whoever writes one."""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any  # a store's methods may be sync or async

from agentor.engine.events import Fork, RunEnd, RunStart
from agentor.engine.store.follow import follow
from agentor.errors import (
    Conflict,
    Fenced,
    InvalidRunId,
    MissingExtra,
    RunBusy,
    RunExists,
    RunNotFound,
)
from agentor.testing.leases import WAIT_S, Leases, OpenStore
from agentor.testing.samples import every_kind, result, whole_run
from agentor.testing.settled import Settled, access_of, follow_while, settle

try:
    import pytest
except ImportError:
    raise MissingExtra("pytest", "test") from None


class StoreConformance(Leases):
    """Subclass it, and give it one fixture:

        class TestMyStore(StoreConformance):
            @pytest.fixture
            def open_store(self, tmp_path):
                return functools.partial(MyStore, tmp_path / "runs")

    `open_store` is called without arguments, again and again, also in other processes (it must be
    picklable for that); each call opens the same, at first empty, place. `shared = False` says that a
    store keeps nothing beyond one object; then it gives that object again. Methods may be sync or async.
    What a store does not have is skipped, and the reason says which capability is missing. A store
    whose files can be torn may have `tear`.
    """

    tear: Callable[[Any, str], None] | None = None  # (store, run id): half of a record at the log's end

    # --- the log: every store -------------------------------------------------------------------

    def test_events_of_every_kind_come_back_equal_and_in_order(self, store: Settled) -> None:
        events = every_kind()
        for event in events:
            store.append("r", event)
        loaded = store.load("r")
        assert [e.to_json() for e in loaded] == [e.to_json() for e in events]
        assert [type(e) for e in loaded] == [type(e) for e in events]

    def test_an_unknown_run_is_empty_and_not_listed(self, store: Settled) -> None:
        assert list(store.load("nope")) == []
        assert list(store.list_runs()) == []

    def test_runs_do_not_mix_and_all_are_listed(self, store: Settled, open_store: OpenStore) -> None:
        ids = ["a", "b-2", "c_3", "x" * 100]
        for run_id in ids:
            store.append(run_id, result(0, run_id))
        again = Settled(open_store())
        assert sorted(again.list_runs()) == sorted(ids)
        assert [e.result for run_id in ids for e in again.load(run_id)] == ids

    def test_an_equal_event_twice_is_one_record(self, store: Settled) -> None:
        for event in (result(0), result(1), result(1), result(0)):
            with contextlib.suppress(Conflict):
                store.append("r", event)
        events, _ = settle(access_of(store).load("r"))
        assert [e.seq for e in events] == [0, 1]

    def test_what_is_loaded_is_a_copy(self, store: Settled) -> None:
        store.append("r", RunStart(seq=0, messages=[{"role": "user", "content": "x"}]))
        store.load("r")[0].messages[0]["content"] = "changed"
        assert store.load("r")[0].messages[0]["content"] == "x"

    # --- batches --------------------------------------------------------------------------------

    def test_a_batch_is_whole_idempotent_and_in_conflict_with_others(self, store: Settled) -> None:
        store.needs("append_many")
        store.append_many("r", [result(0), result(1)])
        store.append_many("r", [result(1), result(2)])
        store.append_many("r", [result(0), result(1), result(2)])
        store.append_many("s", [result(0), result(1), result(1), result(0), result(2)])
        store.append_many("s", [result(None), result(3)])
        assert [e.seq for e in store.load("s")] == [0, 1, 2, 3]
        with pytest.raises(RunExists):
            store.append_many("t", [result(0), result(0, "other")])
        with pytest.raises(Conflict, match="another record"):
            store.append_many("s", [result(4), result(4, "other")])
        assert (list(store.load("t")), len(store.load("s"))) == ([], 4)
        with pytest.raises(Conflict):
            store.append_many("r", [result(2), result(3), result(1, "other")])
        with pytest.raises(Conflict):
            store.append_many("r", [result(9)])
        with pytest.raises(RunExists):
            store.append_many("r", [result(0, "other")])
        assert [e.seq for e in store.load("r")] == [0, 1, 2]

    def test_events_without_a_number_get_the_next_one(self, store: Settled) -> None:
        store.needs("append_many")
        store.append_many("r", [result(None), result(None)])
        store.append_many("r", [result(None)])
        assert [e.seq for e in store.load("r")] == [0, 1, 2]

    def test_a_group_saves_each_write_or_says_why_not(self, store: Settled) -> None:
        store.needs("append_group")
        store.append("b", result(0))
        writes = [("a", [result(0)], None), ("b", [result(0, "other")], None), ("c", [result(0)], 7)]
        writes += [("a", [result(1)], None), ("d", [result(0), result(1)], None)]
        outcomes = store.append_group(writes)
        assert [type(o) for o in outcomes] == [type(None), RunExists, Fenced, type(None), type(None)]
        assert [len(store.load(run_id)) for run_id in "abcd"] == [2, 1, 0, 2]

    def test_load_from_gives_what_stands_behind_a_number(self, store: Settled, open_store: OpenStore) -> None:
        store.needs("load_from")
        events = [result(n) for n in range(6)]
        for event in events[:4]:
            store.append("r", event)
        other = Settled(open_store())
        assert [other.load_from("r", n) for n in range(6)] == [[*events[n:4]] for n in range(6)]
        store.append("r", events[4])
        assert other.load_from("r", 4) == [events[4]]
        other.append("r", events[5])
        assert store.load_from("r", 5) == [events[5]]
        assert store.load_from("r", 2) == events[2:]
        assert store.load_from("nope", 0) == []

    @pytest.mark.parametrize(
        "run_id", ["", "../x", "/x", "a\\b", ".x", "a\nb", "a\0b", "con", "x" * 101, "\ud800"]
    )
    def test_ids_that_cannot_name_a_run_are_refused(self, store: Settled, run_id: str) -> None:
        store.needs("append_many")
        with pytest.raises(InvalidRunId):
            store.append(run_id, result(0))

    def test_ids_that_only_need_encoding_come_back_as_they_were(self, store: Settled) -> None:
        ids = ["Order 42", "order 42", "Größe", "a.b", "A*B?", "it's 100%", "e\u0301", "\u00e9"]
        for run_id in ids:
            store.append(run_id, result(0, run_id))
        assert sorted(store.list_runs()) == sorted(ids)
        assert [store.load(run_id)[0].result for run_id in ids] == ids

    # --- two writers ----------------------------------------------------------------------------

    def test_of_two_writers_at_the_same_place_one_wins(self, store: Settled, open_store: OpenStore) -> None:
        store.needs("append_many")
        writers = [store, Settled(open_store())]
        for seq in range(20):
            barrier = threading.Barrier(2)
            won: list[int] = []

            def write(number: int, seq: int = seq, barrier: Any = barrier, won: Any = won) -> None:
                barrier.wait()
                with contextlib.suppress(Conflict, RunExists):
                    writers[number].append_many("r", [result(seq, f"{number}")])
                    won.append(number)

            threads = [threading.Thread(target=write, args=(number,)) for number in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1, seq
            assert store.load("r")[seq].result == str(won[0])
        assert len(store.load("r")) == 20

    # --- crashes --------------------------------------------------------------------------------

    @pytest.mark.parametrize("acknowledged", range(6))
    def test_a_writer_killed_at_a_write_loses_nothing_it_was_told_is_saved(
        self, store: Settled, open_store: OpenStore, acknowledged: int
    ) -> None:
        with self._worker(open_store, "write", "r", acknowledged) as worker:
            for _ in range(acknowledged):
                worker.said()
            worker.kill()
        events = Settled(open_store()).load("r")
        assert [e.seq for e in events] == list(range(len(events)))
        assert len(events) >= acknowledged
        again = Settled(open_store())
        if events:
            again.append("r", events[-1])  # a retry of what may not have been acknowledged
        again.append("r", result(len(events), "next"))
        loaded, _ = settle(access_of(again).load("r"))
        assert [e.seq for e in loaded] == list(range(len(events) + 1))

    @pytest.mark.parametrize("moment_s", [0.0, 0.002, 0.01])
    def test_a_fork_cut_off_by_a_kill_is_whole_or_absent(
        self, store: Settled, open_store: OpenStore, moment_s: float
    ) -> None:
        store.needs("fork")
        for event in whole_run():
            store.append("r", event)
        with self._worker(open_store, "fork", "r", 0) as worker:
            worker.said()
            time.sleep(moment_s)  # where in the fork the kill falls is left to chance
            worker.kill()
        branch = Settled(open_store()).load("branch")
        if branch:
            assert branch[:-1] == whole_run()
            assert isinstance(branch[-1], Fork)
        else:
            store.fork("r", "branch")

    def test_half_a_record_at_the_end_does_not_count(self, store: Settled, open_store: OpenStore) -> None:
        if self.tear is None:
            pytest.skip("this store's test names no way to tear a record (`tear`)")
        store.append("r", result(0))
        self.tear(store.store, "r")
        again = Settled(open_store())
        assert again.load("r") == [result(0)]
        again.append("r", result(1))
        assert Settled(open_store()).load("r") == [result(0), result(1)]

    # --- forks ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("at", [None, 0, 2])
    def test_a_fork_is_whole_with_its_marker_and_leaves_the_parent_alone(
        self, store: Settled, at: int | None
    ) -> None:
        store.needs("fork")
        events = whole_run()
        for event in events:
            store.append("r", event)
        store.fork("r", "f", *(() if at is None else (at,)))
        *copy, marker = store.load("f")
        assert copy == events[: None if at is None else at + 1]
        assert isinstance(marker, Fork)
        assert (marker.seq, marker.forked_from, marker.parent_seq) == (len(copy), "r", len(copy) - 1)
        store.append("f", result(len(copy) + 1, "own"))
        assert store.load("r") == events
        with pytest.raises(RunExists):
            store.fork("r", "f")
        with pytest.raises(RunNotFound):
            store.fork("nope", "g")
        with pytest.raises(ValueError, match=f"no record {len(events)}"):
            store.fork("r", "g", len(events))
        assert list(store.load("g")) == []

    def test_what_a_fork_changes_is_in_its_marker(self, store: Settled) -> None:
        store.needs("fork")
        try:
            inspect.signature(store.store.fork).bind("r", "f", 0, {})
        except TypeError:
            pytest.skip("this store's fork takes no `more`, which is optional")
        for event in whole_run():
            store.append("r", event)
        edits = [{"of": 0, "place": 0, "message": {"role": "user", "content": "Köln \u2713"}}]
        store.fork("r", "f", 1, {"edits": edits, "reuse": True})
        *copy, marker = store.load("f")
        assert len(copy) == 2
        assert isinstance(marker, Fork)
        assert (marker.edits, marker.reuse, marker.parent_seq) == (edits, True, 1)

    # --- reading along, and upkeep --------------------------------------------------------------

    def test_a_follower_gets_each_event_until_the_run_ends(
        self, store: Settled, open_store: OpenStore
    ) -> None:
        events = whole_run()
        store.append("r", events[0])
        followed = settle(follow_while(store, Settled(open_store()), events, WAIT_S))
        assert followed == (events, events[2:])
        with pytest.raises(RunNotFound):
            settle(anext(follow(access_of(store), "nope", 0)))

    def test_a_run_is_described_by_its_ends(self, store: Settled) -> None:
        store.needs("describe")
        for event in whole_run():
            store.append("done", event)
            if not isinstance(event, RunEnd):
                store.append("open", event)
        done, open_ = store.describe()
        assert (done.run_id, done.status, done.agent, done.model) == ("done", "completed", "a", "m")
        assert (done.turns, done.cost, done.records) == (2, 0.5, len(whole_run()))
        assert (done.created_at, done.updated_at) == (100.0, 105.0)
        assert (open_.status, open_.turns, open_.cost) == ("running", 2, None)
        assert [info.run_id for info in store.describe(["open", "nope"])] == ["open"]

    def test_a_run_is_deleted_whole_and_not_while_somebody_holds_it(
        self, store: Settled, open_store: OpenStore
    ) -> None:
        store.needs("delete")
        for event in whole_run():
            store.append("r", event)
        if store.has("lease"):
            with Settled(open_store()).leased("r", "ann"), pytest.raises(RunBusy):
                store.delete("r")
        store.delete("r")
        assert (list(store.load("r")), list(store.list_runs())) == ([], [])
        with pytest.raises(RunNotFound):
            store.delete("r")
        store.append("r", result(0))
        assert len(store.load("r")) == 1

    def test_a_repaired_run_ends_where_it_was_cut(self, store: Settled, open_store: OpenStore) -> None:
        store.needs("repair")
        events = whole_run()
        for event in events:
            store.append("r", event)
        with pytest.raises(ValueError, match="sound"):
            store.repair("r")
        assert store.repair("r", 2)
        assert Settled(open_store()).load("r") in (events[:3], [])  # [] where nothing is shared
        store.append("r", result(3, "other"))
        assert len(store.load("r")) == 4
        with pytest.raises(RunNotFound):
            store.repair("nope", 0)

    def test_ids_with_quotes_are_repaired_and_deleted_as_others(self, store: Settled) -> None:
        store.needs("repair")
        store.needs("delete")
        odd = "x' OR true --"
        for run_id in ("r", odd):
            for event in whole_run():
                store.append(run_id, event)
        store.repair("r", 2)
        store.repair(odd, 3)
        assert (len(store.load("r")), len(store.load(odd))) == (3, 4)
        store.delete(odd)
        assert sorted(store.list_runs()) == ["r"]


__all__ = ["StoreConformance"]
