"""What goes over the wire: OpenAI's requests and answers, and Slipstream's headers.

Enters: JSON bodies and headers. Leaves: checked requests, plain dictionaries ready for JSON. What can go wrong: `Refused`, in
OpenAI's shape, naming the field. Fields that would change the answer and that no engine here obeys are refused rather than
ignored; all others that are unknown are ignored, as OpenAI does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.datastructures import Headers

from contracts.errors import SlipstreamError
from contracts.policy import Policy
from contracts.record import Name
from contracts.turn import Finish, Sampling
from serving.engines.port import Answer, Message

Json = dict[str, object]


class Refused(SlipstreamError):
    """An answer that is an error: HTTP status, and the four fields of OpenAI's error object."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: Json = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def invalid(message: str, param: str | None = None, code: str | None = None, status: int = 400) -> Refused:
    return Refused(status, message, "invalid_request_error", param, code)


def unavailable(message: str, code: str) -> Refused:
    return Refused(503, message, "service_unavailable", None, code)


def _truth(value: object) -> object:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("expected true or false")


class Caller(BaseModel):
    """Who asks and in what connection, from the `X-` headers. Consent must be given; silence is none."""

    model_config = ConfigDict(frozen=True)

    episode_id: Annotated[Name | None, Field(alias="x-episode-id", max_length=96)] = None
    parent_turn_id: Annotated[Name | None, Field(alias="x-parent-turn-id")] = None
    role: Annotated[Name, Field(alias="x-agent-role")] = "main"
    group_key: Annotated[Name | None, Field(alias="x-group-key")] = None
    subject: Annotated[str | None, Field(alias="x-subject", min_length=1, max_length=512)] = None
    consent: Annotated[bool, BeforeValidator(_truth), Field(alias="x-consent")] = False
    version: Annotated[Name | None, Field(alias="x-policy-version")] = None


_HEADERS = tuple(field.alias for field in Caller.model_fields.values() if field.alias is not None)

Off = Annotated[Literal[0] | None, Field()]


class _Ask(BaseModel):
    """What both kinds of request share."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    model: str
    temperature: Annotated[float | None, Field(ge=0.0, le=2.0)] = None
    top_p: Annotated[float | None, Field(gt=0.0, le=1.0)] = None
    top_k: Annotated[int | None, Field(ge=-1)] = None
    seed: int | None = None
    stop: str | Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=16)] | None = None
    stream: bool | None = None
    return_token_ids: bool | None = None
    n: Literal[1] | None = None
    presence_penalty: Off = None
    frequency_penalty: Off = None
    logit_bias: Annotated[dict[str, float] | None, Field(max_length=0)] = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) and self.stop else tuple(self.stop or ())

    def sampling(self, policy: Policy, max_tokens: int | None) -> Sampling:
        return Sampling(
            temperature=policy.serving.temperature if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, self.top_k or 0),
            max_tokens=max_tokens or policy.serving.max_tokens,
            seed=self.seed,
        )


MaxTokens = Annotated[int | None, Field(ge=1, le=131_072)]


class CompletionAsk(_Ask):
    prompt: Annotated[str | list[int] | list[str], Field(union_mode="left_to_right")]
    max_tokens: MaxTokens = None
    logprobs: Annotated[int | None, Field(ge=0, le=1, description="only those of the tokens that were sampled")] = None
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None


class _Part(BaseModel):
    type: Literal["text"]
    text: str


class _Line(BaseModel):
    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str | list[_Part]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatAsk(_Ask):
    messages: Annotated[list[_Line], Field(min_length=1)]
    max_tokens: Annotated[MaxTokens, Field(validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))] = None
    logprobs: bool | None = None
    tools: Annotated[list[object] | None, Field(max_length=0)] = None
    functions: Annotated[list[object] | None, Field(max_length=0)] = None

    @property
    def lines(self) -> tuple[Message, ...]:
        return tuple(Message(line.role, line.text) for line in self.messages)


AskT = TypeVar("AskT", bound=_Ask)


def read_ask(kind: type[AskT], body: bytes) -> AskT:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        where, said = _first(error)
        raise invalid(f"{where or 'body'}: {said}", where or None) from error


def _text(value: str) -> str:
    """Clients send names in UTF-8; the server reads headers as Latin-1. A name that differs would be another person."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def read_caller(headers: Headers) -> Caller:
    given = {name: _text(value) for name in _HEADERS if (value := headers.get(name)) is not None}
    try:
        return Caller.model_validate(given)
    except ValidationError as error:
        where, said = _first(error)
        raise invalid(f"header {where}: {said}", where) from error


def _first(error: ValidationError) -> tuple[str, str]:
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    # The first word is the field; what follows names branches of unions, which mean nothing to a client.
    return (str(fault["loc"][0]) if fault["loc"] else ""), fault["msg"]


_REASONS: dict[Finish, str] = {"length": "length"}


def finish_reason(finish: Finish) -> str:
    return _REASONS.get(finish, "stop")


def usage(prompt_tokens: int, completion_tokens: int) -> Json:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def completion_choice(answer: Answer, tokens: Sequence[str] | None) -> Json:
    logprobs: Json | None = None
    if tokens is not None and answer.logps is not None:
        logprobs = {"tokens": list(tokens), "token_logprobs": list(answer.logps), "top_logprobs": None, "text_offset": None}
    return {"index": 0, "text": answer.text, "logprobs": logprobs, "finish_reason": finish_reason(answer.finish)}


def chat_choice(answer: Answer, tokens: Sequence[str] | None) -> Json:
    logprobs: Json | None = None
    if tokens is not None and answer.logps is not None:
        pairs = zip(tokens, answer.logps, strict=True)
        logprobs = {"content": [{"token": token, "logprob": logp, "bytes": None, "top_logprobs": []} for token, logp in pairs]}
    message: Json = {"role": "assistant", "content": answer.text}
    return {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish_reason(answer.finish)}
