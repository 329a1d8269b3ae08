"""The demo's tiny policy: its corpus, its tokenizer, its training and the shipped weights.

Enters: nothing. Leaves: `WEIGHTS`, a Hugging Face folder that any causal-LM loader opens. Goes wrong: nothing here;
a missing folder shows when it is loaded.
"""

from pathlib import Path

WEIGHTS: Path = Path(__file__).parent / "weights"
