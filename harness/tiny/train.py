"""Makes the demo's base policy from nothing: `python -m harness.tiny.train --out DIR`, about 40 minutes on two free cores.

Enters: the base files of the running interpreter's standard library. Leaves: a Hugging Face folder: `config.json`,
`generation_config.json`, `model.safetensors` in float16, the tokenizer's files. Goes wrong: an interrupted run leaves
no folder; a loss that is not finite raises `FloatingPointError`.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness.tiny import corpus, tokenizer
from harness.tiny.asking import LONGEST_ANSWER
from harness.tiny.finetune import finetune
from harness.tiny.pretrain import Report, optimizers, pretrain

PRETRAIN_STEPS = 2400  # 9.8 M tokens
FINETUNE_STEPS = 1600  # 10 M tokens
TOKENIZE_AT_ONCE = 64  # files


def empty_model(words: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """The policy's shape, two million weights, not yet trained."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer.VOCABULARY,
            hidden_size=192,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=2,
            intermediate_size=512,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
    )


def token_stream(files: Sequence[corpus.SourceFile], words: PreTrainedTokenizerFast, seed: int) -> torch.Tensor:
    """All files' ids, one file after another in a shuffled order."""
    shuffled = list(files)
    random.Random(seed).shuffle(shuffled)
    pieces: list[int] = []
    for start in range(0, len(shuffled), TOKENIZE_AT_ONCE):
        texts = [file.text for file in shuffled[start : start + TOKENIZE_AT_ONCE]]
        for ids in words(texts, verbose=False)["input_ids"]:
            pieces += ids
    return torch.tensor(pieces, dtype=torch.int16)


def save(model: LlamaForCausalLM, words: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the folder that serving loads."""
    model.generation_config = GenerationConfig(
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id, max_new_tokens=LONGEST_ANSWER
    )
    model.to(torch.float16).save_pretrained(out)
    words.save_pretrained(out)


def train(out: Path, pretrain_steps: int, finetune_steps: int, seed: int) -> None:
    """Run both phases with a progress bar and save."""
    torch.manual_seed(seed)
    files = corpus.files("base")
    words = tokenizer.train(file.text for file in files)
    stream = token_stream(files, words, seed)
    model = empty_model(words)
    optimisers = optimizers(model)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        first = _bar(progress, "plain text", pretrain_steps)
        pretrain(model, stream, pretrain_steps, optimisers, first, seed)
        second = _bar(progress, "asking", finetune_steps)
        finetune(model, words, files, finetune_steps, optimisers, second, seed)
    save(model, words, out)


def _bar(progress: Progress, name: str, steps: int) -> Report:
    bar = progress.add_task(name, total=steps)
    return lambda done, loss: progress.update(bar, completed=done, description=f"{name}, loss {loss:.3f}")


def main() -> None:
    """Train from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pretrain-steps", type=int, default=PRETRAIN_STEPS)
    parser.add_argument("--finetune-steps", type=int, default=FINETUNE_STEPS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train(options.out, options.pretrain_steps, options.finetune_steps, options.seed)


if __name__ == "__main__":
    main()
