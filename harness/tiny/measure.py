"""How good a policy is, on questions of one split: `python -m harness.tiny.measure --weights DIR --split heldout`.

Enters: a weights folder, a split, a number of questions. Leaves: `Figures`, printed as one line of JSON. Goes wrong:
a folder that is no Hugging Face causal LM raises from the loader.
"""

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from harness.tiny import WEIGHTS
from harness.tiny.asking import Question, accepted, random_questions, visible
from harness.tiny.corpus import SourceFile, Split, files
from harness.tiny.sampling import answer
from harness.tiny.words import END

TEMPERATURE = 0.4
QUESTIONS_A_FILE = 4
ACCEPTED, REJECTED = 0.75, -0.25


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates over the questions of one measurement."""

    questions: int
    accepted_when_shown: float
    shown: float
    reward: float  # per question: +0.75 accepted, -0.25 shown and rejected, 0 silent
    accepts_per_100: float
    accepted_characters: float  # per question, spaces not counted


def questions_of(source: Sequence[SourceFile], count: int, rng: random.Random) -> list[Question]:
    """Questions at random points of files drawn by their length."""
    lengths = [len(file.text) for file in source]
    questions: list[Question] = []
    while len(questions) < count:
        (file,) = rng.choices(source, weights=lengths)
        questions += random_questions(file.path, file.text, QUESTIONS_A_FILE, rng)
    return questions[:count]


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    temperature: float,
    seed: int,
) -> Figures:
    """The figures of a policy on given questions."""
    prompts = [tokenizer.encode(question.prompt) for question in questions]
    (end,) = tokenizer.convert_tokens_to_ids([END])
    answers = answer(model, prompts, end, temperature, torch.Generator().manual_seed(seed))
    texts = [str(tokenizer.decode(a.ids, skip_special_tokens=True)) for a in answers]
    shown = sum(text != "" for text in texts)
    kept = [text for text, question in zip(texts, questions, strict=True) if accepted(text, question.following)]
    count = len(questions)
    return Figures(
        questions=count,
        accepted_when_shown=len(kept) / max(1, shown),
        shown=shown / count,
        reward=(ACCEPTED * len(kept) + REJECTED * (shown - len(kept))) / count,
        accepts_per_100=100 * len(kept) / count,
        accepted_characters=sum(map(visible, kept)) / count,
    )


def main() -> None:
    """Measure a folder from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--split", choices=get_args(Split), default="heldout")
    parser.add_argument("--questions", type=int, default=4096)
    parser.add_argument("--temperature", type=float, default=TEMPERATURE)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(options.weights, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.weights)
    questions = questions_of(files(options.split), options.questions, random.Random(options.seed))
    print(json.dumps(asdict(measure(model, tokenizer, questions, options.temperature, options.seed))))


if __name__ == "__main__":
    main()
