"""The torch engine against transformers' own forward pass."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from contracts.policy import Serving, Template
from contracts.turn import Sampling
from serving.engines import ENGINES
from serving.engines.port import Answer, BadPrompt, BrokenModel, Busy, Engine, Message, NotLoaded, Request
from tests.unit.serving.conftest import GROUPS, HEADS, HIDDEN, Make, change_tensor, policy

WAIT_S = 60


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = ENGINES.get("torch")(policy())
    yield made
    made.close()


@lru_cache(maxsize=8)
def network(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def reference(folder: Path, prompt: list[int], completion: list[int], temperature: float) -> list[float]:
    """Log-probs by transformers, one pass, no cache."""
    with torch.inference_mode():
        logits_TV = network(folder)(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    logp_TV = (logits_TV / temperature).log_softmax(-1)
    return [float(logp_TV[i, token]) for i, token in enumerate(completion)]


def ask(engine: Engine, prompt: list[int], version: str = "v1", **how: object) -> Answer:
    return engine.generate(Request(version, prompt, Sampling(**{"max_tokens": 10, **how}))).result(WAIT_S)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(3, 250) for _ in range(dice.randrange(1, 97))] for _ in range(count)]


def test_logps_are_those_of_the_distribution_sampled_from(engine: Engine, model: Make) -> None:
    folder = model()
    engine.load("v1", folder)
    asked = prompts(40)
    futures = [engine.generate(Request("v1", p, Sampling(temperature=0.7, max_tokens=10, seed=i))) for i, p in enumerate(asked)]
    for prompt, future in zip(asked, futures, strict=True):
        answer = future.result(WAIT_S)
        assert answer.logps is not None and answer.completion_ids
        expected = reference(folder, prompt, list(answer.completion_ids), 0.7)
        assert answer.logps == pytest.approx(expected, abs=1e-3)


def test_a_batch_never_changes_a_greedy_answer(engine: Engine, model: Make) -> None:
    engine.load("v1", model())
    asked = prompts(30, seed=3)
    alone = [ask(engine, prompt, temperature=0.0).completion_ids for prompt in asked]
    together = [engine.generate(Request("v1", p, Sampling(temperature=0.0, max_tokens=10))) for p in asked]
    assert [future.result(WAIT_S).completion_ids for future in together] == alone


def test_a_seed_repeats_its_answer_in_any_company(engine: Engine, model: Make) -> None:
    engine.load("v1", model())
    prompt = prompts(1)[0]
    first = ask(engine, prompt, seed=7)
    crowd = [engine.generate(Request("v1", p, Sampling(max_tokens=10))) for p in prompts(12, seed=5)]
    again = ask(engine, prompt, seed=7)
    for other in crowd:
        other.result(WAIT_S)
    assert again.completion_ids == first.completion_ids
    assert {ask(engine, prompt, seed=seed).completion_ids for seed in range(8)} > {first.completion_ids}


def test_truncated_sampling_renormalises(engine: Engine, model: Make) -> None:
    folder = model()
    engine.load("v1", folder)
    prompt = prompts(1, seed=9)[0]
    for how in ({"top_k": 3}, {"top_p": 0.5}, {"top_k": 5, "top_p": 0.6}):
        for seed in range(5):
            answer = ask(engine, prompt, temperature=0.8, max_tokens=4, seed=seed, **how)
            ids: list[int] = list(prompt)
            for token, logp in zip(answer.completion_ids, answer.logps or (), strict=True):
                with torch.inference_mode():
                    p_V = (network(folder)(torch.tensor([ids])).logits[0, -1] / 0.8).softmax(-1)
                ranked = sorted(range(len(p_V)), key=lambda v, p=p_V: -float(p[v]))[: how.get("top_k", len(p_V))]
                total, kept = sum(float(p_V[v]) for v in ranked), []
                mass = 0.0
                for v in ranked:
                    if mass >= how.get("top_p", 1.0):
                        break
                    kept.append(v)
                    mass += float(p_V[v]) / total
                assert token in kept
                assert logp == pytest.approx(float((p_V[token] / p_V[kept].sum()).log()), abs=1e-3)
                ids.append(token)


def biased(folder: Path, token: int) -> Path:
    """The model says `token` whatever it is asked: the last norm reads only one direction, which that token owns."""
    change_tensor(folder, "model.norm.weight", lambda w: torch.cat([torch.ones(1), torch.zeros(len(w) - 1)]))

    def own(w: torch.Tensor) -> torch.Tensor:
        w.zero_()
        w[:, 0] = 1.0
        w[token, 0] = 100.0
        return w

    change_tensor(folder, "model.embed_tokens.weight", own)
    for layer in range(2):
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            change_tensor(folder, f"model.layers.{layer}.{name}.weight", torch.zeros_like)
    return folder


def test_an_answer_says_why_it_ended(engine: Engine, model: Make) -> None:
    engine.load("silent", biased(model(), 1))
    engine.load("ended", biased(model(), 2))
    engine.load("talks", biased(model(), 40))
    engine.load("blank", biased(model(), engine.encode("ended", " ")[0]))
    prompt = engine.encode("ended", "import os")
    assert prompt[-1] == 0, "the token that asks comes last"
    silent = ask(engine, prompt, "silent")
    assert (silent.finish, silent.text, silent.completion_ids) == ("silence", "", (1,))
    assert silent.logps is not None and len(silent.logps) == 1
    ended = ask(engine, prompt, "ended")
    assert (ended.finish, ended.completion_ids) == ("empty", (2,))
    talks = ask(engine, prompt, "talks", max_tokens=5)
    assert (talks.finish, len(talks.completion_ids)) == ("length", 5)
    blank = ask(engine, prompt, "blank", max_tokens=5)
    assert (blank.finish, blank.text, len(blank.completion_ids)) == ("empty", "     ", 5)
    letter = talks.text[0]
    stopped = engine.generate(Request("talks", prompt, Sampling(max_tokens=8), stop=(letter * 3,))).result(WAIT_S)
    assert (stopped.finish, stopped.text, len(stopped.completion_ids)) == ("empty", "", 3)


def test_bad_numbers_end_one_request_and_leave_its_seat_clean(engine: Engine, model: Make) -> None:
    folder = model()

    def poison(w: torch.Tensor) -> torch.Tensor:
        w[77] = torch.nan
        return w

    # Untied: the head stays clean, so only those who say token 77 meet it.
    tensors = load_file(str(folder / "model.safetensors"))
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, str(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    engine.load("clean", folder)
    change_tensor(folder, "model.embed_tokens.weight", poison)
    engine.load("v1", folder)
    good = [p for p in prompts(20, seed=2) if 77 not in p]
    expected = [ask(engine, p, "clean", seed=1).completion_ids for p in good]
    usable = [(p, e) for p, e in zip(good, expected, strict=True) if 77 not in e]
    assert len(usable) > 5
    for _ in range(2):
        bad = [engine.generate(Request("v1", [5, 77, 6] * 20, Sampling(seed=1))) for _ in range(4)]
        fine = [engine.generate(Request("v1", p, Sampling(max_tokens=10, seed=1))) for p, _ in usable]
        for future in bad:
            answer = future.result(WAIT_S)
            assert (answer.finish, answer.logps, answer.completion_ids) == ("error", None, ())
        assert [future.result(WAIT_S).completion_ids for future in fine] == [e for _, e in usable]


def test_float16_weights_run_in_float32(engine: Engine, model: Make) -> None:
    folder = model()
    for name in load_file(str(folder / "model.safetensors")):
        change_tensor(folder, name, torch.Tensor.half)
    engine.load("v1", folder)
    answer = ask(engine, [5, 6, 7], seed=1)
    assert answer.logps == pytest.approx(reference(folder, [5, 6, 7], list(answer.completion_ids), 1.0), abs=1e-3)


def test_another_architecture_runs_in_waves(engine: Engine, model: Make) -> None:
    folder = model()
    config = json.loads((folder / "config.json").read_text())
    config |= {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}
    (folder / "config.json").write_text(json.dumps(config))
    engine.load("v1", folder)
    asked = prompts(20, seed=4)
    futures = [engine.generate(Request("v1", p, Sampling(max_tokens=6, seed=i))) for i, p in enumerate(asked)]
    for prompt, future in zip(asked, futures, strict=True):
        answer = future.result(WAIT_S)
        expected = reference(folder, prompt, list(answer.completion_ids), 1.0)
        assert answer.logps == pytest.approx(expected, abs=1e-3)


def adapter(folder: Path, prefix: str = "base_model.model.model.layers.0.self_attn.v_proj") -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    dice = torch.Generator().manual_seed(5)
    tensors = {
        f"{prefix}.lora_A.weight": torch.randn(2, HIDDEN, generator=dice),
        f"{prefix}.lora_B.weight": torch.randn(GROUPS * HIDDEN // HEADS, 2, generator=dice),
    }
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    return folder


def test_an_adapter_is_merged_over_its_base(engine: Engine, model: Make, tmp_path: Path) -> None:
    base, over = model(), adapter(tmp_path / "lora")
    engine.load("v0", base)
    engine.load("v1", over, base)
    by_hand = model()
    tensors = load_file(str(over / "adapter_model.safetensors"))
    down, up = (tensors[f"base_model.model.model.layers.0.self_attn.v_proj.lora_{x}.weight"] for x in "AB")
    change_tensor(by_hand, "model.layers.0.self_attn.v_proj.weight", lambda w: w + 2.0 * up @ down)
    answer = ask(engine, [5, 6, 7], seed=3)
    assert answer.logps == pytest.approx(reference(by_hand, [5, 6, 7], list(answer.completion_ids), 1.0), abs=1e-3)


def test_an_adapter_that_fits_nothing_is_refused(engine: Engine, model: Make, tmp_path: Path) -> None:
    with pytest.raises(BrokenModel, match="fits nothing"):
        engine.load("v1", adapter(tmp_path / "lora", "model.layers.0.attention.v"), model())


def test_versions_come_and_go_while_requests_run(engine: Engine, model: Make) -> None:
    engine.load("v1", model(1))
    engine.load("v2", model(2))
    assert engine.versions() == {"v1", "v2"}
    running = [engine.generate(Request("v1", p, Sampling(max_tokens=10))) for p in prompts(20)]
    engine.free("v1")
    assert engine.versions() == {"v2"}
    with pytest.raises(NotLoaded):
        engine.generate(Request("v1", [5], Sampling()))
    assert all(future.result(WAIT_S).finish != "error" for future in running)
    assert ask(engine, [5, 6], "v2").finish != "error"


def test_prompts_that_the_model_cannot_take(engine: Engine, model: Make) -> None:
    engine.load("v1", model())
    for prompt in ([], [5] * 128, [5, 4000], [-1]):
        with pytest.raises(BadPrompt):
            engine.generate(Request("v1", prompt, Sampling()))
    assert len(ask(engine, [5] * 125, max_tokens=10, temperature=0.0).completion_ids) <= 3


def test_a_crowd_is_told_to_come_back(model: Make) -> None:
    small = ENGINES.get("torch")(policy(serving=Serving(batch=1, max_tokens=10)))
    try:
        small.load("v1", model())
        with pytest.raises(Busy):
            for prompt in prompts(500):
                small.generate(Request("v1", prompt, Sampling(max_tokens=10)))
    finally:
        small.close()


def test_an_abort_keeps_what_was_sampled(engine: Engine, model: Make) -> None:
    engine.load("v1", biased(model(), 40))
    abort, heard = threading.Event(), []

    def hear(token: int) -> None:
        heard.append(token)
        if len(heard) == 3:
            abort.set()

    answer = engine.generate(Request("v1", [5], Sampling(max_tokens=50), on_token=hear, abort=abort)).result(WAIT_S)
    assert (answer.finish, answer.completion_ids, heard) == ("abort", (40,) * 3, [40] * 3)
    assert answer.logps is not None and len(answer.logps) == 3


def test_special_tokens_in_a_prompt_are_text(engine: Engine, model: Make) -> None:
    engine.load("v1", model())
    assert 1 not in engine.encode("v1", "say <silence> now")
    chat = engine.encode_chat("v1", [Message("user", "hello")])
    assert engine.decode("v1", chat[:-1]) == "user: hello\nassistant:" and chat[-1] == 0


def test_a_template_token_that_the_tokenizer_lacks(model: Make) -> None:
    other = ENGINES.get("torch")(policy(template=Template(ask="<fim>")))
    try:
        with pytest.raises(BrokenModel, match="no token '<fim>'"):
            other.load("v1", model())
    finally:
        other.close()


def test_a_chat_template_is_obeyed(engine: Engine, model: Make) -> None:
    folder = model()
    template = "{% for m in messages %}{{ m['role'] }}={{ m['content'] }}{{ eos_token }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    engine.load("v1", folder)
    ids = engine.encode_chat("v1", [Message("user", "hi"), Message("assistant", "yes")])
    assert ids.count(2) == 2 and engine.decode("v1", ids) == "user=hiassistant=yes"
    strict = model()
    (strict / "chat_template.jinja").write_text("{{ raise_exception('no system line, please') }}")
    engine.load("v2", strict)
    with pytest.raises(BadPrompt, match="no system line"):
        engine.encode_chat("v2", [Message("system", "x")])
