"""Answers of a policy to many prompts at once, for measuring and for experiments; serving has its own engine.

Enters: a causal LM and prompt ids. Leaves: for each prompt, answer ids up to and with `<end>`, and their log-probs
under the distribution they were sampled from (temperature applied). Goes wrong: an answer without `<end>` after
`LONGEST_ANSWER` tokens is left as it is, cut.

Legend: B prompts of one batch, T tokens, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache, PreTrainedModel

from harness.tiny.asking import LONGEST_ANSWER

BATCH = 128


@dataclass(frozen=True, slots=True)
class Answer:
    """Sampled ids and the log-prob of each."""

    ids: list[int]
    logps: list[float]


@torch.inference_mode()
def answer(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    end: int,
    temperature: float,
    rng: torch.Generator,
) -> list[Answer]:
    """One answer a prompt; temperature 0 is greedy, with log-probs of the plain distribution."""
    by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    answers: dict[int, Answer] = {}
    for start in range(0, len(prompts), BATCH):
        chosen = by_length[start : start + BATCH]
        batch = _answer_batch(model, [prompts[i] for i in chosen], end, temperature, rng)
        answers.update(zip(chosen, batch, strict=True))
    return [answers[i] for i in range(len(prompts))]


def _answer_batch(
    model: PreTrainedModel, prompts: Sequence[list[int]], end: int, temperature: float, rng: torch.Generator
) -> list[Answer]:
    longest = max(map(len, prompts))
    ids_BT = torch.tensor([[end] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask_BT = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    position_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    done_B = torch.zeros(len(prompts), dtype=torch.bool)
    answers = [Answer([], []) for _ in prompts]
    for _ in range(LONGEST_ANSWER):
        output = model(
            input_ids=ids_BT,
            attention_mask=mask_BT,
            position_ids=position_BT,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logp_BV = torch.log_softmax(output.logits[:, -1].float() / (temperature or 1.0), dim=-1)
        ids_BT = torch.multinomial(logp_BV.exp(), 1, generator=rng) if temperature else logp_BV.argmax(1, keepdim=True)
        logp_B = logp_BV.gather(1, ids_BT)[:, 0]
        for row, (token, logp) in enumerate(zip(ids_BT[:, 0].tolist(), logp_B.tolist(), strict=True)):
            if not done_B[row]:
                answers[row].ids.append(token)
                answers[row].logps.append(logp)
        done_B |= ids_BT[:, 0] == end
        if done_B.all():
            break
        mask_BT = torch.cat([mask_BT, torch.ones_like(ids_BT)], dim=1)
        position_BT = position_BT[:, -1:] + 1
    return answers
