"""Join turns and outcomes into episodes, without caring about order, repeats or restarts.

Enters: batches of `Turn`, `Outcome` and `Refusal`. Leaves: rows, and an `EpisodeClosed` for each new revision. The rules:
an event id counts once; an outcome waits for the turn it names; an episode closes when a client says so or after a quiet
window; later news makes a new revision until the episode has been trained on, and is kept and counted as late after that; an
outcome whose turn never comes is refused after the orphan window, and joined after all if the turn comes even later.

Windows are windows of event time, as far as everything is known: how far that is, the log says for each partition. Nothing is kept
here from one batch to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from contracts.policy import Policy
from infra.clock import Clock, to_ms
from infra.db.counters import Tally, count_all
from infra.db.query import Engine, Session
from infra.eventlog.port import Partition
from infra.stream import Delivery
from ingest.join.admit import admit
from ingest.join.batch import ToldTurn, sort_out
from ingest.join.keep import begin_episodes, keep_refusals, keep_turns
from ingest.join.life import Life, begin, lock, store
from ingest.join.publish import publish
from ingest.join.quiet import Quiet, lanes
from ingest.join.settle import join_new, join_waiting
from ingest.join.whole import AtHand

GROUP = "joiner"

BATCH = 1000
"""Messages in one transaction: what a transaction costs by itself is then little beside them."""


class Joiner:
    """`apply` is the effect of a batch; `close_quiet` is what the passing of time does."""

    def __init__(self, policies: Mapping[str, Policy], clock: Clock) -> None:
        self._policies = policies
        self._clock = clock

    def apply(self, session: Session, deliveries: Sequence[Delivery]) -> None:
        """Rows are locked in one order by everybody: refusals, turns, episodes, outcomes, counters, each by id."""
        batch = sort_out(deliveries)
        tally: Tally = Counter({(policy, "repeated_events"): number for policy, number in batch.repeats.items()})
        now_ms = to_ms(self._clock())
        admit(session, batch, tally, now_ms)
        keep_refusals(session, batch.refusals.values(), tally)
        turns = batch.turns
        new_turns = keep_turns(session, turns.values(), now_ms)
        lives = _lives(session, batch.episodes(), turns.values())
        grown = _grow(lives, [turns[turn_id] for turn_id in new_turns], tally)
        joined = join_new(session, lives, batch.outcomes, tally)
        joined |= join_waiting(session, grown, tally)
        self._settle(session, lives, now_ms, AtHand({turn_id: turns[turn_id].turn for turn_id in new_turns}, joined))
        count_all(session, tally)

    def close_quiet(self, engine: Engine, reached_ms: Mapping[Partition, int]) -> int:
        """Close episodes whose quiet window is over in their partition, refuse orphans; answers how many episodes closed.

        `reached_ms`: the time up to which each partition that is read here has been read."""
        return Quiet(engine, self._policies, to_ms(self._clock())).close(lanes(reached_ms))

    def _settle(self, session: Session, lives: Mapping[str, Life], now_ms: int, at_hand: AtHand) -> None:
        news = [life for life in lives.values() if life.news and not life.consumed]
        publish(session, self._policies, [life for life in news if life.over or life.is_closed or life.reread], now_ms, at_hand)
        store(session, news)


def _lives(session: Session, episode_ids: Iterable[str], turns: Iterable[ToldTurn]) -> dict[str, Life]:
    lives = lock(session, list(episode_ids))
    first: dict[str, ToldTurn] = {}
    for told in turns:
        if told.turn.episode_id not in lives:
            first.setdefault(told.turn.episode_id, told)
    if first:
        begun = begin_episodes(session, first)
        lives |= {episode_id: begin(told) for episode_id, told in first.items() if episode_id in begun}
        lives |= lock(session, first.keys() - begun)
        for told in turns:
            began_ms = lives[told.turn.episode_id].began_ms[told.turn.policy]
            began_ms.setdefault(told.turn.turn_id, to_ms(told.turn.started_at))
    return lives


def _grow(lives: Mapping[str, Life], new: Iterable[ToldTurn], tally: Tally) -> dict[str, Life]:
    """Episodes with a turn that they did not have. A turn that comes when its episode has been trained on is kept and counted."""
    grown = {}
    for told in new:
        life = grown[told.turn.episode_id] = lives[told.turn.episode_id]
        if life.consumed:
            tally[(told.turn.policy, "turns.late")] += 1
        else:
            life.hear(to_ms(told.turn.started_at))
    return grown
