"""Recorded traffic, replayed to a real collector and joiner: what is known of it holds in what was joined.

The figures are counted from the joined episodes here once more, in other words than the sources' own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.episode import Episode
from contracts.outcome import Persisted
from infra.clock import system_clock, to_ms
from infra.db.engine import open_db, reading, writing
from infra.db.query import select
from infra.db.tables.ingest import OutcomeRow, RefusalRow, TurnRow
from infra.db.tables.stream import CounterRow
from infra.eventlog.open import open_log
from infra.people import deletion
from infra.people.register import set_opted_out
from infra.policies import load_policy
from infra.secrets import load_secrets
from rewarding.blend import Blend
from rewarding.credit import assign
from tests.conftest import REPOSITORY
from tests.flow.replaying import RECORDINGS, Service, data_folder, service


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(
        tmp_path_factory.mktemp("replay"), ("copilot", "humaneval", "few", "chats", "paused", "private", "command", "left")
    ) as made:
        yield made


def whole(name: str) -> Path:
    file = data_folder() / name
    if not file.exists():
        pytest.skip(f"the recording {name} is not in {data_folder()}; set SLIPSTREAM_DATA to the folder that has it")
    return file


def kinds(episode: Episode) -> Counter[str]:
    return Counter(outcome.happening.kind for outcome in episode.outcomes)


def with_kind(episodes: list[Episode], kind: str) -> int:
    return sum(kind in kinds(episode) for episode in episodes)


def repeats(running: Service, policy: str) -> int:
    """Events that the joiner met again."""
    with reading(open_db(running.database)) as session:
        row = session.get(CounterRow, (policy, "repeated_events"))
        return 0 if row is None else row.count


def surviving(episodes: list[Episode], check: int) -> list[float]:
    """At the check with this number, of everything that was accepted."""
    found = []
    for episode in episodes:
        looks = [outcome.happening for outcome in episode.outcomes if isinstance(outcome.happening, Persisted)]
        if looks:
            found.append(sorted(looks, key=lambda look: look.after_s)[check - 1].surviving)
    return found


def test_what_is_known_of_cups_holds_after_the_join(running: Service) -> None:
    code, written = running.replay("cups", whole("cups/events_small.jsonl"), "copilot")
    assert code == 0, written
    episodes = running.episodes("copilot")
    told = sum((kinds(episode) for episode in episodes), Counter())
    assert len(episodes) == 1151 and all(len(episode.turns) == 1 for episode in episodes)
    assert told["shown"] == 1150 and told["replayed"] == 1239
    unshown = [episode.episode_id for episode in episodes if not kinds(episode)["shown"]]
    assert unshown == ["cups:copilot:u18-s0000"], "its recording begins with a replay"
    accepted, rejected = with_kind(episodes, "accepted"), with_kind(episodes, "rejected")
    assert (accepted, accepted + rejected) == (386, 1096)
    assert sum(not kinds(e)["accepted"] and not kinds(e)["rejected"] for e in episodes) == 55
    checks = [surviving(episodes, check) for check in range(1, 6)]
    assert [len(check) for check in checks] == [386] * 5
    assert [round(sum(s == 1 for s in check) / 386, 3) for check in checks] == [0.699, 0.676, 0.648, 0.622, 0.596]
    assert [round(sum(1 - s > 0.5 for s in check) / 386, 3) for check in checks] == [0.039, 0.047, 0.044, 0.065, 0.067]
    assert told["browsing"] == 5 and sum(told.values()) == 1150 + 1239 + 5 + 386 + 710 + 1930 + 1151
    assert len({episode.subject for episode in episodes}) == 21
    by_person = Counter(e.subject for e in episodes if kinds(e)["accepted"] or kinds(e)["rejected"])
    taken = Counter(e.subject for e in episodes if kinds(e)["accepted"])
    rates = sorted(taken[subject] / number for subject, number in by_person.items())
    assert (round(rates[0], 3), round(rates[-1], 3)) == (0.129, 0.571)
    for line in ("exposures                              1,150", "accepted                                 386  1,096  0.352"):
        assert line in written


def test_what_is_known_of_the_chats_holds_after_the_join(running: Service) -> None:
    code, written = running.replay("rhe_chat", whole("rhe_chat/events.jsonl"), "humaneval")
    assert code == 0, written
    episodes = running.episodes("humaneval")
    told = sum((kinds(episode) for episode in episodes), Counter())
    turns = [turn for episode in episodes for turn in episode.turns]
    assert (len(turns), told["copied"], len({turn.subject for turn in turns})) == (1055, 494, 107)
    copied_from = {outcome.turn_id for e in episodes for outcome in e.outcomes if outcome.happening.kind == "copied"}
    assert len(copied_from) == 362 and round(len(copied_from) / 1055, 2) == 0.34
    assert Counter(turn.version for turn in turns) == {"GPT-3.5": 305, "GPT-4o": 280, "CodeLlama7b": 243, "CodeLlama34b": 227}
    followed = [outcome.turn_id for e in episodes for outcome in e.outcomes if outcome.happening.kind == "follow_up"]
    assert len(followed) == len(set(followed)) == sum(len(episode.turns) - 1 for episode in episodes) == 651
    assert all(turn.latency_ms is None for turn in turns)


def test_an_excerpt_is_joined_rewarded_and_never_trained(running: Service) -> None:
    code, written = running.replay("cups", RECORDINGS / "cups.jsonl", "few")
    assert code == 0, written
    episodes = {episode.episode_id.removeprefix("cups:few:"): episode for episode in running.episodes("few")}
    told = sum((kinds(episode) for episode in episodes.values()), Counter())
    assert told == Counter(shown=8, replayed=8, browsing=1, accepted=5, rejected=2, persisted=25, closed=9)
    blend = Blend(load_policy(REPOSITORY / "policies" / "tab.yaml").reward)
    rewards = {}
    for name, episode in episodes.items():
        judged = blend.judge(episode)
        rewards[name] = judged.reward.value
        assert assign(episode, judged) is None
        shown = [part.value for part in judged.reward.parts if part.name == "shown"]
        assert sum(shown) == (0 if name in ("u00-s0032", "u00-s0053") and not kinds(episode)["shown"] else 1)
    assert rewards["u00-s0000"] == 0.75 and rewards["u00-s0001"] == -0.25
    assert rewards["u00-s0053"] is None, "nobody decided"
    assert rewards["u00-s0020"] < 0.75, "most of it was gone in the end"
    turn = episodes["u00-s0000"].turns[0]
    assert turn.text == "(X, Y, test_size=0.2, random_state=42)" and turn.latency_ms == 366.0
    assert (turn.prompt_ids, turn.completion_ids, turn.logps, turn.sampling, turn.version) == (None,) * 5


def test_twice_is_once(running: Service) -> None:
    for _ in range(2):
        assert running.replay("rhe_chat", RECORDINGS / "rhe_chat.jsonl", "chats")[0] == 0
    episodes = running.episodes("chats")
    told = sum((kinds(episode) for episode in episodes), Counter())
    assert sum(len(episode.turns) for episode in episodes) == 11
    assert told == Counter(copied=7, follow_up=3, closed=8)
    deadline = time.monotonic() + 60
    while (repeated := repeats(running, "chats")) < sum(told.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert repeated == sum(told.values())
    assert running.episodes("chats") == episodes, "no revision, and no word of one, is another"


def test_an_interrupted_replay_goes_on_where_it_was(running: Service) -> None:
    file, marks, stop = RECORDINGS / "cups.jsonl", running.settings.home / "replay", threading.Event()

    def interrupt() -> None:
        while not list(marks.glob("cups-paused-*")) and not stop.wait(0.02):
            pass
        stop.set()

    threading.Thread(target=interrupt, daemon=True).start()
    code, written = running.replay("cups", file, "paused", "--speed", "100", stop=stop)
    assert code == 130 and "the same command goes on" in written
    (mark,) = marks.glob("cups-paused-*")
    done = int(mark.read_text())
    assert 0 < done < 67
    code, written = running.replay("cups", file, "paused")
    assert code == 0 and f"Going on after step {done} of 67." in written
    assert len(running.episodes("paused")) == 9 and not list(marks.glob("cups-paused-*"))
    assert repeats(running, "paused") == 0


def test_the_command_replays_and_shows_what_came_of_it(running: Service) -> None:
    command = [sys.executable, "-m", "infra.cli", "replay", "cups", str(RECORDINGS / "cups.jsonl"), "--policy", "command"]
    done = subprocess.run(
        [*command, "--longest-pause", "1"], env=running.environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"accepted +5 +7 +0\.714", done.stdout) and re.search(
        r"typed through after rejecting +not recorded", done.stdout
    )


def test_who_opted_out_is_counted_and_nothing_else(running: Service) -> None:
    registered = load_secrets(running.settings.home).registered("cups/u00")
    with writing(open_db(running.database)) as session:
        set_opted_out(session, registered, True, to_ms(system_clock()))
    code, written = running.replay("cups", RECORDINGS / "cups.jsonl", "private")
    assert code == 0 and "6 episodes are of people who opted out" in written
    people = {turn.episode_id.split(":")[-1][:3] for episode in running.episodes("private") for turn in episode.turns}
    assert people == {"u04", "u17", "u18"}
    with reading(open_db(running.database)) as session:
        for table in (TurnRow, OutcomeRow):
            assert not [row for row in session.exec(select(table)).all() if row.episode_id.startswith("cups:private:u00")]
        assert not session.exec(select(RefusalRow).where(RefusalRow.policy == "private")).all()
        counters = dict(session.exec(select(CounterRow.name, CounterRow.count).where(CounterRow.policy == "private")).all())
    assert counters["gone.refused.no_consent"] == 29


def test_what_is_of_a_deleted_person_is_counted_by_itself_and_not_waited_for(running: Service) -> None:
    assert running.replay("cups", RECORDINGS / "cups.jsonl", "left")[0] == 0
    engine, log, now_ms = open_db(running.database), open_log(running.settings), to_ms(system_clock())
    deletion_id = deletion.ask(engine, load_secrets(running.settings.home).hashes("cups/u04"), now_ms)
    deadline = time.monotonic() + 60
    while not deletion.finish(deletion.places(running.settings, engine, log), deletion_id, now_ms):
        assert time.monotonic() < deadline, "the collector's spool is empty soon"
        time.sleep(0.2)
    log.close()
    code, written = running.replay("cups", RECORDINGS / "cups.jsonl", "left", "--anew")
    gone = len([line for line in (RECORDINGS / "cups.jsonl").read_text().splitlines() if '"u04' in line])
    assert code == 0 and "not joined yet" not in written, written
    (told,) = re.findall(r"(\d+) events are of people who were deleted", written)
    assert int(told) >= gone > 0
    assert not [episode for episode in running.episodes("left") if ":u04-" in episode.episode_id]
