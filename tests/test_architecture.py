"""The structure, held: which part may import which, how long a file may be, who touches a package."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60

# part -> its modules (a trailing dot: a package and all in it)
PARTS = {
    "errors": ["agentor.errors"],
    "strictjson": ["agentor.engine.strictjson"],
    "messages": ["agentor.engine.messages"],
    "events": [
        "agentor.engine.events",
        "agentor.engine.eventbase",
        "agentor.engine.eventkeys",
        "agentor.engine.words",
    ],
    "codec": ["agentor.engine.codec"],
    "threads": ["agentor.engine.threads"],
    "tools": ["agentor.tools", "agentor.schema", "agentor.tooltext"],
    "models": ["agentor.engine.models."],
    "transcript": ["agentor.engine.transcript", "agentor.engine.state", "agentor.engine.opencalls"],
    "store": ["agentor.engine.store."],
    "redact": ["agentor.engine.redact"],
    "journal": ["agentor.engine.journal", "agentor.engine.observer", "agentor.engine.cancel"],
    "policy": ["agentor.engine.policy", "agentor.engine.decisions", "agentor.engine.budget"],
    "loop": [
        "agentor.engine.loop",
        "agentor.engine.calls",
        "agentor.engine.compaction",
        "agentor.engine.asking",
        "agentor.engine.children",
        "agentor.engine.recording",
        "agentor.engine.reuse",
    ],
    "result": ["agentor.engine.result"],
    "trace": [
        "agentor.engine.trace",
        "agentor.engine.spans",
        "agentor.engine.lineage",
        "agentor.engine.segment",
    ],
    "recovery": [
        "agentor.engine.recovery",
        "agentor.engine.forkpoint",
        "agentor.engine.edits",
        "agentor.engine.fingerprint",
        "agentor.engine.start",
        "agentor.engine.steering",
        "agentor.engine.stored",
    ],
    "chat": ["agentor.chat"],
    "agent": [
        "agentor.agent",
        "agentor.branching",
        "agentor.control",
        "agentor.subagent",
        "agentor.inputs",
        "agentor.starts",
        "agentor.tracer",
    ],
    "testing": ["agentor.testing."],
    "replay": ["agentor.replay."],
    "cli": ["agentor.cli."],
    "package": ["agentor", "agentor.engine"],
}
LOOP = {
    "messages",
    "events",
    "tools",
    "models",
    "transcript",
    "policy",
    "journal",
    "trace",
    "threads",
    "strictjson",
}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "strictjson": set(),
    "threads": set(),
    "messages": {"strictjson"},
    "events": {"messages", "strictjson"},
    "codec": {"events", "strictjson"},
    "tools": {"messages", "strictjson", "threads"},
    "models": {"messages", "strictjson", "threads"},
    "transcript": {"messages", "events", "strictjson"},
    "store": {"messages", "events", "codec", "transcript", "trace", "strictjson", "threads"},
    "redact": {"events", "messages", "strictjson"},
    "journal": {"events", "store"},
    "policy": {"messages", "events", "transcript", "strictjson"},
    "loop": LOOP,
    "result": {"messages", "events", "transcript", "trace", "policy"},
    "trace": {"messages", "events", "transcript"},
    "recovery": {*LOOP, "loop", "store", "result"},
    "chat": {"events", "strictjson"},
    "agent": {*LOOP, "loop", "store", "result", "recovery", "chat", "threads", "tools", "redact"},
    "testing": {"messages", "events", "models", "store", "strictjson", "redact"},
    # It looks at an agent with the engine's own eyes: what a request holds, whether a call would run.
    "replay": {
        "messages",
        "events",
        "codec",
        "transcript",
        "loop",
        "recovery",
        "result",
        "redact",
        "store",
        "threads",
        "strictjson",
        "tools",
        "agent",
        "testing",
    },
    "cli": {
        "events",
        "codec",
        "transcript",
        "threads",
        "strictjson",
        "store",
        "result",
        "trace",
        "agent",
        "tools",
        "replay",
        "redact",
        "policy",
    },
    "package": {name for name in PARTS if name not in ("package", "cli", "testing", "replay")},
}
OWNERS = {  # third-party package -> the module, or part of its name, that may import it
    "litellm": "agentor.engine.models.litellm",
    "pydantic": "agentor.schema",
    "docstring_parser": "agentor.schema",
    "opentelemetry": "agentor_exporters",
    "psycopg": "agentor.engine.store.postgres",
    "psycopg_pool": "agentor.engine.store.postgres",
    "obstore": "agentor.engine.store.objects",
    "typer": "agentor.cli",
    "vcr": "agentor.testing.cassettes",
    "rich": "agentor.cli",
}


def modules(root: Path) -> dict[str, Path]:
    """Every module of the source tree, by its dotted name."""
    found = {}
    for base in (root, root / "exporters"):
        for package in ("agentor", "agentor_exporters"):
            for path in sorted((base / package).rglob("*.py")):
                name = ".".join(path.relative_to(base).with_suffix("").parts)
                found[name.removesuffix(".__init__")] = path
    return found


def part_of(module: str) -> str | None:
    for part, names in PARTS.items():
        for name in names:
            if module == name.removesuffix(".") or (name.endswith(".") and module.startswith(name)):
                return part
    return None


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module, line, inside a function) for each import of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, node in inner
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno, node in inner


def violations(root: Path) -> list[str]:
    """Every breach of the map, the limits and the owners, as readable lines."""
    known, found = modules(root), []
    for module, path in known.items():
        part = part_of(module)
        if part is None and not module.startswith("agentor_exporters"):
            found.append(f"{module} is in no part: add it to PARTS, beside what changes with it")
            continue
        found += _limits(module, path)
        for name, line, inside in imports(path):
            package = name.split(".")[0]
            if package in OWNERS and not module.startswith(OWNERS[package]):
                found.append(f"{module}:{line} imports {package}; only {OWNERS[package]} may")
            if package != "agentor" or part is None:
                continue
            target = name if name in known else name.rpartition(".")[0]
            other = part_of(target)
            if inside and part not in ("package", "cli"):
                found.append(f"{module}:{line} imports {target} inside a function")
            if other not in (part, "errors", "package") and other not in ALLOWED[part]:
                found.append(f"{module}:{line} ({part}) may not import {target} ({other})")
            if other == "package" and target != "agentor.engine" and part != "cli":
                found.append(f"{module}:{line} imports the package itself")
    return found + [f"cycle: {' -> '.join(c)}" for c in cycles(known)]


def _limits(module: str, path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    found = []
    if (lines := text.count("\n")) > MAX_FILE_LINES:
        found.append(f"{module} has {lines} lines, more than {MAX_FILE_LINES}: split it")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [
                n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
            ]
            length = (node.end_lineno or 0) - (body or node.body)[0].lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(f"{module}.{node.name} has {length} lines, more than {MAX_FUNCTION_LINES}")
    return found


def cycles(known: dict[str, Path]) -> list[list[str]]:
    """Import cycles among modules."""
    edges = {m: set() for m in known}  # type: dict[str, set[str]]
    for module, path in known.items():
        for name, _, inside in imports(path):
            target = name if name in known else name.rpartition(".")[0]
            if (
                target in known
                and target != module
                and not inside
                and target not in ("agentor", "agentor.engine")
            ):
                edges[module].add(target)
    found, done = [], set()

    def visit(module: str, trail: list[str]) -> None:
        if module in trail:
            found.append([*trail[trail.index(module) :], module])
        elif module not in done:
            for target in sorted(edges[module]):
                visit(target, [*trail, module])
            done.add(module)

    for module in sorted(edges):
        if module != "agentor":
            visit(module, [])
    return found


def test_the_source_tree_keeps_to_its_map() -> None:
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("agentor/engine/messages.py", "from agentor.engine import loop\n", "may not import"),
        ("agentor/engine/journal.py", "import litellm\n", "only agentor.engine.models.litellm may"),
        ("agentor/engine/stray.py", "x = 1\n", "is in no part"),
        ("agentor/engine/loop.py", "x = 1\n" * 401, "more than 400"),
        ("agentor/engine/loop.py", "def f():\n" + "    x = 1\n" * 61, "more than 60"),
        ("agentor/engine/loop.py", "def f():\n    from agentor.engine import events\n", "inside a function"),
    ],
)
def test_a_breach_is_named(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    for package in ("agentor", "agentor/engine"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "agentor/engine/loop.py").touch()
    (tmp_path / "agentor/engine/events.py").touch()
    (tmp_path / file).write_text(text)
    assert any(complaint in line for line in violations(tmp_path))


def test_a_cycle_is_named(tmp_path: Path) -> None:
    (tmp_path / "agentor/engine").mkdir(parents=True)
    (tmp_path / "agentor/engine/events.py").write_text("from agentor.engine.codec import x\n")
    (tmp_path / "agentor/engine/codec.py").write_text("from agentor.engine.events import x\n")
    assert any(line.startswith("cycle:") for line in violations(tmp_path))


def test_importing_agentor_loads_nothing_heavy() -> None:
    heavy = ["litellm", "pydantic", "opentelemetry", "typer", "rich", "asyncio", "dataclasses"]
    code = f"import sys, agentor; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
