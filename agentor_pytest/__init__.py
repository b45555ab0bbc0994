"""The pytest plugin of agentor: recorded runs as tests, with the network blocked where they are.

It imports nothing of agentor until a test asks for it. `docs/replay.md` shows how to use it.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal  # Any: options of `replay`, and pytest's reports

import pytest

if TYPE_CHECKING:
    from agentor import Agentor, FileStore
    from agentor.replay import ReplayReport
    from agentor.testing.cassettes import Tape

FIXTURES = frozenset({"agentor_cassette", "agentor_replay", "agentor_report", "agentor_store"})
MARKER = "agentor(run, *, agent=None, tools='recorded', model='recorded', strict=True, cassette=None): "
_REPORTS = pytest.StashKey[list[str]]()
_SENDS = ("connect", "connect_ex", "sendto")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--agentor-record`."""
    parser.getgroup("agentor").addoption(
        "--agentor-record",
        choices=("none", "new", "all"),
        default="none",
        help="agentor_cassette: only play (none), also record what is not there (new), or all anew (all).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line("markers", MARKER + "a recorded run, a log's path beside the test's file.")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Block the network around the tests that use agentor's marker or fixtures."""
    used = FIXTURES & set(getattr(item, "fixturenames", ()))
    records = item.config.getoption("--agentor-record") != "none" and "agentor_cassette" in used
    if records or not (used or item.get_closest_marker("agentor")):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        for name in _SENDS:
            patch.setattr(socket.socket, name, _blocked(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _no_names)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:  # the report comes back from the yield
    """Show what a replay found: in place of a traceback, or below an assertion of the test's own."""
    report = yield
    found = item.stash.get(_REPORTS, [])
    if report.when == "call" and report.failed and call.excinfo is not None:
        kind = type(call.excinfo.value)
        if (kind.__module__, kind.__name__) == ("agentor.errors", "ReplayDrift"):
            report.longrepr = f"{item.nodeid}\n\n{call.excinfo.value}"
        else:
            report.sections += [("agentor replay", text) for text in found]
    return report


@pytest.fixture
def agentor_replay(request: pytest.FixtureRequest) -> Callable[..., ReplayReport]:
    """`agentor_replay(agent)`: the report of the marker's run, replayed by this agent.

    Keywords go over those of the marker: `run`, `tools`, `model`, `strict`.
    """
    marked = _marked(request)

    def replayed(agent: Agentor | str, **options: Any) -> ReplayReport:
        from agentor.replay import replay

        given = {**{k: v for k, v in marked.items() if k not in ("agent", "cassette")}, **options}
        run = given.pop("run", None)
        if run is None:
            raise pytest.UsageError('name the run: @pytest.mark.agentor(run="runs/support-42.jsonl")')
        is_path = isinstance(run, str) and run.endswith(".jsonl")
        report = replay(_agent(agent), _place(request, run) if is_path else run, **given)
        if not report.ok:
            request.node.stash.setdefault(_REPORTS, []).append(str(report))
        return report

    return replayed


@pytest.fixture
def agentor_report(
    request: pytest.FixtureRequest, agentor_replay: Callable[..., ReplayReport]
) -> ReplayReport:
    """The report of the marker's run, by its `agent=`, or by what the fixture `agentor_agent` gives."""
    agent = _marked(request).get("agent")
    return agentor_replay(request.getfixturevalue("agentor_agent") if agent is None else agent)


@pytest.fixture
def agentor_agent() -> Agentor:
    """The agent that is replayed; define a fixture of this name, or give the marker an `agent=`."""
    raise pytest.UsageError(
        'which agent? Give the marker agent="module:name", or define a fixture `agentor_agent`'
    )


@pytest.fixture
def agentor_store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    """A `FileStore` of the test's own, with the marker's run in it, to resume, follow up or fork."""
    from agentor import FileStore

    folder = tmp_path / "agentor"
    folder.mkdir()
    run = _marked(request).get("run")
    if isinstance(run, str):
        source = _place(request, run)
        shutil.copyfile(source, folder / source.name)
    return FileStore(folder)


@pytest.fixture
def agentor_cassette(request: pytest.FixtureRequest) -> Iterator[Tape]:
    """A cassette around the test: the marker's `cassette=`, or one named after the test, beside its file."""
    from agentor.testing.cassettes import cassette

    record: Literal["none", "new", "all"] = request.config.getoption("--agentor-record")
    named = _marked(request).get("cassette")
    if named is not None:
        path = _place(request, named)
    else:
        name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
        path = request.path.parent / "cassettes" / request.path.stem / f"{name}.yaml"
    if record != "none":
        path.parent.mkdir(parents=True, exist_ok=True)
    with cassette(path, record=record) as tape:
        yield tape


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("agentor")
    if marker is None:
        return {}
    given = dict(marker.kwargs)
    if marker.args:
        given["run"] = marker.args[0]
    known = {"run", "agent", "tools", "model", "strict", "cassette"}
    if unknown := sorted(set(given) - known):
        raise pytest.UsageError(f"@pytest.mark.agentor has no {', '.join(unknown)}; it takes {MARKER[8:-3]}")
    return given


def _place(request: pytest.FixtureRequest, name: str) -> Path:
    """A path beside the test's file, else from pytest's root."""
    places = [request.path.parent / name, request.config.rootpath / name]
    return next((place for place in places if place.exists()), places[0])


def _agent(agent: Agentor | str) -> Agentor:
    if not isinstance(agent, str):
        return agent
    module, _, name = agent.partition(":")
    found: Agentor = getattr(import_module(module), name)
    return found


def _blocked(real: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(self: socket.socket, *arguments: Any) -> Any:
        if self.family not in (socket.AF_INET, socket.AF_INET6):
            return real(self, *arguments)
        return _refuse(arguments[-1])

    return refuse


def _no_names(host: Any, *arguments: Any, **options: Any) -> Any:
    return _refuse(host)


def _refuse(address: Any) -> Any:
    from agentor.errors import NetworkBlocked

    raise NetworkBlocked(address)
