"""The topics, their keys, their records, how many partitions they have and how long they keep what they carry."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.checkpoint import Checkpoint, EvalReport
from contracts.dead_letter import DeadLetter
from contracts.episode import EpisodeClosed
from contracts.outcome import Outcome, Refusal
from contracts.record import Record
from contracts.rollout import Rollout
from contracts.turn import Turn

DAY_S = 86_400


@dataclass(frozen=True)
class Topic:
    """`key` names the field by which records are partitioned: all records of one key keep their order."""

    name: str
    record: type[Record]
    key: str
    partitions: int
    retention_s: int


TURNS = Topic("turns", Turn, "episode_id", 4, 7 * DAY_S)
OUTCOMES = Topic("outcomes", Outcome, "episode_id", 4, 7 * DAY_S)
REFUSALS = Topic("refusals", Refusal, "refusal_id", 1, 7 * DAY_S)
EPISODES = Topic("episodes", EpisodeClosed, "episode_id", 4, 7 * DAY_S)
CHECKPOINTS = Topic("checkpoints", Checkpoint, "policy", 1, 90 * DAY_S)
EVALUATIONS = Topic("evaluations", EvalReport, "policy", 1, 90 * DAY_S)
ROLLOUTS = Topic("rollouts", Rollout, "policy", 1, 90 * DAY_S)

ALL = (TURNS, OUTCOMES, REFUSALS, EPISODES, CHECKPOINTS, EVALUATIONS, ROLLOUTS)


def dead_letter(topic: str) -> str:
    """Where what could not be read from a topic is buried."""
    return f"{topic}.dlq"


def grave(topic: Topic) -> Topic:
    """That place as a topic: one partition, and time for somebody to look."""
    return Topic(dead_letter(topic.name), DeadLetter, "topic", 1, 30 * DAY_S)
