"""Second phase of the base policy: the asking format, while the learning rate falls to zero.

Enters: the model of the first phase and questions with their true continuations. Leaves: the model, trained in place.
The loss is the mean over answer tokens plus the mean over context tokens, so plain text is still learned from.
Goes wrong: as in `pretrain.step`.

Legend: B examples, T tokens.
"""

import random
from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional
from torch.optim import Optimizer
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from harness.tiny.asking import LONGEST_ANSWER, MIN_VISIBLE, Question, random_questions, visible
from harness.tiny.corpus import SourceFile
from harness.tiny.pretrain import PEAK_LR, Report, step
from harness.tiny.words import END, SILENCE

BATCH = 64
LONGEST_PROMPT = 128  # tokens; longer contexts lose their beginning
SILENT_SHARE = 0.1
EXTRA_TOKENS = {0: 0.5, 1: 0.3, 2: 0.1, 3: 0.1}  # beyond the least visible text, and how often
QUESTIONS_A_DRAW = 32
IGNORED = -100

Example = tuple[list[int], list[int]]


def examples(files: Sequence[SourceFile], tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> Iterator[list[Example]]:
    """Batches of (prompt ids, answer ids) without end, files drawn by their length."""
    lengths = [len(file.text) for file in files]
    pending: list[Example] = []
    while True:
        for file in rng.choices(files, weights=lengths, k=BATCH):
            questions = random_questions(file.path, file.text, QUESTIONS_A_DRAW, rng)
            pending += [example for q in questions if (example := _example(q, tokenizer, rng))]
        rng.shuffle(pending)
        while len(pending) >= BATCH:
            yield [pending.pop() for _ in range(BATCH)]


def _example(question: Question, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> Example | None:
    prompt = tokenizer.encode(question.prompt)[-LONGEST_PROMPT:]
    end, silence = tokenizer.convert_tokens_to_ids([END, SILENCE])
    if rng.random() < SILENT_SHARE:
        return prompt, [silence, end]
    truth = tokenizer.encode(question.following)[:LONGEST_ANSWER]
    enough = next((n for n in range(1, len(truth)) if visible(str(tokenizer.decode(truth[:n]))) >= MIN_VISIBLE), None)
    if enough is None:
        return None
    (extra,) = rng.choices(list(EXTRA_TOKENS), weights=list(EXTRA_TOKENS.values()))
    return prompt, [*truth[: min(enough + extra, LONGEST_ANSWER - 1)], end]


def loss_of(model: LlamaForCausalLM, batch: Sequence[Example], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean cross-entropy of answer tokens and of context tokens."""
    longest = max(len(prompt) + len(answer) for prompt, answer in batch)
    ids_BT = torch.full((len(batch), longest), padding)
    context_BT, answer_BT = torch.full_like(ids_BT, IGNORED), torch.full_like(ids_BT, IGNORED)
    for row, (prompt, answer) in enumerate(batch):
        start, stop = len(prompt), len(prompt) + len(answer)
        ids_BT[row, :stop] = torch.tensor(prompt + answer)
        context_BT[row, : start - 1] = ids_BT[row, : start - 1]
        answer_BT[row, start:stop] = ids_BT[row, start:stop]
    logits = model(input_ids=ids_BT[:, :-1], use_cache=False).logits.flatten(0, 1)
    answer_loss, context_loss = (
        functional.cross_entropy(logits, wanted_BT[:, 1:].flatten(), ignore_index=IGNORED) for wanted_BT in (answer_BT, context_BT)
    )
    return answer_loss, context_loss


def finetune(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    files: Sequence[SourceFile],
    steps: int,
    optimisers: list[Optimizer],
    report: Report,
    seed: int,
) -> None:
    """Train in place for a number of steps; `report(step, answer loss)` after each."""
    batches = examples(files, tokenizer, random.Random(seed))
    (padding,) = tokenizer.convert_tokens_to_ids([END])
    model.train()
    for n in range(steps):
        answer_loss, context_loss = loss_of(model, next(batches), padding)
        step(model, answer_loss + context_loss, optimisers, PEAK_LR * (1 - n / steps))
        report(n + 1, answer_loss.item())
