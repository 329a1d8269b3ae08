"""The three words of the asking format, which are single tokens. Apart from the tokenizer, so that a client need not load one."""

ASK, SILENCE, END = "<ask>", "<silence>", "<end>"
