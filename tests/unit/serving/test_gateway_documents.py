"""What the documents and the example for editors read out of an answer is where the gateway puts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.serving.conftest import Deployment

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = (ROOT / "ingest/sdk/typescript/examples/vscode.ts").read_text(encoding="utf-8")
COMPLETING, CHATTING = EXAMPLE.split("// Chat ---")
ASKS = {
    "/v1/completions": {"prompt": "import os\n"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
}


def read(code: str) -> Iterator[tuple[str, ...]]:
    """`answer.choices[0].text` and `const { turn_id } = answer.slipstream`, as the steps into the body."""
    for path in re.findall(r"\banswer\??((?:\.\w+|\[\d+\])+)(?![\w(])", code):
        if path != ".ok":  # of the response, not of its body
            yield tuple(re.findall(r"\w+", path))
    for names, path in re.findall(r"\{([^{}]+)\} = answer((?:\.\w+)+)", code):
        for name in re.findall(r"\w+", names):
            yield (*re.findall(r"\w+", path), name)


def follow(body: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        body = body[int(step)] if step.isdecimal() else body[step]
    return body


@pytest.mark.parametrize(("code", "path"), [(COMPLETING, "/v1/completions"), (CHATTING, "/v1/chat/completions")])
def test_the_example_reads_what_the_gateway_answers(gateway: Deployment, code: str, path: str) -> None:
    assert f'("{path}"' in code
    response = gateway.http.post(path, json={"model": "tab", **ASKS[path]}, headers={"X-Consent": "true"})
    steps = set(read(code))
    found = {each: follow(response.json(), each) for each in steps}
    (turn,) = gateway.turns()
    assert {each[-1]: found[each] for each in steps if each[-1] in ("turn_id", "episode_id")} == {
        "turn_id": turn.turn_id,
        "episode_id": turn.episode_id,
    }
    assert turn.text in found.values()


@pytest.mark.parametrize("file", ["docs/producers.md", "README.md"])
def test_the_documents_say_where_the_turn_is(gateway: Deployment, file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    named = set(re.findall(r"`(slipstream\.\w+_id)`", text))
    response = gateway.ask()
    body, (turn,) = response.json(), gateway.turns()
    assert "slipstream.turn_id" in named
    for path in named:
        assert follow(body, tuple(path.split("."))) == getattr(turn, path.removeprefix("slipstream.")), path
    for header in set(re.findall(r"`(X-(?:Turn|Episode)-Id)`", text)):
        assert response.headers[header] == (turn.turn_id if header == "X-Turn-Id" else turn.episode_id)
