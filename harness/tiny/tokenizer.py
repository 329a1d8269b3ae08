"""The demo's tokenizer: byte-level BPE of 2,048 tokens with the three words of the asking format.

Enters: texts. Leaves: a `PreTrainedTokenizerFast`, which `save_pretrained` writes as `tokenizer.json` and
`tokenizer_config.json`. Goes wrong: too little text for 2,048 merges gives a smaller vocabulary, refused here because
the model's shape is fixed.
"""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from harness.tiny.words import ASK, END, SILENCE

VOCABULARY = 2048


class VocabularyTooSmall(ValueError):
    """The texts hold too few different pieces for the vocabulary."""


def train(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer learned from texts."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[ASK, SILENCE, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    if bpe.get_vocab_size() != VOCABULARY:
        raise VocabularyTooSmall(f"{bpe.get_vocab_size()} tokens from these texts, {VOCABULARY} needed")
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=[ASK, SILENCE],
        clean_up_tokenization_spaces=False,
    )
