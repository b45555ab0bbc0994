"""The pytest plugin as a project uses it: from the built wheel, with no configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulators.chat import OpenAIChat
from wheels import wheel_in

pytest_plugins = ["pytester"]

APP = '''
from agentor import Agentor, function_tool
from agentor.testing import ScriptedModel, call

@function_tool
def look(n: int) -> str:
    """Look."""
    return "seen"

def made(instructions="Be brief.", **more):
    return Agentor("support", instructions, ScriptedModel([call("look", {"n": 1}), "done"]), [look], **more)

support = made()
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_in(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def project(pytester: pytest.Pytester, site: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(app=APP)
    done = pytester.runpython_c(
        "import agentor, app; app.made(store=agentor.FileStore('runs')).run('hi', run_id='r')"
    )
    assert done.ret == 0
    return pytester


def test_the_report_of_a_marked_run_is_a_fixture(project: pytest.Pytester, site: Path) -> None:
    project.makepyfile(
        f"""
        import pytest, agentor, agentor_pytest
        from app import support

        def test_comes_from_the_wheel():
            assert agentor.__file__.startswith({str(site)!r})
            assert agentor_pytest.__file__.startswith({str(site)!r})

        @pytest.mark.agentor(run="runs/r.jsonl", agent="app:support")
        def test_by_name(agentor_report):
            assert agentor_report.ok

        @pytest.mark.agentor("runs/r.jsonl", agent=support)
        def test_by_object(agentor_report):
            agentor_report.check()

        @pytest.mark.agentor(run="runs/r.jsonl")
        class TestWithAFixture:
            @pytest.fixture
            def agentor_agent(self):
                return support

            def test_report(self, agentor_report):
                assert [turn.status for turn in agentor_report.turns] == ["same", "same"]

            def test_call(self, agentor_replay):
                assert agentor_replay("app:support").ok
                assert agentor_replay(support, strict=False).ok
        """
    )
    project.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider").assert_outcomes(passed=5)


def test_a_drift_shows_the_diff_and_no_traceback(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from app import made

        @pytest.mark.agentor(run="runs/r.jsonl", agent=made("Be brief!"))
        def test_check(agentor_report):
            agentor_report.check()

        @pytest.mark.agentor(run="runs/r.jsonl", agent=made("Be brief!"))
        def test_assert(agentor_report):
            assert agentor_report.ok

        @pytest.mark.agentor(run="runs/r.jsonl", agent=made("Be brief!"), strict=False)
        def test_lenient(agentor_report):
            assert agentor_report.ok
        """
    )
    done = project.runpytest_subprocess()
    done.assert_outcomes(passed=1, failed=2)
    shown = ["*1 changed, 1 answered by the recording", "  turn 1: changed", "*- Be brief.", "*+ Be brief!"]
    done.stdout.fnmatch_lines(["test_*::test_check", "", *shown])
    done.stdout.fnmatch_lines(["*assert False", "*- agentor replay -*", *shown])
    check = done.stdout.str().split("test_assert")[0]
    assert "def check" not in check
    assert "Traceback" not in check


