"""Join turns and outcomes into episodes, without caring about order, repeats or restarts.

Enters: batches of `Turn`, `Outcome` and `Refusal`. Leaves: rows, and an `EpisodeClosed` for each new revision. The rules:
an event id counts once; an outcome waits for the turn it names; an episode closes when a client says so or after a quiet
window; later news makes a new revision until the episode has been trained on, and is kept and counted as late after that; an
outcome whose turn never comes is refused after the orphan window, and joined after all if the turn comes even later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from contracts.outcome import Outcome, Refusal
from contracts.policy import Policy
from contracts.states import EPISODE_NEXT, OUTCOME_NEXT, Disposition, EpisodeState, move
from contracts.turn import Turn
from infra.clock import Clock, to_ms
from infra.db.counters import count
from infra.db.engine import writing
from infra.db.insert import insert_new
from infra.db.query import Engine, Session, select
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, TurnRow
from infra.stream import Delivery
from ingest.join.gather import Gathered, gather
from ingest.join.publish import publish

GROUP = "joiner"
_AT_ONCE = 500
_NO_TURN = "no_turn"


class Joiner:
    """`apply` is the effect of a batch; `close_quiet` is what the passing of time does."""

    def __init__(self, policies: Mapping[str, Policy], clock: Clock) -> None:
        self._policies = policies
        self._clock = clock

    def apply(self, session: Session, deliveries: Sequence[Delivery]) -> None:
        turns = [d.record for d in deliveries if isinstance(d.record, Turn)]
        outcomes = [d.record for d in deliveries if isinstance(d.record, Outcome)]
        refusals = [d.record for d in deliveries if isinstance(d.record, Refusal)]
        now_ms = to_ms(self._clock())
        _keep_refusals(session, refusals)
        _keep_turns(session, turns, now_ms)
        _keep_outcomes(session, outcomes)
        touched = {turn.episode_id for turn in turns} | {outcome.episode_id for outcome in outcomes}
        for gathered in gather(session, touched):
            self._settle(session, gathered, now_ms)

    def close_quiet(self, engine: Engine) -> int:
        """Close episodes without news for their policy's quiet window, refuse orphans; answers how many episodes closed."""
        now_ms = to_ms(self._clock())
        closed = 0
        for policy in self._policies.values():
            quiet_since = now_ms - int(policy.quiet_seconds * 1000)
            with writing(engine) as session:
                query = select(EpisodeRow.episode_id).where(
                    EpisodeRow.policy == policy.name, EpisodeRow.state == EpisodeState.OPEN, EpisodeRow.news_ms < quiet_since
                )
                quiet = set(session.exec(query.limit(_AT_ONCE)).all())
                for gathered in gather(session, quiet):
                    if (row := gathered.row) is not None:
                        row.state = move(EPISODE_NEXT, EpisodeState(row.state), EpisodeState.CLOSED)
                        row.closed_by, row.closed_ms = "quiet", row.news_ms + int(policy.quiet_seconds * 1000)
                        publish(session, gathered, row)
                self._refuse_orphans(session, policy, now_ms)
            closed += len(quiet)
        return closed

    def _settle(self, session: Session, found: Gathered, now_ms: int) -> None:
        """Bring one episode up to date with the rows that are there."""
        if not found.turns:
            return
        row = found.row
        if row is None:
            first = found.turns[0]
            row = EpisodeRow(
                episode_id=first.episode_id,
                policy=first.policy,
                subject=first.subject,
                state=EpisodeState.OPEN,
                revision=0,
                news_ms=now_ms,
                closed_by=None,
                closed_ms=None,
            )
        consumed = row.state == EpisodeState.CONSUMED
        news = found.new_turns
        known = {turn.turn_id for turn in found.turns}
        for outcome_row, outcome in found.outcomes:
            waits = outcome_row.disposition in (Disposition.WAITING, Disposition.REFUSED)
            if not waits or (outcome.turn_id is not None and outcome.turn_id not in known):
                continue
            to = Disposition.LATE if consumed else Disposition.JOINED
            outcome_row.disposition = move(OUTCOME_NEXT, Disposition(outcome_row.disposition), to)
            outcome_row.reason = None
            session.add(outcome_row)
            news = True
        if news:
            row.news_ms = max(row.news_ms, now_ms)
            session.add(row)
        if consumed or not news:
            return
        closings = [outcome for outcome in found.joined() if outcome.happening.kind == "closed"]
        if row.state == EpisodeState.OPEN:
            if not closings:
                return
            row.state = move(EPISODE_NEXT, EpisodeState.OPEN, EpisodeState.CLOSED)
        if closings:
            row.closed_by, row.closed_ms = "closed", to_ms(closings[0].order[0])
        publish(session, found, row)

    def _refuse_orphans(self, session: Session, policy: Policy, now_ms: int) -> None:
        query = select(OutcomeRow).where(
            OutcomeRow.policy == policy.name,
            OutcomeRow.disposition == Disposition.WAITING,
            OutcomeRow.received_ms < now_ms - int(policy.orphan_seconds * 1000),
        )
        for row in session.exec(query.limit(_AT_ONCE)).all():
            row.disposition = move(OUTCOME_NEXT, Disposition.WAITING, Disposition.REFUSED)
            row.reason = _NO_TURN
            session.add(row)


def _keep_turns(session: Session, turns: Sequence[Turn], now_ms: int) -> None:
    rows = [
        TurnRow(
            turn_id=turn.turn_id,
            episode_id=turn.episode_id,
            policy=turn.policy,
            version=turn.version,
            arm=turn.arm,
            received_ms=now_ms,
            joined=False,
            body=turn.model_dump_json(),
        )
        for turn in {turn.turn_id: turn for turn in reversed(turns)}.values()
    ]
    if rows:
        insert_new(session, TurnRow, rows)


def _keep_outcomes(session: Session, outcomes: Sequence[Outcome]) -> None:
    """First come, first kept: the same id again is a repeat, whatever else it says."""
    first = {outcome.event_id: outcome for outcome in reversed(outcomes)}
    rows = [
        OutcomeRow(
            event_id=outcome.event_id,
            episode_id=outcome.episode_id,
            policy=outcome.policy,
            kind=outcome.happening.kind,
            disposition=Disposition.WAITING,
            reason=None,
            received_ms=to_ms(outcome.received_at),
            body=outcome.model_dump_json(),
        )
        for outcome in first.values()
    ]
    if not rows:
        return
    new = insert_new(session, OutcomeRow, rows)
    sent = Counter(outcome.policy for outcome in outcomes)
    kept = Counter(first[event_id].policy for event_id in new)
    for policy, number in (sent - kept).items():
        count(session, policy, "repeated_events", number)


def _keep_refusals(session: Session, refusals: Sequence[Refusal]) -> None:
    rows = [
        RefusalRow(
            refusal_id=refusal.refusal_id,
            event_id=refusal.event_id,
            policy=refusal.policy,
            reason=refusal.reason,
            detail=refusal.detail,
            received_ms=to_ms(refusal.received_at),
        )
        for refusal in {refusal.refusal_id: refusal for refusal in refusals}.values()
    ]
    if rows:
        insert_new(session, RefusalRow, rows)
