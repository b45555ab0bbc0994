"""Every Python block of the README runs, in order, against a model server on loopback."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from scenarios import SCENARIOS
from servers.otlp import Receiver

from agentor.cli.demo_server import DemoServer
from agentor.testing.cassettes import cassette

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STORES = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
TRACING = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
PROVIDERS = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
REPLAY = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")


def test_the_readme_runs_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 7
    (tmp_path / "readme.py").write_text("\n".join(blocks))
    with DemoServer() as server:
        server.release.set()
        env = {**os.environ, "OPENAI_API_KEY": "test", "OPENAI_BASE_URL": server.base_url}
        done = subprocess.run(
            [sys.executable, "readme.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert "Order A-1042 is paid" in done.stdout
    assert "completed" in done.stdout
    # The run, both streams and the fork from before the charge; not the resume, nor the fork at the end.
    assert len((tmp_path / "ledger.txt").read_text().splitlines()) == 4
    assert len(list((tmp_path / "runs").glob("*.jsonl"))) == 5


def test_the_documented_run_of_a_real_model_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (scenario,) = [s for s in SCENARIOS if s.name == "documented"]
    first, script = re.findall(r"```python\n(.*?)```", PROVIDERS, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(first, "first", "exec"), {})
    capsys.readouterr()
    for command in ("run", "resume"):
        monkeypatch.setattr(sys, "argv", ["weather.py", command])
        with cassette(scenario.path):
            exec(compile(script, "weather.py", "exec"), {"__name__": "weather"})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "  get_weather('London') runs"
    assert printed[1] == printed[2]  # the resume calls nothing
    assert printed[1].startswith("completed | The weather in London is sunny")


def test_the_documented_upkeep_runs_and_the_documented_store_conforms(tmp_path: Path) -> None:
    upkeep, store, test = re.findall(r"```python\n(.*?)```", STORES, flags=re.DOTALL)
    for name, text in (("upkeep.py", upkeep), ("my_store.py", store), ("test_my_store.py", test)):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "test_my_store.py"]
    for arguments in ([sys.executable, "upkeep.py"], command):
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(arguments, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    statements = re.findall(r"```sql\n(.*?)```", STORES, flags=re.DOTALL)[0].split(";")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        for statement in statements:
            db.execute(statement)
    assert "passed" in done.stdout
    assert "this store has no 'lease', which is optional" in done.stdout


def test_the_documented_tracing_runs_against_a_receiver(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TRACING, flags=re.DOTALL)
    assert len(blocks) == 3
    (tmp_path / "tracing.py").write_text("\n".join(blocks))
    with Receiver() as receiver:
        env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        done = subprocess.run(
            [sys.executable, "tracing.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "0 spans sent, 4 were there\n"
        assert len(receiver.spans()) == 4


def test_the_readme_names_both_commands() -> None:
    assert "make demo" in README
    assert "make test" in README


SHOP = '''
from agentor import Agentor, FileStore, function_tool
from agentor.testing import ScriptedModel, call

@function_tool
def find(order: int) -> str:
    """Find an order."""
    return f"order {order} is paid"

@function_tool
def refund(order: int, amount: AMOUNT) -> str:
    """Give money back."""
    return f"{amount} given back"

STEPS = [call("find", {"order": 7}), call("refund", {"order": 7, "amount": 5}), "It is done."]

def made(instructions="You help customers of a SHOP.", store=None):
    return Agentor("support", instructions, ScriptedModel(STEPS), [find, refund], store=store)

support = made()
'''


def shop(folder: Path, *, amount: str = "float", kind: str = "shop") -> None:
    (folder / "shop.py").write_text(SHOP.replace("AMOUNT", amount).replace("SHOP", kind))


def test_the_documented_replay_runs_as_it_is_shown(tmp_path: Path) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": ".", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)

    agentor = [sys.executable, "-c", "from agentor.cli.main import main; main()"]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    tests, script, fork = re.findall(r"```python\n(.*?)```", REPLAY, flags=re.DOTALL)
    shop(tmp_path)
    record = "import agentor, shop; shop.made(store=agentor.FileStore('runs')).run('Order 7?', run_id='support-42')"
    assert run(sys.executable, "-c", record).returncode == 0
    (console,) = re.findall(r"```console\n\$ agentor (.*?)\n(.*?)```", REPLAY, flags=re.DOTALL)
    exported = run(*agentor, *console[0].split())
    assert (exported.returncode, exported.stdout) == (0, console[1])
    (tmp_path / "tests" / "test_by_hand.py").write_text(tests)
    done = run(*pytest_)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    (tmp_path / "script.py").write_text(script + fork)
    printed = run(sys.executable, "script.py")
    assert printed.returncode == 0, printed.stderr
    assert "+ Sell books." in printed.stdout
    assert "runs 'support-42' (-) and" in printed.stdout
    (line,) = [text for text in REPLAY.splitlines() if "--junit replay.xml" in text]
    shell = line.partition("run: agentor ")[2].replace("tests/runs/*.jsonl", "tests/runs/support-42.jsonl")
    assert run(*agentor, *shell.split()).returncode == 0
    assert (tmp_path / "replay.xml").exists()
    shop(tmp_path, amount="str", kind="bookshop")
    changed = run(*pytest_)
    assert changed.returncode == 1
    (shown,) = re.findall(r"```text\n(.*?)```", REPLAY, flags=re.DOTALL)
    assert shown.strip() in changed.stdout, changed.stdout
