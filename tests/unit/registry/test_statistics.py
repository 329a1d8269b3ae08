"""The canary's statistics against simulations, against ville's own sequences, and against figures worked out by hand."""

from __future__ import annotations

import random
import statistics as figures

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ville import BernoulliCS

from registry.statistics import Interval, Sums, Unit, difference, normal_mean, share_sequence, wilson

MARGIN, ALPHA = 0.10, 0.05


class Arms:
    """Sums per subject, as traffic at a share adds to them."""

    def __init__(self, subjects: int, share: float, seed: int, spread: float = 0.0) -> None:
        self.chance = random.Random(seed)
        chosen = sorted(range(subjects), key=lambda _: self.chance.random())[: max(2, round(share * subjects))]
        self.candidate = set(chosen)
        self.taste = [self.chance.gauss(0.0, spread) for _ in range(subjects)]
        self.sums = [[0, 0.0, 0.0] for _ in range(subjects)]

    def traffic(self, n: int, accept: float, shift: float) -> None:
        for _ in range(n):
            subject = self.chance.randrange(len(self.sums))
            p = accept + self.taste[subject] + (shift if subject in self.candidate else 0.0)
            value = 0.75 if self.chance.random() < p else -0.25
            for column, add in enumerate((1, value, value * value)):
                self.sums[subject][column] += add

    def look(self, unit: Unit) -> Interval | None:
        arms = [[Sums(*s) for i, s in enumerate(self.sums) if (i in self.candidate) == mine] for mine in (True, False)]
        return difference(arms[0], arms[1], ALPHA, unit)

    @property
    def seen(self) -> int:
        return sum(self.sums[subject][0] for subject in self.candidate)


def fails(found: Interval | None) -> bool:
    return found is not None and found.high < 0 and found.value <= -MARGIN


def requests_until_failure(arms: Arms, accept: float, shift: float, unit: Unit, most: int, every: int) -> int | None:
    for _ in range(0, most, every):
        arms.traffic(every, accept, shift)
        if arms.seen >= 20 and fails(arms.look(unit)):
            return arms.seen
    return None


def test_an_equal_candidate_is_seldom_thrown_out_however_often_one_looks() -> None:
    """300 A/A runs at 10 %, 25 looks each. The promise is alpha / 2; the slack is three standard errors of 300 runs."""
    alarms = sum(requests_until_failure(Arms(100, 0.1, seed), 0.3, 0.0, "request", 1000, 40) is not None for seed in range(300))
    assert alarms / 300 <= ALPHA / 2 + 3 * (ALPHA / 2 * (1 - ALPHA / 2) / 300) ** 0.5


def test_people_who_differ_do_not_fool_the_subject_test() -> None:
    """Whose requests hang together (a taste of sd 0.15 each): ten candidates' tastes are not a difference of versions."""
    runs = (requests_until_failure(Arms(100, 0.1, seed, 0.15), 0.4, 0.0, "subject", 2000, 100) for seed in range(120))
    assert sum(found is not None for found in runs) / 120 <= ALPHA


def test_nearly_all_rejected_is_found_within_sixty_requests() -> None:
    found = [requests_until_failure(Arms(100, 0.1, seed), 0.3, -0.28, "request", 1500, 10) for seed in range(60)]
    assert all(n is not None for n in found)
    assert figures.median(n for n in found if n is not None) <= 60


def test_the_interval_covers_the_truth_and_lets_a_good_candidate_pass() -> None:
    arms = Arms(100, 0.5, 3)
    arms.traffic(4000, 0.3, 0.05)
    found = arms.look("request")
    assert found is not None and found.low <= 0.05 <= found.high and found.low > -MARGIN


def test_a_subject_counts_once_however_much_it_asks() -> None:
    one_loud = [Sums(10, 2.0, 3.0) for _ in range(9)] + [Sums(1000, -250.0, 62.5)]
    quiet = [Sums(10, 2.0, 3.0) for _ in range(90)]
    by_request, by_subject = difference(one_loud, quiet, ALPHA, "request"), difference(one_loud, quiet, ALPHA, "subject")
    assert by_request is not None and by_request.high < -MARGIN
    assert by_subject is not None and by_subject.high > 0


@pytest.mark.parametrize("unit", ["request", "subject"])
def test_says_nothing_where_nothing_can_be_said(unit: Unit) -> None:
    some = [Sums(5, 1.0, 2.0), Sums(5, 0.0, 2.0)]
    assert difference([], some, ALPHA, unit) is None
    assert difference(some, [], ALPHA, unit) is None
    assert difference([Sums(1, 0.75, 0.5625)], some, ALPHA, unit) is None
    assert difference([Sums(5, float("nan"), 1.0)] * 2, some, ALPHA, unit) is None


def test_ten_equal_rewards_do_not_prove_the_eleventh() -> None:
    same = difference([Sums(1, -0.25, 0.0625)] * 10, [Sums(10, 0.5, 2.0)] * 10, ALPHA, "request")
    assert same is not None and same.high - same.low > 0.5


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_share_sequence_holds_its_share_and_shrinks_from_the_whole(hits: int, misses: int) -> None:
    low, high = share_sequence(hits, hits + misses, ALPHA)
    assert 0.0 <= low <= high <= 1.0
    if hits + misses:
        assert low <= hits / (hits + misses) <= high


@pytest.mark.parametrize(("hits", "n"), [(0, 30), (3, 40), (20, 40), (40, 40), (7, 500)])
def test_a_share_sequence_is_the_one_of_ville(hits: int, n: int) -> None:
    theirs = BernoulliCS(alpha=ALPHA, intersect=False).fit(np.r_[np.ones(hits), np.zeros(n - hits)]).interval()
    assert share_sequence(hits, n, ALPHA) == pytest.approx(theirs, abs=1e-6)


def test_figures_by_hand() -> None:
    found = wilson(50, 100)
    assert found is not None and (found.low, found.high) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    mean = normal_mean(4, 2.0, 2.0)
    assert mean is not None and (mean.value, mean.high) == pytest.approx((0.5, 0.5 + 1.95996 * (1 / 3 / 4) ** 0.5), abs=1e-4)
    assert wilson(0, 0) is None and normal_mean(0, 0.0, 0.0) is None