def test_the_network_is_blocked_where_agentor_is_used_and_only_there(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import socket, pytest
        from agentor.errors import NetworkBlocked

        @pytest.fixture
        def address():
            with socket.create_server(("127.0.0.1", 0)) as server:
                yield server.getsockname()

        def test_free(address):
            socket.create_connection(address).close()

        @pytest.mark.agentor(run="runs/r.jsonl", agent="app:support")
        def test_marked(address):
            with pytest.raises(NetworkBlocked, match="127.0.0.1.*--agentor-record=new"):
                socket.create_connection(address)
            with pytest.raises(NetworkBlocked):
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", address)
            with pytest.raises(NetworkBlocked):
                socket.getaddrinfo("example.com", 443)
            socket.socketpair()[0].close()

        def test_fixture(address, agentor_store):
            with pytest.raises(NetworkBlocked):
                socket.create_connection(address)

        def test_free_again(address):
            socket.create_connection(address).close()
        """
    )
    project.runpytest_subprocess("-W", "ignore").assert_outcomes(passed=4)


def test_nothing_of_agentor_is_imported_before_a_test_asks_for_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys, pytest

        def test_before():
            assert not [name for name in sys.modules if name.split(".")[0] == "agentor"]

        @pytest.mark.agentor(run="runs/r.jsonl", agent="app:support")
        def test_report(agentor_report):
            assert agentor_report.ok
            assert "litellm" not in sys.modules
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_the_store_holds_the_marked_run_and_the_original_is_not_touched(project: pytest.Pytester) -> None:
    before = (project.path / "runs" / "r.jsonl").read_bytes()
    project.makepyfile(
        """
        import pytest
        from app import made

        @pytest.mark.agentor(run="runs/r.jsonl")
        def test_follow_up(agentor_store, agentor_replay):
            agent = made(store=agentor_store)
            assert agent.resume("r").text == "done"
            assert agent.fork("r", at_turn=1).text == "done"
            assert agentor_replay(agent, run="r").ok

        def test_empty(agentor_store):
            assert agentor_store.list_runs() == []
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)
    assert (project.path / "runs" / "r.jsonl").read_bytes() == before


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_cassettes_are_recorded_on_demand_and_played_without_network(
    project: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(
        """
        import os, pytest
        from agentor import Agentor

        @pytest.mark.parametrize("place", ["Rome", "Paris", "Köln/Bonn"])
        def test_weather(place, agentor_cassette):
            agent = Agentor("a", model="openai/gpt-4o-mini", api_key="x", base_url=os.environ["PLACE"])
            result = agent.run(f"Say hello to {place}.")
            assert result.status == "completed", result.error
        """
    )
    with OpenAIChat() as server:
        monkeypatch.setenv("PLACE", server.url)
        first = project.runpytest_subprocess(*workers, "-W", "ignore")
        first.assert_outcomes(failed=3)  # --agentor-record=none
        first.stdout.fnmatch_lines(["*is not in the cassette*"])
        assert not server.requests
        recorded = project.runpytest_subprocess(*workers, "-W", "ignore", "--agentor-record=new")
        recorded.assert_outcomes(passed=3)
        assert len(server.requests) == 3
    folder = project.path / "cassettes"
    assert len(list(folder.glob("*/test_weather*.yaml"))) == 3
    project.runpytest_subprocess(*workers, "-W", "ignore").assert_outcomes(passed=3)
    changed = (next(project.path.glob("test_*.py"))).read_text().replace("Say hello", "Say good day")
    next(project.path.glob("test_*.py")).write_text(changed)
    project.runpytest_subprocess(*workers, "-W", "ignore").assert_outcomes(failed=3)


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('run="runs/nosuch.jsonl", agent="app:support"', "no run 'nosuch'"),
        ('run="runs/r.jsonl"', "which agent?"),
        ('agent="app:support"', "name the run"),
        ('run="runs/r.jsonl", model="gpt", agent="app:support"', "model must be 'recorded' or 'live'"),
        ('runs="runs/r.jsonl"', "has no runs; it takes"),
    ],
)
def test_what_is_missing_is_said(project: pytest.Pytester, marker: str, said: str) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.agentor({marker})
        def test_it(agentor_report):
            pass
        """
    )
    done = project.runpytest_subprocess()
    done.assert_outcomes(errors=1)
    assert said in done.stdout.str()


def test_works_in_workers_of_xdist(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from app import made, support

        @pytest.mark.parametrize("n", range(6))
        @pytest.mark.agentor(run="runs/r.jsonl", agent="app:support")
        def test_same(agentor_report, n):
            assert agentor_report.ok

        @pytest.mark.agentor(run="runs/r.jsonl", agent=made("Be long."))
        def test_other(agentor_report):
            agentor_report.check()
        """
    )
    done = project.runpytest_subprocess("-n", "2")
    done.assert_outcomes(passed=6, failed=1)
    done.stdout.fnmatch_lines(["*- Be brief.", "*+ Be long."])
