"""What becomes of outcomes: joined, late, or waiting for the turn they name.

Enters: outcomes and the locked episodes they belong to. Leaves: rows with a disposition each, and episodes that know whether there
is news. A counter says how many were told again, and how many times were not believed.
"""

from __future__ import annotations

from collections.abc import Mapping

from contracts.outcome import Outcome
from contracts.states import OUTCOME_NEXT, Disposition, move
from infra.clock import from_ms, to_ms
from infra.db.counters import Tally
from infra.db.query import UNSEEN, Session, among, and_, col, or_, select, update
from infra.db.tables.ingest import OutcomeRow
from ingest.join.batch import ToldOutcome, precedence
from ingest.join.keep import keep_outcomes
from ingest.join.life import Life
from ingest.join.times import clamped, event_time

NO_TURN = "no_turn"


def join_new(session: Session, lives: Mapping[str, Life], told: Mapping[str, ToldOutcome], tally: Tally) -> dict[str, Outcome]:
    """Keep what is new, with what becomes of it at once; answers what joined. The rest is a repeat, which may yet turn out to be
    the first telling of its id."""
    fates = {event_id: _fate(lives.get(each.outcome.episode_id), each.outcome) for event_id, each in told.items()}
    new = keep_outcomes(session, told, fates)
    joined = {}
    for event_id in new:
        outcome = told[event_id].outcome
        if fates[event_id] == Disposition.JOINED:
            joined[event_id] = outcome
            _hear(lives[outcome.episode_id], outcome, tally)
    repeated = {event_id: each for event_id, each in told.items() if event_id not in new}
    for each in repeated.values():
        tally[(each.outcome.policy, "repeated_events")] += 1
    _prefer_first(session, lives, repeated)
    return joined


def join_waiting(session: Session, lives: Mapping[str, Life], tally: Tally) -> dict[str, Outcome]:
    """Outcomes that waited, or were refused because they waited in vain, for a turn that is known by now; answers what joined."""
    joined: dict[str, Outcome] = {}
    if not lives:
        return joined
    waiting = or_(
        col(OutcomeRow.disposition) == Disposition.WAITING,
        and_(col(OutcomeRow.disposition) == Disposition.REFUSED, col(OutcomeRow.reason) == NO_TURN),
    )
    wanted = select(OutcomeRow.disposition, OutcomeRow.body).where(among(col(OutcomeRow.episode_id), lives), waiting)
    moved: dict[Disposition, list[str]] = {Disposition.JOINED: [], Disposition.LATE: []}
    for disposition, body in session.exec(wanted).all():
        outcome = Outcome.decode(body)
        life = lives[outcome.episode_id]
        if life.began(outcome.policy, outcome.turn_id) is None:
            continue
        fate = move(OUTCOME_NEXT, Disposition(disposition), Disposition.LATE if life.consumed else Disposition.JOINED)
        moved[fate].append(outcome.event_id)
        if fate == Disposition.JOINED:
            joined[outcome.event_id] = outcome
            _hear(life, outcome, tally)
    for fate, event_ids in moved.items():
        if event_ids:
            these = update(OutcomeRow).where(among(col(OutcomeRow.event_id), event_ids)).values(disposition=fate, reason=None)
            session.execute(these, execution_options=UNSEEN)
    return joined


def _fate(life: Life | None, outcome: Outcome) -> Disposition:
    """What is told of another policy's turn waits for a turn of its own policy, which never comes."""
    if life is None or life.began(outcome.policy, outcome.turn_id) is None:
        return Disposition.WAITING
    return Disposition.LATE if life.consumed else Disposition.JOINED


def _hear(life: Life, outcome: Outcome, tally: Tally) -> None:
    began_ms = life.began(outcome.policy, outcome.turn_id)
    assert began_ms is not None
    life.hear(to_ms(event_time(outcome, from_ms(began_ms))))
    life.over = life.over or outcome.happening.kind == "closed"
    if counter := clamped(outcome, began_ms):
        tally[(outcome.policy, counter)] += 1


def _prefer_first(session: Session, lives: Mapping[str, Life], repeated: Mapping[str, ToldOutcome]) -> None:
    """A log may bring the second telling of an id before the first: then the first takes its place, as long as nothing was learned
    from it. Tellings that name another turn are somebody's mistake; there the one that came first stays."""
    if not repeated:
        return
    kept_rows = select(OutcomeRow).where(among(col(OutcomeRow.event_id), repeated), OutcomeRow.disposition != Disposition.LATE)
    for row in sorted(session.exec(kept_rows).all(), key=lambda row: row.event_id):
        told = repeated[row.event_id]
        life = lives.get(row.episode_id)
        if row.body == told.body or row.received_ms < to_ms(told.outcome.received_at) or (life is not None and life.consumed):
            continue
        same = (row.episode_id, row.turn_id) == (told.outcome.episode_id, told.outcome.turn_id)
        if not same or told.precedence >= precedence(Outcome.decode(row.body), row.body):
            continue
        row.policy, row.kind, row.body = told.outcome.policy, told.outcome.happening.kind, told.body
        row.received_ms = to_ms(told.outcome.received_at)
        session.add(row)
        if row.disposition == Disposition.JOINED and life is not None:
            life.news = life.reread = True
    session.flush()
