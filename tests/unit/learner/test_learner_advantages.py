"""Advantages: what a reward is compared with. Nothing is ever NaN, whatever the rewards and groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import StartError, UnknownName
from contracts.policy import Plugin
from learner.advantages import ADVANTAGES
from learner.plugins import build

NAMES = ("batch_mean", "leave_one_out", "group_mean")
rewards = st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([None, "a", "b"])), min_size=1, max_size=12)


def advantages(name: str, values: list[float], groups: list[str | None] | None = None, **options: object) -> list[float]:
    plugin = build(ADVANTAGES, Plugin(name=name, options=options), "tab")
    array = np.array(values, dtype=np.float64)
    baseline, scale = plugin(array, groups or [None] * len(values))
    return [float(value) for value in (array - baseline) * scale]


def test_the_folder_is_the_list() -> None:
    assert set(NAMES) <= set(ADVANTAGES.names())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("standardise", [False, True])
@given(rows=rewards)
def test_finite_and_small_for_all_rewards(name: str, standardise: bool, rows: list[tuple[float, str | None]]) -> None:
    found = advantages(name, [reward for reward, _ in rows], [group for _, group in rows], standardise=standardise)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 2 * np.sqrt(len(rows)) + 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("standardise", [False, True])
def test_one_alone_and_equals_get_nothing(name: str, standardise: bool) -> None:
    assert advantages(name, [1.0], ["g"], standardise=standardise) == [0.0]
    assert advantages(name, [0.1] * 7, ["g"] * 7, standardise=standardise) == [0.0] * 7


def test_batch_mean() -> None:
    assert advantages("batch_mean", [1.0, 0.0, 0.0, 1.0]) == [0.5, -0.5, -0.5, 0.5]
    assert advantages("batch_mean", [1.0, 0.0, 0.0, 1.0], standardise=True) == [1.0, -1.0, -1.0, 1.0]


def test_leave_one_out_leaves_its_own_reward_out() -> None:
    assert advantages("leave_one_out", [1.0, 0.0, 0.5]) == [0.75, -0.75, 0.0]


def test_groups_compare_among_themselves_and_singles_with_all() -> None:
    found = advantages("group_mean", [1.0, 0.0, 0.4, 0.4, 0.9], ["a", "a", "b", "b", "alone"])
    assert found[:4] == [0.5, -0.5, 0.0, 0.0]
    assert found[4] == pytest.approx(0.9 - 0.54)


def test_a_wrong_option_is_one_sentence() -> None:
    with pytest.raises(StartError, match=r"policy tab: options of batch_mean: standardize: "):
        build(ADVANTAGES, Plugin(name="batch_mean", options={"standardize": True}), "tab")
    with pytest.raises(UnknownName, match="batch_mean, group_mean, leave_one_out"):
        build(ADVANTAGES, Plugin(name="median"), "tab")
