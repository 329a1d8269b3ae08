"""A person is deleted: from rows, log, spools and payloads, and stays away whatever is read again; what was counted stays so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.states import CheckpointState, EpisodeState, SampleState
from contracts.topics import ALL, EPISODES, OUTCOMES, TURNS, grave
from contracts.turn import Turn
from infra.clock import to_ms
from infra.db import outbox
from infra.db.engine import open_db, reading, writing
from infra.db.query import Engine, select
from infra.db.tables.ingest import EpisodeRow, OutcomeRow, RefusalRow, RevisionRow, TurnRow
from infra.db.tables.learner import CheckpointRow, CycleRow
from infra.db.tables.registry import VersionRow
from infra.db.tables.rewarding import RewardPartRow, RewardRow, SampleRow
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, EventLog, Partition
from infra.people import deletion
from infra.people.export import export
from infra.settings import Settings
from infra.spool import Spool
from infra.stream import Delivery
from ingest.join import joiner
from registry.console.accounting import read_accounting
from rewarding import rewarder
from tests.conftest import EPOCH, Hands, make_outcome, make_turn

ADA, BOB = "ada" * 4, "bob" * 4
MARK = "forget-me-not"
ASKED = to_ms(EPOCH) + 3_600_000


class Service:
    """Joiner and rewarder over one folder."""

    def __init__(self, home: Path, policies) -> None:
        self.settings = Settings(home=home)
        self.engine: Engine = open_db(self.settings.database)
        self.log: EventLog = open_log(self.settings)
        self.log.ensure([*ALL, grave(TURNS), grave(OUTCOMES)])
        self.policies = policies
        self.reached: dict[Partition, int] = {}

    def tell(self, *records) -> None:
        for record in records:
            topic = TURNS if isinstance(record, Turn) else OUTCOMES
            self.log.append(topic.name, [Entry(record.episode_id, record.encode())])

    def run(self) -> None:
        """What the joiner and the rewarder would do with what is new in the log."""
        stages = (
            ((TURNS, OUTCOMES), joiner.Joiner(self.policies, Hands(EPOCH)).apply),
            ((EPISODES,), rewarder.Rewarder(self.policies).apply),
        )
        for topics, apply in stages:
            news = [(topic, message) for topic in topics for message in self.log.scan(topic.name, self.reached)]
            self.reached.update({message.place: message.offset + 1 for _, message in news})
            with writing(self.engine) as session:
                apply(session, [Delivery(message, topic.record.decode(message.value)) for topic, message in news])
            outbox.flush(self.engine, self.log, "joiner")

    def read_again(self) -> None:
        """What a broker that lost its offsets would do: everything from the beginning."""
        self.reached.clear()

    @property
    def where(self) -> deletion.Places:
        return deletion.places(self.settings, self.engine, self.log)

    def delete(self, *hashes: str, at_ms: int = ASKED) -> deletion.Report:
        deletion_id = deletion.ask(self.engine, hashes, at_ms)
        deletion.finish(self.where, deletion_id, at_ms)
        return deletion.report(self.engine, deletion_id)

    def counted(self) -> int:
        """Events of which the books say what became of them."""
        with reading(self.engine) as session:
            books = read_accounting(session, "tab")
        return books.joined + books.late + books.waiting + sum(one.count for one in books.refused)

    def rows(self, *tables) -> int:
        with reading(self.engine) as session:
            return sum(len(session.exec(select(table)).all()) for table in tables)

    def files_with(self, text: str) -> list[str]:
        return [str(f) for f in self.settings.home.rglob("*") if f.is_file() and text.encode() in f.read_bytes()]


@pytest.fixture
def service(tmp_path: Path, tab_policy) -> Iterator[Service]:
    made = Service(tmp_path / "home", {"tab": tab_policy})
    yield made
    made.log.close()
    made.engine.dispose()


def episode(name: str, subject: str, at_s: float = 0.0) -> list:
    return [
        make_turn(name, subject=subject, text=f"{MARK} {subject}", at_s=at_s),
        make_outcome("accepted", f"{name}-a", name, at_s=at_s + 1),
        make_outcome("follow_up", f"{name}-f", name, at_s=at_s + 2, happening={"text": f"{MARK} too, says {subject}"}),
        make_outcome("closed", f"{name}-c", name, at_s=at_s + 3),
    ]


PEOPLES = (TurnRow, OutcomeRow, RevisionRow, RewardRow, RewardPartRow, SampleRow, EpisodeRow)


def test_nothing_of_a_deleted_person_is_left_in_any_file_and_nothing_of_another_is_touched(service):
    service.tell(*episode("ep-ada", ADA), *episode("ep-bob", BOB))
    service.run()
    before = service.counted()
    assert before == 6 and service.files_with(ADA)
    report = service.delete(ADA)
    assert report.done and report.went["turns"] == 1 and report.went["outcomes"] == 3 and report.went["log records"] == 5
    # Connections are open, as in a service that runs.
    assert service.files_with(f"{MARK} {ADA}") == [] and service.files_with(f"{MARK} too, says {ADA}") == []
    with reading(service.engine) as session:
        assert [row.episode_id for row in session.exec(select(EpisodeRow)).all()] == ["ep-bob"]
        assert [row.sample_id for row in session.exec(select(SampleRow)).all()] == ["ep-bob"]
        assert len(session.exec(select(OutcomeRow)).all()) == 3
    assert service.counted() == before, "sent = joined + late + refused, as before"


def test_asking_twice_is_harmless(service):
    service.tell(*episode("ep-ada", ADA))
    service.run()
    first, second = service.delete(ADA), service.delete(ADA)
    assert first.deletion_id == second.deletion_id and first.went == second.went and second.done
    assert service.counted() == 3


def test_a_log_that_is_read_again_does_not_bring_anybody_back(service):
    told = [*episode("ep-ada", ADA), *episode("ep-bob", BOB)]
    service.tell(*told)
    service.run()
    service.delete(ADA)
    service.tell(*told)  # a producer that sends again, or a broker that keeps what was deleted here
    service.read_again()
    service.run()
    assert service.counted() == 6
    with reading(service.engine) as session:
        assert {row.subject for row in session.exec(select(EpisodeRow)).all()} == {BOB}
        assert {row.episode_id for row in session.exec(select(OutcomeRow)).all()} == {"ep-bob"}
        counters = {one.name: one.count for one in read_accounting(session, "tab").counters}
    assert "turns_subject_deleted" not in counters, "that turn had been counted when it came first"


def test_turns_and_outcomes_that_come_late_are_refused_by_name_and_counted_once(service):
    service.delete(ADA)
    late = episode("ep-late", ADA)
    service.tell(*late[1:], late[0], *late)
    service.run()
    assert service.rows(*PEOPLES) == 0
    with reading(service.engine) as session:
        books = read_accounting(session, "tab")
    assert {one.name: one.count for one in books.refused} == {"subject_deleted": 3}
    assert {one.name: one.count for one in books.counters}["turns_subject_deleted"] == 1


def test_what_a_person_does_after_their_deletion_is_theirs_to_do(service):
    service.tell(*episode("ep-ada", ADA))
    service.run()
    service.delete(ADA)
    service.tell(*episode("ep-new", ADA, at_s=7200.0))
    service.run()
    with reading(service.engine) as session:
        assert [row.episode_id for row in session.exec(select(EpisodeRow)).all()] == ["ep-new"]
    again = deletion.finish(service.where, service_deletion(service), ASKED)
    assert again and service.rows(EpisodeRow) == 1, "resuming an old deletion leaves what came after it"


def service_deletion(service: Service) -> str:
    return deletion.ask(service.engine, [ADA], ASKED)


def test_an_old_hash_is_deleted_with_the_new_one(service):
    service.tell(*episode("ep-old", "old" * 4), *episode("ep-new", ADA), *episode("ep-bob", BOB))
    service.run()
    assert service.delete(ADA, "old" * 4).went["episodes"] == 2
    assert service.rows(EpisodeRow) == 1


class Stop(Exception):
    pass


@pytest.mark.parametrize("step", range(1, 12))
def test_a_crash_anywhere_is_resumed_by_asking_again(service, step, monkeypatch):
    """Each transaction of a deletion, and each removal outside the database, in turn is the one that does not happen."""
    spool = Spool(service.settings.home / "spool", "dead-1", TURNS.name)
    left = make_turn("ep-spooled", subject=ADA, text=f"{MARK} {ADA}")
    spool.add([Entry(left.episode_id, left.encode())])
    spool.close()
    for n in range(3):
        service.tell(*episode(f"ep-{n}", ADA))
    service.run()
    service.tell(*episode("ep-unread", ADA))
    done, real = 0, {name: getattr(deletion, name) for name in ("writing", "erase")}

    def counting(name: str) -> Callable:
        def act(*given, **named):
            nonlocal done
            done += 1
            if done == step:
                raise Stop
            return real[name](*given, **named)

        return act

    with monkeypatch.context() as crash:
        for name in real:
            crash.setattr(deletion, name, counting(name))
        crash.setattr(deletion, "AT_ONCE", 1)
        try:
            service.delete(ADA)
        except Stop:
            pass
    assert service.delete(ADA).done
    service.engine.dispose()
    assert service.files_with(f"{MARK} {ADA}") == []
    service.run()
    assert service.rows(*PEOPLES) == 0 and service.counted() == 12


def test_what_is_in_the_log_and_not_read_yet_is_removed_and_counted(service):
    service.tell(*episode("ep-ada", ADA), *episode("ep-bob", BOB))
    assert service.delete(ADA).went["log records"] == 4
    service.run()
    assert service.counted() == 6 and service.rows(EpisodeRow) == 1


def test_spools_of_dead_processes_are_rewritten_and_those_of_living_ones_wait(service):
    folder = service.settings.home / "spool"
    dead = Spool(folder, "dead-1", TURNS.name)
    for name, who in (("ep-1", ADA), ("ep-2", BOB)):
        dead.add([Entry(name, make_turn(name, subject=who, text=f"{MARK} {who}").encode())])
    dead.close()
    assert service.delete(ADA).went["spooled entries"] == 1
    assert service.files_with(f"{MARK} {ADA}") == [] and service.files_with(f"{MARK} {BOB}")
    living = Spool(folder, "living-2", TURNS.name)
    living.add([Entry("ep-3", make_turn("ep-3", subject=ADA, text=f"{MARK} {ADA}").encode())])
    assert not service.delete(ADA).done, "somebody writes to that file"
    living.drain(lambda entries: service.log.append(TURNS.name, entries))
    assert service.delete(ADA).done
    assert service.files_with(f"{MARK} {ADA}") == []


def test_large_payloads_go_too(service):
    big = make_turn("ep-big", subject=ADA, text=f"{MARK} {ADA} " + "x" * 300_000)
    service.tell(big, make_outcome("closed", "c", "ep-big"))
    service.run()
    files = [f for f in (service.settings.artifact_root / "payloads").rglob("*") if f.is_file()]
    assert len(files) == 1
    assert service.delete(ADA).went["payload files"] == 1
    assert not files[0].exists() and service.files_with(f"{MARK} {ADA}") == []


def seal(service: Service, version: str, number: int, parent: str | None, samples: list[str], state: CheckpointState) -> None:
    with writing(service.engine) as session:
        cycle = f"cycle-{version}"
        base = {"policy": "tab", "version": version}
        session.add(
            CycleRow(
                **base, cycle_id=cycle, state="sealed", fence=1, parent=parent or "", samples=len(samples), reason=None, stats="{}",
                started_ms=0, ended_ms=1,
            )
        )  # fmt: skip
        session.add(CheckpointRow(**base, number=number, parent=parent, created_ms=0, published_ms=0, body="{}"))
        session.add(VersionRow(**base, number=number, state=state, since_ms=0, mirrored_state=None, body="{}"))
        for name in samples:
            row = session.get(SampleRow, name)
            row.state, row.cycle_id = SampleState.CONSUMED, cycle
            session.add(row)
            mine = session.get(EpisodeRow, name)
            mine.state = EpisodeState.CONSUMED
            session.add(mine)


def test_every_checkpoint_that_a_sample_is_in_is_listed_with_its_state_and_descendants(service):
    for n in range(3):
        service.tell(*episode(f"ep-{n}", ADA))
    service.tell(*episode("ep-bob", BOB))
    service.run()
    seal(service, "tab-v0001", 1, None, ["ep-0", "ep-1"], CheckpointState.RETIRED)
    seal(service, "tab-v0002", 2, "tab-v0001", ["ep-bob"], CheckpointState.LIVE)
    expected = [("tab-v0001", 2, "retired"), ("tab-v0002", 0, "live")]
    assert [(one.version, one.samples, one.state) for one in service.delete(ADA).touched] == expected
    assert [(one.version, one.samples, one.state) for one in service.delete(ADA).touched] == expected, "the list is kept"
    assert service.delete(BOB).touched[0].version == "tab-v0002"


def test_waiting_samples_are_held_back_at_once_and_a_running_cycle_loses_those_it_claimed(service):
    for n in range(2):
        service.tell(*episode(f"ep-{n}", ADA))
    service.run()
    with writing(service.engine) as session:
        row = session.get(SampleRow, "ep-0")
        row.state, row.cycle_id = SampleState.CLAIMED, "cycle-1"
        session.add(row)
    deletion.ask(service.engine, [ADA], ASKED)
    with reading(service.engine) as session:
        row = session.get(SampleRow, "ep-1")
        assert (row.state, row.reason) == (SampleState.QUARANTINED, "subject_deleted")
    service.delete(ADA)
    assert service.rows(SampleRow) == 0


def test_an_export_has_everything_and_only_theirs(service, tmp_path):
    spool = Spool(service.settings.home / "spool", "dead-1", TURNS.name)
    spool.add([Entry("ep-s", make_turn("ep-s", subject=ADA).encode()), Entry("ep-t", make_turn("ep-t", subject=BOB).encode())])
    spool.close()
    service.tell(*episode("ep-ada", ADA), *episode("ep-bob", BOB), make_turn("ep-big", subject=ADA, text="x" * 300_000))
    service.run()
    with writing(service.engine) as session:
        for event in ("ep-ada-a", "ep-bob-a"):
            refused = {"policy": "tab", "reason": "bad_field", "detail": "d", "received_ms": 0}
            session.add(RefusalRow(refusal_id=event, event_id=event, **refused))
    to = tmp_path / "ada.json"
    manifest = export(service.where, [ADA], "r", False, ASKED, to)
    told = json.loads(to.read_text())
    assert told["manifest"]["counts"] == manifest["counts"] and to.stat().st_mode & 0o777 == 0o600
    assert {name: len(told[name]) for name in manifest["counts"]} == manifest["counts"]
    assert {name: number for name, number in manifest["counts"].items() if number} == {
        "turns": 2, "outcomes": 3, "episodes": 2, "revisions": 1, "rewards": 1, "reward_parts": len(told["reward_parts"]),
        "samples": 1, "refusals": 1, "spooled": 1, "payload_files": 1, "log": 6,
    }  # fmt: skip
    assert BOB not in to.read_text() and "ep-bob" not in to.read_text() and "ep-t" not in to.read_text()
    assert told["turns"][0]["body"]["subject"] == ADA
    assert service.delete(ADA).went["refusals"] == 1 and service.rows(RefusalRow) == 1
