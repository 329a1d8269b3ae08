"""Reward each new episode revision, and keep its sample up to date until a cycle has claimed it.

Enters: pointers to episode revisions. Leaves: reward rows, their parts, and samples. An older revision that comes after a newer
one changes nothing. A claimed sample is left as the cycle took it; should the cycle be abandoned, `refresh` brings it up to date.
A sample with secrets in it is excluded, without its tokens, and counted by that reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contracts.episode import Episode, EpisodeClosed
from contracts.policy import Policy
from contracts.reward import Reward, Sample
from contracts.states import SampleState
from infra.clock import to_ms
from infra.db.engine import writing
from infra.db.insert import insert_new, upsert
from infra.db.query import Engine, Session, col, select
from infra.db.tables.ingest import RevisionRow
from infra.db.tables.rewarding import RewardPartRow, RewardRow, SampleRow
from infra.people import gate
from infra.stream import Delivery
from rewarding.blend import Blend
from rewarding.credit import SECRETS, assign, holds_secrets

GROUP = "rewarding"
_AT_ONCE = 400
_NEWS = ("revision", "reward", "body", "state", "reason")


class Rewarder:
    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._blends = {name: Blend(policy.reward) for name, policy in policies.items()}
        self._specs = {name: policy.reward.id for name, policy in policies.items()}

    def apply(self, session: Session, deliveries: Sequence[Delivery]) -> None:
        gate.come_through(session)
        newest: dict[str, int] = {}
        for delivery in deliveries:
            closed = delivery.record
            if isinstance(closed, EpisodeClosed) and closed.policy in self._blends:
                newest[closed.episode_id] = max(closed.revision, newest.get(closed.episode_id, 0))
        self._reward(session, newest)

    def refresh(self, engine: Engine) -> int:
        """Bring READY samples up to their newest reward; answers how many had fallen behind."""
        with writing(engine) as session:
            gate.come_through(session)
            behind = session.exec(
                select(RewardRow.episode_id, RewardRow.revision)
                .join(SampleRow, col(SampleRow.sample_id) == col(RewardRow.episode_id))
                .where(SampleRow.state == SampleState.READY, col(SampleRow.revision) < col(RewardRow.revision))
                .limit(_AT_ONCE)
            ).all()
            for episode_id, revision in behind:
                row = session.get(RevisionRow, (episode_id, revision))
                if row is not None and row.policy in self._blends:
                    self._sample(session, [self._judge(Episode.decode(row.body))])
        return len(behind)

    def _reward(self, session: Session, newest: Mapping[str, int]) -> None:
        ids = sorted(newest)
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            known = {
                (row.episode_id, row.spec): row.revision
                for row in session.exec(select(RewardRow).where(col(RewardRow.episode_id).in_(some))).all()
            }
            rows = session.exec(select(RevisionRow).where(col(RevisionRow.episode_id).in_(some))).all()
            episodes = [Episode.decode(row.body) for row in rows if newest[row.episode_id] == row.revision]
            fresh = [e for e in episodes if known.get((e.episode_id, self._specs[e.policy]), 0) < e.revision]
            judged = [self._judge(episode) for episode in fresh]
            _keep_rewards(session, [(episode, reward) for episode, reward, _ in judged])
            self._sample(session, judged)

    def _judge(self, episode: Episode) -> tuple[Episode, Reward, Sample | None]:
        judged = self._blends[episode.policy].judge(episode)
        return episode, judged.reward, assign(episode, judged)

    def _sample(self, session: Session, judged: Sequence[tuple[Episode, Reward, Sample | None]]) -> None:
        rows = [_sample_row(sample, holds_secrets(episode)) for episode, _, sample in judged if sample is not None]
        new = insert_new(session, SampleRow, rows) if rows else set()
        for row in sorted(rows, key=lambda row: row.sample_id):  # as the learner locks them
            if row.sample_id in new:
                continue
            kept = session.get(SampleRow, row.sample_id, with_for_update=True)
            if kept is not None and kept.state == SampleState.READY:
                for column in _NEWS:
                    setattr(kept, column, getattr(row, column))
                session.add(kept)


def _keep_rewards(session: Session, rewards: Sequence[tuple[Episode, Reward]]) -> None:
    if not rewards:
        return
    rows = [_reward_row(episode, reward) for episode, reward in rewards]
    update = [name for name in RewardRow.model_fields if name not in ("episode_id", "spec")]
    upsert(session, RewardRow, rows, update)
    parts = [part for _, reward in rewards for part in _part_rows(reward)]
    if parts:
        upsert(session, RewardPartRow, parts, ("value", "weight"))


def _reward_row(episode: Episode, reward: Reward) -> RewardRow:
    first = episode.turns[0]
    return RewardRow(
        episode_id=reward.episode_id,
        spec=reward.spec,
        revision=reward.revision,
        policy=reward.policy,
        version=first.version,
        arm=first.arm,
        experiment=first.experiment,
        step=first.step,
        subject=episode.subject,
        finish=first.finish,
        latency_ms=first.latency_ms,
        value=reward.value,
        closed_ms=to_ms(episode.closed_at),
        body=reward.model_dump_json(),
    )


def _part_rows(reward: Reward) -> list[RewardPartRow]:
    """One row per extractor: the sum over the episode's turns, NULL where it had nothing to say about any."""
    sums: dict[str, tuple[float | None, float]] = {}
    for part in reward.parts:
        before = sums.get(part.name, (None, part.weight))[0]
        value = before if part.value is None else part.value + (before or 0.0)
        sums[part.name] = (value, part.weight)
    return [
        RewardPartRow(episode_id=reward.episode_id, spec=reward.spec, name=name, value=value, weight=weight)
        for name, (value, weight) in sums.items()
    ]


def _sample_row(sample: Sample, barred: bool) -> SampleRow:
    versions = [span.version for segment in sample.segments for span in segment.spans]
    return SampleRow(
        sample_id=sample.sample_id,
        policy=sample.policy,
        revision=sample.revision,
        state=SampleState.EXCLUDED if barred else SampleState.READY,
        reason=SECRETS if barred else None,
        cycle_id=None,
        lag_version=min(versions) if versions else None,
        subject=sample.subject,
        reward=sample.reward,
        sampled_ms=to_ms(sample.sampled_at),
        body="" if barred else sample.model_dump_json(),
    )
