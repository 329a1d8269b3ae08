"""The door over real HTTP: OpenAI's shapes, headers, capture and consent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from contracts.ids import subject_hash
from infra.secrets import load_secrets
from tests.unit.serving.conftest import Deployment, change_tensor, policy


def test_an_answer_and_its_turn_agree(gateway: Deployment) -> None:
    headers = {"X-Episode-Id": "ep-7", "X-Parent-Turn-Id": "ep-7.1-0", "X-Agent-Role": "planner", "X-Group-Key": "g1"}
    response = gateway.ask("def add(", headers=headers, seed=3, temperature=0.5, logprobs=1, return_token_ids=True)
    body = response.json()
    assert response.status_code == 200 and body["object"] == "text_completion" and body["model"] == "tab"
    (choice,) = body["choices"]
    about = body["slipstream"]
    (turn,) = gateway.turns()
    assert (turn.turn_id, turn.episode_id) == (about["turn_id"], "ep-7")
    assert response.headers["X-Turn-Id"] == turn.turn_id and response.headers["X-Episode-Id"] == "ep-7"
    assert response.headers["X-Policy-Version"] == turn.version == about["version"] == "v1"
    assert (turn.parent_turn_id, turn.role, turn.group_key) == ("ep-7.1-0", "planner", "g1")
    assert list(turn.completion_ids) == choice["token_ids"] and list(turn.prompt_ids) == choice["prompt_token_ids"]
    assert turn.logps == pytest.approx(choice["logprobs"]["token_logprobs"], abs=1e-6)
    assert turn.text == choice["text"] and turn.finish == about["finish"]
    assert (turn.sampling.temperature, turn.sampling.seed, turn.sampling.max_tokens) == (0.5, 3, 10)
    assert (turn.arm, turn.propensity, turn.experiment, turn.consent) == ("champion", 1.0, None, True)
    assert turn.subject == subject_hash(load_secrets(gateway.settings.home).subject_key, "ada")
    assert body["usage"]["completion_tokens"] == len(turn.completion_ids) and about["captured"] is True
    again = gateway.ask("def add(", seed=3, temperature=0.5).json()
    assert again["choices"][0]["text"] == choice["text"] and again["slipstream"]["turn_id"] != turn.turn_id


def test_without_consent_only_a_count_is_left(gateway: Deployment) -> None:
    for consent in ({"X-Consent": "false"}, {"X-Consent": "FALSE"}, {}):
        response = gateway.http.post("/v1/completions", json={"model": "tab", "prompt": "a secret"}, headers=consent)
        assert response.status_code == 200 and response.json()["slipstream"]["captured"] is False
    pinned = gateway.ask(headers={"X-Policy-Version": "v1"})
    assert pinned.json()["slipstream"]["arm"] == "pinned"
    gateway.until(lambda: gateway.counted("turns_without_consent") == 3 and gateway.counted("turns_pinned") == 1)
    assert gateway.turns() == []
    kept = b"".join(file.read_bytes() for file in gateway.settings.home.rglob("*.db*") if file.is_file())
    assert b"secret" not in kept


WRONG = [
    ({"model": "tub"}, "model", "there are: tab"),
    ({"model": None}, "model", "string"),
    ({"prompt": None}, "prompt", "prompt"),
    ({"prompt": []}, "prompt", "empty"),
    ({"prompt": ["a", "b"]}, "prompt", "one prompt"),
    ({"prompt": [5, 99_999]}, "prompt", "token ids"),
    ({"temperature": -1}, "temperature", "greater than or equal to 0"),
    ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
    ({"n": 2}, "n", "1"),
    ({"logit_bias": {"5": 3.0}}, "logit_bias", "at most 0"),
]


def test_a_wrong_field_is_named(gateway: Deployment) -> None:
    for change, param, says in WRONG:
        response = gateway.http.post("/v1/completions", json={"model": "tab", "prompt": "x", **change})
        error = response.json()["error"]
        assert response.status_code == (404 if change.get("model") == "tub" else 400), change
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error" and error["param"] == param and says in error["message"], error


def test_errors_have_one_shape_everywhere(gateway: Deployment) -> None:
    bad = [
        gateway.http.post("/v1/completions", content=b"{not json"),
        gateway.http.post("/v1/nothing", json={}),
        gateway.http.get("/v1/completions"),
        gateway.ask(headers={"X-Consent": "perhaps"}),
        gateway.ask(headers={"X-Episode-Id": "a b"}),
        gateway.ask(headers={"X-Policy-Version": "v99"}),
        gateway.ask("x" * (5 << 20)),
    ]
    assert [response.status_code for response in bad] == [400, 404, 405, 400, 400, 404, 413]
    for response in bad:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert bad[3].json()["error"]["param"] == "x-consent"
    assert "v1" in bad[5].json()["error"]["message"]
    assert gateway.turns() == []


def test_a_chat_without_a_template_is_joined(gateway: Deployment) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    response = gateway.http.post(
        "/v1/chat/completions",
        json={"model": "tab", "messages": messages, "max_completion_tokens": 4, "logprobs": True},
        headers={"X-Consent": "true"},
    )
    body = response.json()
    (turn,) = gateway.turns()
    assert body["object"] == "chat.completion" and body["choices"][0]["message"] == {"role": "assistant", "content": turn.text}
    assert turn.sampling.max_tokens == 4 and len(body["choices"][0]["logprobs"]["content"]) == len(turn.completion_ids)


def test_a_stream_adds_up_to_the_answer(gateway: Deployment) -> None:
    for seed in range(4):
        whole = gateway.ask(seed=seed).json()
        pieces, ends = [], []
        body = {"model": "tab", "prompt": "import os\n", "seed": seed, "stream": True}
        with gateway.http.stream("POST", "/v1/completions", json=body, headers={"X-Consent": "true"}) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            turn_id = response.headers["X-Turn-Id"]
            lines = [line for line in response.iter_lines() if line]
        assert lines[-1] == "data: [DONE]"
        for line in lines[:-1]:
            event = json.loads(line.removeprefix("data: "))
            pieces.append(event["choices"][0]["text"])
            ends.append(event["choices"][0]["finish_reason"])
        assert "".join(pieces) == whole["choices"][0]["text"]
        assert ends[-1] == whole["choices"][0]["finish_reason"] and set(ends[:-1]) <= {None}
        assert event["slipstream"]["turn_id"] == turn_id and turn_id in {turn.turn_id for turn in gateway.turns()}


def test_models_and_health_name_the_version(gateway: Deployment) -> None:
    (listed,) = gateway.http.get("/v1/models").json()["data"]
    assert (listed["id"], listed["object"], listed["slipstream"]["champion"]) == ("tab", "model", "v1")
    health = gateway.health()
    assert health is not None and health["code"] == 200 and health["policies"]["tab"]["version"] == "v1"


def test_it_waits_for_a_routing_and_says_so(deploy: Callable[..., Deployment], models_made: dict[int, Path]) -> None:
    waiting = deploy()
    waiting.start()
    health = waiting.health()
    assert health is not None and health["code"] == 503 and health["status"] == "starting"
    refused = waiting.ask()
    assert refused.status_code == 503 and refused.json()["error"]["code"] == "not_ready"
    waiting.seal("v1", models_made[1])
    waiting.roll_out("v1")
    waiting.until(lambda: waiting.serves("v1"))
    assert waiting.ask().status_code == 200


def test_two_policies_side_by_side(deploy: Callable[..., Deployment], models_made: dict[int, Path]) -> None:
    both = deploy(policy("tab"), policy("chat"))
    both.seal("tab-v1", models_made[1])
    both.seal("chat-v1", models_made[2], name="chat")
    both.roll_out("tab-v1")
    both.roll_out("chat-v1", name="chat")
    both.start()
    both.until(lambda: both.serves("tab-v1") and both.serves("chat-v1", name="chat"))
    said = {name: both.ask(model=name, temperature=0.0).json() for name in ("tab", "chat")}
    assert {name: body["slipstream"]["version"] for name, body in said.items()} == {"tab": "tab-v1", "chat": "chat-v1"}
    assert {(turn.policy, turn.version) for turn in both.turns()} == {("tab", "tab-v1"), ("chat", "chat-v1")}
    assert both.ask(model="chat", headers={"X-Policy-Version": "tab-v1"}).status_code == 404


def test_bad_numbers_are_an_error_that_is_kept(deploy: Callable[..., Deployment], model: Callable[..., Path]) -> None:
    folder = model()
    one = deploy()

    def poison(weights: object) -> object:
        weights[5] = float("nan")  # type: ignore[index]
        return weights

    change_tensor(folder, "model.embed_tokens.weight", poison)  # type: ignore[arg-type]
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    clean = model()
    tensors = load_file(str(folder / "model.safetensors"))
    tensors["lm_head.weight"] = load_file(str(clean / "model.safetensors"))["model.embed_tokens.weight"].clone()
    save_file(tensors, str(folder / "model.safetensors"))
    one.seal("v1", folder)
    one.roll_out("v1")
    one.start()
    one.until(lambda: one.serves("v1"))
    failed = one.ask([5, 6])
    assert failed.status_code == 500 and failed.json()["error"]["code"] == "engine_error"
    (turn,) = one.turns()
    assert (turn.finish, turn.logps, turn.completion_ids, turn.spans) == ("error", None, (), ())
    assert failed.headers["X-Turn-Id"] == turn.turn_id


def test_a_client_that_goes_away_leaves_one_turn(gateway: Deployment) -> None:
    body = {"model": "tab", "prompt": "import os\n", "max_tokens": 100, "stream": True}
    names = []
    for _ in range(3):
        with gateway.http.stream("POST", "/v1/completions", json=body, headers={"X-Consent": "true"}) as response:
            names.append(response.headers["X-Turn-Id"])
            next(response.iter_raw())
    gateway.until(lambda: sum(gateway.log.ends("turns").values()) >= 3)
    turns = gateway.turns()
    assert sorted(turn.turn_id for turn in turns) == sorted(names)
    assert all(turn.logps is not None and len(turn.logps) == len(turn.completion_ids) for turn in turns)
    assert gateway.ask().status_code == 200
