"""The shipped weights: small, loadable, and able to answer in the asking format."""

import random
from functools import cache

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from harness.tiny import WEIGHTS
from harness.tiny.asking import LONGEST_ANSWER
from harness.tiny.corpus import files
from harness.tiny.measure import measure, questions_of
from harness.tiny.sampling import answer
from harness.tiny.tokenizer import VOCABULARY
from harness.tiny.words import ASK, END, SILENCE


@cache
def policy() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    model = AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(WEIGHTS)


def test_the_folder_is_small_and_in_half_precision() -> None:
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) < 8 * 2**20
    with safe_open(WEIGHTS / "model.safetensors", "pt") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"F16"}  # noqa: SIM118


@pytest.mark.parametrize(("word", "id_"), [(ASK, 0), (SILENCE, 1), (END, 2)])
def test_special_words_are_single_tokens(word: str, id_: int) -> None:
    _, tokenizer = policy()
    assert tokenizer.encode(word) == [id_]
    assert tokenizer.decode([id_], skip_special_tokens=True) == ""
    assert len(tokenizer) == VOCABULARY


def test_the_tokenizer_gives_text_back_unchanged() -> None:
    _, tokenizer = policy()
    text = files("heldout")[0].text[:2000] + "é λ → 🙂\t  end  \n"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_greedy_answer_is_well_formed() -> None:
    model, tokenizer = policy()
    prompt = tokenizer.encode("class Reader:\n    def __init__(self, path):\n        self.path =" + ASK)
    (one,), (again,) = (answer(model, [prompt], 2, 0.0, torch.Generator()) for _ in range(2))
    assert one == again
    assert one.ids[-1] == 2
    assert 1 <= len(one.ids) <= LONGEST_ANSWER
    assert 0 not in one.ids
    assert all(logp <= 0 for logp in one.logps)


def test_batching_does_not_change_log_probs() -> None:
    model, tokenizer = policy()
    prompts = [tokenizer.encode(text + ASK) for text in ("import os\n", "def f(a, b):\n    return a +", "x")]
    alone = [answer(model, [prompt], 2, 0.0, torch.Generator())[0] for prompt in prompts]
    together = answer(model, prompts, 2, 0.0, torch.Generator())
    assert [a.ids for a in alone] == [a.ids for a in together]
    for one, other in zip(alone, together, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-4)


def test_it_is_right_often_enough_to_learn_from() -> None:
    figures = measure(*policy(), questions_of(files("traffic"), 256, random.Random(0)), temperature=0.4, seed=0)
    assert figures.shown > 0.6
    assert figures.accepted_when_shown > 0.15
