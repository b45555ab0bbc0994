"""No secret gets into a cassette, wherever it was on its way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from wire import Reply, Wire, chat

from agentor import LiteLLMModel, ModelSettings, Redactor
from agentor.errors import CassetteMiss
from agentor.testing.cassettes import cassette

CANARY = "canary{}-0f8e7d6c5b4a3928"
PLACES = ("header", "query", "body", "answer", "error", "cookie", "org", "path")
KEYS = {place: CANARY.format(place) for place in PLACES}


def reply(body: Any, status: int = 200) -> Reply:
    headers = {
        "set-cookie": f"session={KEYS['cookie']}",
        "openai-organization": KEYS["org"],
        "location": f"http://127.0.0.1:1/?key={KEYS['query']}",
        "x-request-id": "req_1",
    }
    return Reply(body, status, headers)


def test_nothing_secret_is_recorded_and_what_is_recorded_still_plays(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    redactor = Redactor(content=True, environment={f"{k.upper()}_TOKEN": v for k, v in KEYS.items()})
    question = {"q": "x", "password": KEYS["body"]}
    answers = [
        reply({"text": f"your key is {KEYS['answer']}", "api_key": KEYS["answer"]}),
        reply({"error": {"message": f"Incorrect API key provided: {KEYS['header']}"}}, 401),
        reply(f'data: {{"text": "{KEYS["answer"]}"}}\n\ndata: [DONE]\n\n'),
    ]

    def ask(url: str) -> list[str]:
        headers = {"authorization": f"Bearer {KEYS['header']}", "openai-organization": KEYS["org"]}
        ask_url = f"{url}/v1/{KEYS['path']}?key={KEYS['query']}&subscription-key=sk-abc&alt=sse"
        return [httpx.post(ask_url, json=question, headers=headers).text for _ in answers]

    with Wire(answers) as wire, cassette(path, record="all", redactor=redactor):
        live = ask(wire.url)
    text = path.read_text()
    assert [place for place, key in KEYS.items() if key in text] == []
    assert "alt=sse" in text
    assert "sk-abc" not in text
    with cassette(path, redactor=redactor) as tape:  # the server is gone
        again = ask(wire.url)
    assert tape.left == 0
    assert KEYS["answer"] in live[0]
    assert json.loads(again[0]) == {"text": "your key is [redacted]", "api_key": "[redacted]"}


async def test_a_key_that_comes_back_in_an_answer_is_taken_out_whatever_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    with Wire([chat({"content": f"I was called with {KEYS['header']}"})]) as wire:
        settings = ModelSettings(extra_headers={"x-auth-token": KEYS["org"]})
        model = LiteLLMModel("openai/m", api_key=KEYS["header"], base_url=f"{wire.url}/v1", settings=settings)
        with cassette(path, record="new", redactor=Redactor(environment={})):
            await model.complete([{"role": "user", "content": KEYS["org"]}])
    assert [key for key in (KEYS["header"], KEYS["org"]) if key in path.read_text()] == []


def test_a_secret_in_pieces_is_pointed_out(tmp_path: Path) -> None:
    pieces = [f'data: {{"text": "{KEYS["answer"][:8]}"}}', f'data: {{"text": "{KEYS["answer"][8:]}"}}']
    redactor = Redactor(environment={"A_TOKEN": KEYS["answer"]})
    with (
        Wire([Reply("\n\n".join(pieces))]) as wire,
        pytest.warns(UserWarning, match="in pieces"),
        cassette(tmp_path / "c.yaml", record="new", redactor=redactor),
    ):
        httpx.post(f"{wire.url}/v1", json={})


@pytest.mark.parametrize("other", [{"n": True}, {"n": 1.0}, {"n": "1"}])
def test_values_of_other_types_do_not_match(tmp_path: Path, other: dict[str, Any]) -> None:
    path = tmp_path / "c.yaml"
    with Wire([Reply({"ok": 1})]) as wire, cassette(path, record="new"):
        httpx.post(f"{wire.url}/v1", json={"n": 1})
    with cassette(path), pytest.raises(CassetteMiss):
        httpx.post(f"{wire.url}/v1", json=other)


@pytest.mark.parametrize(
    "text",
    [
        "interactions: !!python/object/apply:os.system ['touch pwned']",
        "interactions:\n- request: !!python/object/new:os.system ['touch pwned']\n",
    ],
)
def test_a_cassette_runs_no_code(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.yaml"
    path.write_text(text)
    with pytest.raises((ValueError, yaml.YAMLError)), cassette(path):
        pass
    assert not (tmp_path / "pwned").exists()
