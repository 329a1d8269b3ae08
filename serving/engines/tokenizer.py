"""Text to ids and back for one version, by the tokenizer file that lies beside its weights.

Enters: prompts, chats, sampled ids. Leaves: ids and text. What can go wrong: `BrokenModel` when a file is missing or the policy's
template names a token that the tokenizer does not have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from contracts.policy import Template
from serving.engines.port import BadPrompt, BrokenModel, Message
from serving.engines.weights import read_json

_TAIL_CHARACTERS = 32
"""Characters read per token kept: a prompt is cut to its newest tokens, so the start of a long file need not be encoded."""


class VersionTokenizer:
    def __init__(self, folder: Path, template: Template, config: Mapping[str, object]) -> None:
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise BrokenModel(f"{file} is missing")
        self._folder = folder
        try:
            self._plain = Tokenizer.from_file(str(file))
            self._special = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise BrokenModel(f"{file} cannot be read: {error}") from error
        self._plain.encode_special_tokens = True
        for tokenizer in (self._plain, self._special):
            tokenizer.no_truncation()
            tokenizer.no_padding()
        self._limit = template.context_tokens
        self._ask = self._known(template.ask)
        self.silence = self._known(template.silence)
        self.ends = frozenset(token for token in (self._known(template.end), self.silence) if token is not None) | self._eos(config)
        self._chat = self._chat_template()

    def encode(self, text: str) -> list[int]:
        """The newest tokens of the text, then the token that asks."""
        ids = self._plain.encode(text[-max(4096, _TAIL_CHARACTERS * self._limit) :], add_special_tokens=self._ask is None).ids
        return self._asked(ids)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        if self._chat is None:
            return self.encode("".join(f"{line.role}: {line.content}\n" for line in messages) + "assistant:")
        lines = [{"role": line.role, "content": line.content} for line in messages]
        try:
            text = self._chat.render(messages=lines, add_generation_prompt=True, **self._names())
        except TemplateError as error:
            raise BadPrompt(f"messages: the chat template of this model refuses them: {error}") from error
        return self._asked(self._special.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._plain.decode(list(ids), skip_special_tokens=True))

    def _asked(self, ids: list[int]) -> list[int]:
        kept = ids[-self._limit :]
        return kept if self._ask is None else [*kept, self._ask]

    def _known(self, token: str | None) -> int | None:
        if token is None:
            return None
        known = self._plain.token_to_id(token)
        if known is None:
            raise BrokenModel(f"the tokenizer in {self._folder} has no token {token!r}, which the policy's template names")
        return int(known)

    def _eos(self, config: Mapping[str, object]) -> frozenset[int]:
        said: list[object] = [config.get("eos_token_id")]
        if (self._folder / "generation_config.json").is_file():
            said.append(read_json(self._folder / "generation_config.json").get("eos_token_id"))
        return frozenset(i for value in said for i in (value if isinstance(value, list) else [value]) if isinstance(i, int))

    def _chat_template(self) -> JinjaTemplate | None:
        source: object = self._settings().get("chat_template")
        file = self._folder / "chat_template.jinja"
        if file.is_file():
            source = file.read_text(encoding="utf-8")
        if not isinstance(source, str):
            return None
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        return environment.from_string(source)

    def _names(self) -> dict[str, str]:
        names = {}
        for key in ("bos_token", "eos_token", "pad_token", "unk_token"):
            value = self._settings().get(key)
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                names[key] = value
        return names

    def _settings(self) -> dict[str, object]:
        file = self._folder / "tokenizer_config.json"
        return read_json(file) if file.is_file() else {}


def _refuse(message: str) -> None:
    raise TemplateError(message)
