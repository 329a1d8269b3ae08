"""First phase of the base policy: plain next-token training on the base files, at a constant learning rate.

Enters: the base files' tokens as one stream. Leaves: the model, trained in place; the rate never falls here, because
the second phase (`asking.py`) ends with the decay, so this phase can be cut at any step. Goes wrong: a loss that is
not finite raises `FloatingPointError` before the step is taken.

Legend: B windows, T tokens.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch.nn import functional
from torch.optim import AdamW, Muon, Optimizer
from transformers import LlamaForCausalLM

WINDOW = 128
BATCH = 32
PEAK_LR = 3e-3
WARMUP_STEPS = 100
CLIP = 1.0

Report = Callable[[int, float], None]


def optimizers(model: LlamaForCausalLM) -> list[Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for embeddings and norms."""
    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == 2 and "layers" in name else rest).append(parameter)
    return [
        Muon(matrices, lr=PEAK_LR, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        AdamW(rest, lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def step(model: LlamaForCausalLM, loss: torch.Tensor, optimisers: list[Optimizer], lr: float) -> None:
    """One update at a learning rate."""
    if not math.isfinite(loss.item()):
        raise FloatingPointError(f"loss is {loss.item()}")
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = lr
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)


def windows(stream: torch.Tensor, rng: torch.Generator) -> Iterator[torch.Tensor]:
    """Batches of windows without end, each pass over the stream in a new order and with new cuts."""
    while True:
        shift = int(torch.randint(WINDOW, (1,), generator=rng))
        count = (len(stream) - shift - 1) // WINDOW
        order = torch.randperm(count, generator=rng)
        for rows in torch.split(order, BATCH):
            if len(rows) == BATCH:
                starts = shift + rows * WINDOW
                yield stream[starts[:, None] + torch.arange(WINDOW + 1)].long()


def pretrain(
    model: LlamaForCausalLM, stream: torch.Tensor, steps: int, optimisers: list[Optimizer], report: Report, seed: int
) -> None:
    """Train in place for a number of steps; `report(step, loss)` after each."""
    batches = windows(stream, torch.Generator().manual_seed(seed))
    model.train()
    for n in range(steps):
        batch_BT = next(batches)
        logits = model(input_ids=batch_BT[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), batch_BT[:, 1:].flatten())
        step(model, loss, optimisers, PEAK_LR * min(1.0, (n + 1) / WARMUP_STEPS))
        report(n + 1, loss.item())
