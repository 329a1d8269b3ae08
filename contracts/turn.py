"""One model call, exactly as it was sampled. Serving makes it, ingest joins it, nobody changes it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from contracts.record import Moment, Name, Record, Share
from contracts.tokens import LogProbs, TokenIds

Arm = Literal["champion", "candidate", "pinned"]
"""`pinned`: somebody asked for a version by name (a bench, an operator), or another service answered and the turn is a recording;
such turns are never part of an experiment."""

Finish = Literal["stop", "length", "silence", "empty", "abort", "error"]
"""Why the answer ended. `silence`: the policy chose to say nothing, which is an action with a price of its own."""


class Sampling(Record):
    """How tokens were drawn; the log-probs of the turn are those of this very distribution."""

    temperature: Annotated[float, Field(ge=0.0, le=10.0)] = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=0, description="0: no limit")] = 0
    max_tokens: Annotated[int, Field(ge=1, le=131_072)] = 16
    seed: int | None = None


class VersionSpan(Record):
    """Tokens [start, end) of the answer were sampled from `version`. Where tokens are not known, [0, 0) names who answered."""

    version: Name
    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]


class Turn(Record):
    """A prompt, an answer, and everything needed to learn from it later.

    `logps` are processed log-probs (after temperature and truncation), one per completion token; None when the engine had
    none to give, in which case the turn is kept and never trained. A recording of another service knows the text and not the
    tokens: then both ids and `logps` are None, which is not the same as an answer of no tokens, and it is never trained either.
    """

    turn_id: Name
    episode_id: Name
    parent_turn_id: Name | None = None
    policy: Name
    subject: Name
    consent: bool
    role: Name = "main"
    group_key: Name | None = None
    prompt_ids: TokenIds | None
    completion_ids: TokenIds | None
    logps: LogProbs | None
    spans: tuple[VersionSpan, ...]
    text: str
    sampling: Annotated[Sampling | None, Field(description="None: not known, as of a recording")]
    secrets: Annotated[tuple[Name, ...], Field(description="kinds of secrets in prompt or answer, never the secrets")] = ()
    finish: Finish
    arm: Arm
    experiment: Name | None = None
    step: Annotated[int, Field(ge=0)] | None = None
    propensity: Annotated[Share, Field(gt=0.0, description="probability that this subject met this arm")]
    started_at: Moment
    latency_ms: Annotated[float, Field(ge=0.0, description="milliseconds")] | None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.turn_id.startswith(f"{self.episode_id}."):
            raise ValueError(f"turn_id {self.turn_id!r} does not start with its episode_id {self.episode_id!r}")
        covered = 0
        for span in self.spans:
            if span.start != covered or span.end < span.start:
                raise ValueError(f"spans must cover the answer without gaps, got {span.start} where {covered} was due")
            covered = span.end
        if (self.prompt_ids is None) != (self.completion_ids is None):
            raise ValueError("prompt_ids and completion_ids are known together or not at all")
        if self.completion_ids is None and self.logps is not None:
            raise ValueError("logps of tokens that are not known")
        length = 0 if self.completion_ids is None else len(self.completion_ids)
        if covered != length:
            raise ValueError(f"spans cover {covered} of {length} completion tokens")
        return self

    @property
    def version(self) -> str | None:
        """The version that made all of it, or None when weights changed midway or nothing was sampled."""
        versions = {span.version for span in self.spans}
        return versions.pop() if len(versions) == 1 else None
