"""A turn of a recording: text without tokens, said as it is, and never trained."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from contracts.episode import Episode
from contracts.turn import Turn, VersionSpan
from rewarding.blend import Blend
from rewarding.credit import assign
from tests.conftest import EPOCH, make_outcome, make_turn

UNKNOWN = {"prompt_ids": None, "completion_ids": None, "logps": None, "spans": (), "sampling": None, "latency_ms": None}


def recorded(**changes: Any) -> Turn:
    return Turn(**{**dict(make_turn()), **UNKNOWN, **changes})


def test_it_survives_the_wire_and_is_not_an_answer_of_no_tokens() -> None:
    turn = recorded()
    assert Turn.decode(turn.encode()) == turn
    assert turn != recorded(prompt_ids=(), completion_ids=(), logps=())
    assert turn.version is None
    assert recorded(spans=(VersionSpan(version="gpt", start=0, end=0),)).version == "gpt"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prompt_ids": (1,)}, "known together or not at all"),
        ({"completion_ids": (1,)}, "known together or not at all"),
        ({"logps": (-0.5,)}, "logps of tokens that are not known"),
        ({"spans": (VersionSpan(version="gpt", start=0, end=3),)}, "spans cover 3 of 0"),
    ],
)
def test_half_of_it_cannot_be_known(change: dict, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        recorded(**change)


def episode(*turns: Turn) -> Episode:
    told = (make_outcome("accepted", "e1", n=turns[0].turn_id.rpartition(".")[2]),)
    fields = {"episode_id": "ep-1", "policy": "tab", "revision": 1, "subject": "s", "closed_by": "closed", "closed_at": EPOCH}
    return Episode(turns=turns, outcomes=told, **fields)


def test_it_is_rewarded_and_no_sample_is_made_of_it(tab_policy) -> None:
    known, served = recorded(), make_turn(n="1-1")
    blend = Blend(tab_policy.reward)
    judged = blend.judge(episode(known))
    assert judged.reward.value == 0.75 and assign(episode(known), judged) is None
    both = episode(known, served)
    sample = assign(both, blend.judge(both))
    assert sample is not None and [segment.turn_id for segment in sample.segments] == [served.turn_id]
