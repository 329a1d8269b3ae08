"""The swap contract: a new version comes in under load, a broken one never does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import torch

from contracts.turn import Turn
from infra.clock import system_clock
from infra.db.engine import writing
from infra.db.tables.learner import CheckpointRow
from serving.config import ServingConfig
from serving.loop import serve_policy
from serving.replica import Replica
from serving.swap import UnknownVersion
from tests.unit.serving.conftest import Deployment, Make, change_tensor, policy, write_model, write_tokenizer
from tests.unit.serving.test_torch_engine import adapter, reference


def recomputed(turn: Turn, folder: Path) -> None:
    assert turn.logps is not None
    expected = reference(folder, list(turn.prompt_ids), list(turn.completion_ids), turn.sampling.temperature)
    assert turn.logps == pytest.approx(expected, abs=1e-3)


async def load(url: str, clients: int, seen: list[tuple[int, str]], enough: Callable[[], bool]) -> None:
    """Clients that ask again and again until `enough`; status and version of each answer go to `seen`."""

    async def client(number: int, session: aiohttp.ClientSession) -> None:
        while not enough():
            headers = {"X-Consent": "true", "X-Subject": f"dev-{number}-{len(seen)}"}
            async with session.post(
                f"{url}/v1/completions", json={"model": "tab", "prompt": "for x in "}, headers=headers
            ) as response:
                body = await response.json()
                seen.append((response.status, body.get("slipstream", {}).get("version", "")))

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(client(number, session) for number in range(clients)))


def test_swaps_under_load_fail_no_request(gateway: Deployment, models_made: dict[int, Path], model: Make) -> None:
    broken = model()
    change_tensor(broken, "model.norm.weight", lambda w: w * torch.nan)
    gateway.seal("v2", models_made[2])
    gateway.seal("v3", models_made[3])
    gateway.seal("bad", broken)
    seen: list[tuple[int, str]] = []

    def step(champion: str, candidate: str | None, share: float) -> None:
        gateway.roll_out(champion, candidate, share)
        gateway.until(lambda: gateway.serves(champion, candidate))
        before = len(seen)
        gateway.until(lambda: {version for _, version in seen[before:]} >= {champion, candidate or champion})

    plan = [("v1", "v2", 0.5), ("v2", None, 0.0), ("v2", "v3", 0.3), ("v2", None, 0.0)]

    async def drive() -> None:
        done = False
        clients = asyncio.create_task(load(gateway.url, 12, seen, lambda: done))
        for champion, candidate, share in plan:
            await asyncio.to_thread(step, champion, candidate, share)
        await asyncio.to_thread(gateway.roll_out, "v2", "bad", 0.5)
        await asyncio.to_thread(gateway.until, lambda: (row := gateway.replica("bad")) is not None and row.state == "failed")
        done = True
        await clients

    asyncio.run(drive())
    assert {status for status, _ in seen} == {200}
    turns = gateway.turns()
    assert len(turns) == len(seen) and {version for _, version in seen} == {"v1", "v2", "v3"}
    folders = {f"v{seed}": folder for seed, folder in models_made.items()}
    for version, folder in folders.items():
        mine = [turn for turn in turns if turn.version == version and turn.completion_ids]
        assert mine
        for turn in mine[:15]:
            recomputed(turn, folder)
    for turn in turns:
        if turn.experiment is None:
            assert (turn.arm, turn.propensity, turn.step) == ("champion", 1.0, None)
        else:
            share = {"tab-v2": 0.5, "tab-v3": 0.3}[turn.experiment]
            assert turn.propensity == pytest.approx(share if turn.arm == "candidate" else 1 - share)


def truncated(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def other_tokenizer(folder: Path) -> None:
    write_tokenizer(folder, first_word="class Zebra quagga")


def renamed(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"model.', b'"modem.'))


def bad_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"num_attention_heads": 5}
    (folder / "config.json").write_text(json.dumps(config))


BROKEN_BEFORE_SEALING: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (truncated, "its header describes"),
    "nan": (lambda f: change_tensor(f, "model.layers.1.mlp.up_proj.weight", lambda w: w * torch.nan), "not finite"),
    "shape": (lambda f: change_tensor(f, "model.layers.0.self_attn.q_proj.weight", lambda w: w[:-8]), "has shape"),
    "dtype": (lambda f: change_tensor(f, "model.norm.weight", torch.Tensor.double), "is F64"),
    "tokenizer": (other_tokenizer, "another tokenizer"),
    "names": (renamed, "none of the"),
    "config": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "heads": (bad_config, "do not fit its config.json"),
    "weights": (lambda f: (f / "model.safetensors").unlink(), "has no model"),
}


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


BROKEN_AFTER_SEALING: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "is missing"),
    "flipped": (flip, "other bytes"),
    "short": (cut, "were sealed"),
}


def test_a_broken_checkpoint_leaves_the_old_one_serving(gateway: Deployment, model: Make, tmp_path: Path) -> None:
    said: dict[str, str] = {}

    def offer(version: str) -> None:
        gateway.roll_out("v1", version, 0.9)
        gateway.until(lambda: (row := gateway.replica(version)) is not None and row.state == "failed")
        said[version] = ((row := gateway.replica(version)) and row.reason) or ""
        answered = gateway.ask(headers={"X-Subject": version}).json()["slipstream"]
        assert (answered["version"], answered["arm"]) == ("v1", "champion")

    for name, (damage, sentence) in BROKEN_BEFORE_SEALING.items():
        folder = model()
        damage(folder)
        gateway.seal(name, folder)
        offer(name)
        assert sentence in said[name], said[name]
        assert "\n" not in said[name]
    for name, damage, sentence in (
        ("gone", Path.unlink, "is missing"),
        ("flipped", flip, "other bytes"),
        ("short", cut, "were sealed"),
    ):
        gateway.seal(name, model())
        damage(gateway.settings.artifact_root / name / "model.safetensors")
        offer(name)
        assert sentence in said[name], said[name]
    write_model(tmp_path / "deep", 1, layers=3)
    gateway.seal("deep", tmp_path / "deep")
    offer("deep")
    assert "differ in 9 tensors" in said["deep"]
    assert {(turn.version, turn.experiment, turn.propensity) for turn in gateway.turns()} == {("v1", None, 1.0)}
    named = gateway.ask(headers={"X-Policy-Version": "deep"})
    assert named.status_code == 503 and "differ in 9 tensors" in named.json()["error"]["message"]


def test_versions_are_loaded_by_name_and_the_least_used_goes(
    deploy: Callable[..., Deployment], models_made: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_SERVING_MAX_VERSIONS", "3")
    small = deploy()
    for number in range(1, 7):
        small.seal(f"v{number}", models_made[1 + number % 3])
    small.roll_out("v1", "v2", 0.0)
    small.start()
    small.until(lambda: small.serves("v1", "v2"))
    for number in (3, 4, 5, 6):
        answered = small.ask(headers={"X-Policy-Version": f"v{number}"})
        assert answered.status_code == 200 and answered.json()["slipstream"]["version"] == f"v{number}"
        small.until(lambda: len((small.health() or {})["policies"]["tab"]["versions"]) <= 3)
        assert small.serves("v1", "v2"), "champion and candidate stay"
    assert (row := small.replica("v3")) is not None and row.state == "freed"
    assert small.ask(headers={"X-Policy-Version": "v3"}).json()["slipstream"]["version"] == "v3"


def test_an_adapter_finds_its_base_through_its_parents(gateway: Deployment, model: Make, tmp_path: Path) -> None:
    gateway.seal("v2", adapter(tmp_path / "lora"), kind="lora", parent="v1")
    gateway.seal("v3", adapter(tmp_path / "lora-2"), kind="lora", parent="v2")
    gateway.roll_out("v1", "v3", 0.0)
    gateway.until(lambda: gateway.serves("v1", "v3"))
    gateway.seal("alien", adapter(tmp_path / "lora-3", "encoder.block.7.v_proj"), kind="lora", parent="v1")
    refused = gateway.ask(headers={"X-Policy-Version": "alien"})
    assert refused.status_code == 503 and "would answer like the base" in refused.json()["error"]["message"]


def test_a_restart_marks_what_an_earlier_process_held(deploy: Callable[..., Deployment], models_made: dict[int, Path]) -> None:
    one = deploy()
    one.seal("v1", models_made[1])
    one.seal("v2", models_made[2])
    one.roll_out("v1", "v2", 0.0)
    one.start()
    one.until(lambda: one.serves("v1", "v2"))
    first = one.ask(headers={"X-Episode-Id": "ep-1"}).json()["slipstream"]["turn_id"]
    one.close()
    one.roll_out("v1")
    again = one.again()
    again.until(lambda: again.serves("v1"))
    second = again.ask(headers={"X-Episode-Id": "ep-1"}).json()["slipstream"]["turn_id"]
    assert first != second
    assert (row := again.replica("v2")) is not None and row.state == "freed"
    assert (row := again.replica("v1")) is not None and row.state == "ready" and row.load_ms is not None
    again.close()


def test_a_damaged_record_is_a_sentence(gateway: Deployment, models_made: dict[int, Path]) -> None:
    checkpoint = gateway.seal("v2", models_made[2])
    with writing(gateway.database) as session:
        row = session.get(CheckpointRow, "v2")
        assert row is not None
        row.body = checkpoint.model_copy(update={"uri": "s3://bucket/v2"}).model_dump_json()
        session.add(row)
    refused = gateway.ask(headers={"X-Policy-Version": "v2"})
    assert refused.status_code == 503 and "only file:// can be fetched" in refused.json()["error"]["message"]
    assert gateway.ask().status_code == 200


def test_a_version_is_loaded_once_however_often_it_is_wanted(
    deploy: Callable[..., Deployment], models_made: dict[int, Path]
) -> None:
    one = deploy()
    one.seal("v1", models_made[1])
    replica = Replica(one.database, "gateway-1", system_clock)
    served = serve_policy(policy(), one.database, replica, ServingConfig())
    try:
        first, second = served.swap.want("v1"), served.swap.want("v1")
        assert first is second
        first.result(60)
        assert served.engine.versions() == set(served.swap.ready) == {"v1"}
        with pytest.raises(UnknownVersion):
            served.swap.want("v9").result(60)
        assert one.replica("v9") is None, "what does not exist has no state"
    finally:
        served.swap.close()
        served.engine.close()
