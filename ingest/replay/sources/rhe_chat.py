"""RealHumanEval, the chat half: 107 programmers, four models, 1,055 answers (clinicalml/realhumaneval, CC0).

A conversation is an episode, an answer a turn of it, and the model that gave it is its version. The lines become

    chat_message   a turn; and, where the conversation goes on from an answer that is recorded, `follow_up` of that answer with the
                   first thing the person wrote after it
    copy           `copied`, with its characters

A session is one person at one task. A message continues the conversation when its history begins with the whole of the previous
one, answer included; otherwise a new conversation begins (16 times within a session). Sometimes the history holds a message
that has no line of its own, because its answer was lost: what was written next is then still what followed. Two lines have no
history at all. After the last line of a conversation comes `closed`.

What the file does not say: on which day anything happened (only seconds since a person began, so that everybody begins at `BEGAN`
here), how long people waited, tokens, sampling. A copy has no time of its own: it gets that of the question whose answer was
copied, the earliest at which it can have been. Nobody recorded that an answer was shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, TypeAdapter, ValidationError

from contracts.episode import Episode
from contracts.outcome import Closed, Copied, FollowUp, Seconds
from contracts.record import Name, Record, first_fault
from ingest.replay.source import SOURCES, Answer, BadLine, Event, Fact, Line, Told

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
"""Made, not recorded."""


class Said(Record):
    role: Literal["user", "assistant", "system"]
    content: str


class ChatMessage(Record):
    model_config = ConfigDict(extra="ignore")

    type: Literal["chat_message"]
    event_id: Name
    message_id: Name
    user: Name
    session: Name
    t_s: Seconds
    model: str
    messages: tuple[Said, ...]
    response: str


class Copy(Record):
    model_config = ConfigDict(extra="ignore")

    type: Literal["copy"]
    event_id: Name
    message_id: Name
    copied: str


_LINE: TypeAdapter[ChatMessage | Copy] = TypeAdapter(Annotated[ChatMessage | Copy, Discriminator("type")])


@dataclass(slots=True)
class _Conversation:
    """`heard`: everything said so far, the newest answer included."""

    episode: str
    heard: tuple[Said, ...] = ()
    newest: str | None = None
    told: list[Told] = field(default_factory=list)


@SOURCES.add("rhe_chat")
class RealHumanEvalChat:
    def read(self, lines: Iterable[Line]) -> Iterator[Told]:
        """Everybody begins at the same moment, so what they did is merged by time."""
        conversations: list[_Conversation] = []
        current: dict[str, _Conversation] = {}
        answers: dict[str, tuple[_Conversation, datetime]] = {}
        for number, line in enumerate(lines, 1):
            parsed = _parsed(number, line)
            if isinstance(parsed, Copy):
                if parsed.message_id not in answers:
                    raise BadLine(number, f"a copy of {parsed.message_id}, which no line before it tells of")
                conversation, at = answers[parsed.message_id]
                happening = Copied(characters=len(parsed.copied))
                conversation.told.append(Event(at, parsed.event_id, conversation.episode, parsed.message_id, happening))
                continue
            conversation = current.get(parsed.session) or _Conversation("")
            if not conversation.newest or parsed.messages[: len(conversation.heard)] != conversation.heard:
                conversation = current[parsed.session] = _Conversation(parsed.message_id)
                conversations.append(conversation)
            answers[parsed.message_id] = conversation, _at(parsed)
            _go_on(conversation, parsed)
        for conversation in conversations:
            end = conversation.told[-1].at
            conversation.told.append(Event(end, f"{conversation.episode}-closed", conversation.episode, None, Closed()))
        yield from sorted((told for conversation in conversations for told in conversation.told), key=lambda told: told.at)

    def facts(self, episodes: Iterable[Episode]) -> Sequence[Fact]:
        conversations = messages = copies = follow_ups = copied_from = 0
        people: set[str] = set()
        models: Counter[str] = Counter()
        for episode in episodes:
            conversations += 1
            messages += len(episode.turns)
            people.add(episode.subject)
            models.update(turn.version or "unknown" for turn in episode.turns)
            copied = [outcome for outcome in episode.outcomes if outcome.happening.kind == "copied"]
            copies += len(copied)
            copied_from += len({outcome.turn_id for outcome in copied})
            follow_ups += sum(outcome.happening.kind == "follow_up" for outcome in episode.outcomes)
        return (
            Fact("people", len(people)),
            Fact("conversations", conversations),
            Fact("messages", messages),
            Fact("copies", copies),
            Fact("answers copied from", copied_from, messages),
            Fact("answers followed up", follow_ups, messages),
            *(Fact(f"answers by {model}", number, messages) for model, number in sorted(models.items())),
        )


def _parsed(number: int, line: Line) -> ChatMessage | Copy:
    try:
        return _LINE.validate_python(line)
    except ValidationError as error:
        raise BadLine(number, first_fault(error)) from error


def _go_on(conversation: _Conversation, message: ChatMessage) -> None:
    at, before = _at(message), conversation.newest
    following = next((said.content for said in message.messages[len(conversation.heard) :] if said.role == "user"), None)
    if before is not None and following is not None:
        happening = FollowUp(text=following)
        conversation.told.append(Event(at, f"{message.event_id}-follows", conversation.episode, before, happening))
    conversation.told.append(
        Answer(
            at=at,
            asked_at=at,
            episode=conversation.episode,
            n=message.message_id,
            person=message.user,
            text=message.response,
            version=_version(message.model),
            parent=before,
        )
    )
    conversation.heard = (*message.messages, Said(role="assistant", content=message.response))
    conversation.newest = message.message_id


def _at(message: ChatMessage) -> datetime:
    return BEGAN + timedelta(seconds=message.t_s)


def _version(model: str) -> str:
    """As a name: `GPT-3.5 (chat)` is `GPT-3.5`."""
    return model.removesuffix(" (chat)")
