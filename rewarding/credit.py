"""Which tokens carry the reward: every token that the policy itself sampled in a turn with credit; nothing else.

Enters: a judged episode. Leaves: a `Sample`, or None when there is no reward, nobody agreed to training, or no turn has tokens
(recordings of another service are rewarded and never trained). Prompts never carry credit; neither do turns of a frozen role
(`TRAINABLE_ROLES` names those that learn), nor those sampled from a truncated distribution (top_p, top_k): the learner would
compare its whole one with it, and every ratio would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.episode import Episode
from contracts.outcome import FollowUp, Outcome, Unrecognised
from contracts.reward import Sample, Segment
from contracts.turn import Sampling
from infra.people.scan import kinds
from rewarding.blend import Judged

TRAINABLE_ROLES = frozenset({"main"})

SECRETS = "secrets"
"""The reason by which samples are counted that are kept out because of them."""


def assign(episode: Episode, judged: Judged) -> Sample | None:
    reward = judged.reward
    if reward.value is None or not all(turn.consent for turn in episode.turns):
        return None
    segments = tuple(
        Segment(
            turn_id=turn.turn_id,
            prompt_ids=turn.prompt_ids,
            completion_ids=turn.completion_ids,
            logps=turn.logps,
            spans=turn.spans,
            temperature=turn.sampling.temperature,
            trainable=turn.role in TRAINABLE_ROLES and turn.turn_id in judged.credit and _whole(turn.sampling),
            credit=judged.credit.get(turn.turn_id, 0.0),
        )
        for turn in episode.turns
        if turn.prompt_ids is not None and turn.completion_ids is not None and turn.sampling is not None
    )
    if not segments:
        return None
    return Sample(
        sample_id=episode.episode_id,
        revision=episode.revision,
        policy=episode.policy,
        subject=episode.subject,
        spec=reward.spec,
        reward=reward.value,
        group_key=episode.turns[0].group_key,
        segments=segments,
        sampled_at=episode.turns[0].started_at,
    )


def holds_secrets(episode: Episode) -> bool:
    """In a prompt or an answer, as serving marked its turn, or in what somebody wrote afterwards; a function of the revision."""
    return any(turn.secrets for turn in episode.turns) or any(
        kinds(text) for outcome in episode.outcomes for text in free_text(outcome)
    )


def free_text(outcome: Outcome) -> Iterator[str]:
    """What a person typed, or what a newer client sent of which nobody here knows what it is."""
    happening = outcome.happening
    if isinstance(happening, FollowUp):
        yield happening.text
    elif isinstance(happening, Unrecognised):
        yield from _strings(happening.model_dump(exclude={"kind"}))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _strings(f'{name} = "{each}"' if isinstance(each, str) else each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def _whole(sampling: Sampling) -> bool:
    return sampling.top_p == 1.0 and sampling.top_k == 0
