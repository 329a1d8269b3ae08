"""The split: sticky, monotone in the share, truthful about how likely it was."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from contracts.rollout import Rollout
from contracts.states import CheckpointState
from serving.split import Route, Router, assign

SUBJECTS = st.text(alphabet="abcdef0123456789", min_size=4, max_size=32)
SHARES = st.floats(0.001, 1.0)


def rollout(share: float, revision: int = 1, candidate: str | None = "v2", champion: str = "v1", step: int = 0) -> Rollout:
    return Rollout(
        policy="tab",
        revision=revision,
        champion=champion,
        candidate=candidate,
        candidate_state=CheckpointState.CANARY if candidate else None,
        experiment=f"tab-{candidate}" if candidate else None,
        step=step if candidate else None,
        share=share if candidate else 0.0,
        reason="a test",
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )


@given(SUBJECTS, SHARES, SHARES)
def test_a_growing_share_only_adds_subjects(subject: str, one: float, other: float) -> None:
    small, large = (assign(rollout(share), subject, True) for share in sorted((one, other)))
    assert small.arm == "champion" or large.arm == "candidate"


@given(SUBJECTS, SHARES)
def test_propensity_is_that_of_the_arm_met(subject: str, share: float) -> None:
    route = assign(rollout(share), subject, True)
    assert route == assign(rollout(share), subject, True)
    assert route.propensity == (share if route.arm == "candidate" else 1 - share) and route.propensity > 0
    assert (route.experiment, route.step) == ("tab-v2", 0)


@given(SUBJECTS, SHARES)
def test_without_a_candidate_nothing_is_split(subject: str, share: float) -> None:
    alone = Route("v1", "champion", None, None, 1.0)
    assert assign(rollout(share), subject, False) == alone
    assert assign(rollout(0.0), subject, True) == alone
    assert assign(rollout(share, candidate=None), subject, True) == alone


def test_the_share_is_met_and_experiments_are_salted_apart() -> None:
    subjects = [f"dev-{number}" for number in range(4000)]
    first = {s for s in subjects if assign(rollout(0.2), s, True).arm == "candidate"}
    other = {s for s in subjects if assign(rollout(0.2, candidate="v3"), s, True).arm == "candidate"}
    assert 0.17 < len(first) / 4000 < 0.23
    assert 0.1 < len(first & other) / len(first) < 0.3, "who met one candidate is no likelier to meet the next"


@given(st.lists(st.tuples(SUBJECTS, SHARES), min_size=1, max_size=8), SHARES)
def test_an_episode_stays_where_it_began(visits: list[tuple[str, float]], share: float) -> None:
    router = Router(100)
    router.apply(rollout(share), {"v1", "v2"})
    first = {subject: router.route(subject, f"ep-{subject}", {"v1", "v2"}) for subject, _ in visits}
    for revision, (subject, changed) in enumerate(visits, 2):
        router.apply(rollout(changed, revision, step=revision), {"v1", "v2"})
        assert router.route(subject, f"ep-{subject}", {"v1", "v2"}) == first[subject]


def test_nobody_is_kept_on_what_was_rolled_back() -> None:
    router, ready = Router(100), {"v1", "v2"}
    router.apply(rollout(1.0), ready)
    first = router.route("ada", "ep-1", ready)
    assert first is not None and first.version == "v2"
    router.apply(rollout(0.0, 2, candidate=None), ready)
    assert router.route("ada", "ep-1", ready) == Route("v1", "champion")


def test_an_episode_outlives_its_experiment_on_its_version() -> None:
    router, ready = Router(100), {"v1", "v2"}
    router.apply(rollout(0.5), ready)
    subjects = {"candidate": "", "champion": ""}
    for number in range(50):
        route = router.route(f"dev-{number}", f"ep-{number}", ready)
        assert route is not None
        subjects[route.arm] = str(number)
    router.apply(rollout(0.0, 2, candidate=None, champion="v2"), ready)
    for arm, version in (("candidate", "v2"), ("champion", "v1")):
        number = subjects[arm]
        assert router.route(f"dev-{number}", f"ep-{number}", ready) == Route(version, "champion")
        assert router.route(f"dev-{number}", f"ep-{number}", {"v2"}) == Route("v2", "champion"), "freed: the champion takes over"


def test_a_routing_counts_when_its_champion_is_ready() -> None:
    router = Router(100)
    assert router.route("ada", "ep-1", set()) is None
    router.apply(rollout(0.5), {"v2"})
    assert router.rollout is None
    router.apply(rollout(1.0, 2), {"v1", "v2"})
    router.apply(rollout(0.0, 1, candidate=None), {"v1", "v2"})
    assert router.rollout is not None and router.rollout.revision == 2, "an older routing that arrives late changes nothing"
    router.apply(rollout(0.0, 3, candidate=None, champion="v9"), {"v1", "v2"})
    assert router.rollout.revision == 2 and router.rollout.candidate is None
    assert router.route("ada", "ep-2", {"v1", "v2"}) == Route("v1", "champion"), "a dropped candidate gets nobody"


@given(st.lists(st.integers(0, 30), max_size=60))
def test_the_memory_of_episodes_is_bounded(visits: list[int]) -> None:
    router, ready = Router(5), {"v1", "v2"}
    router.apply(rollout(0.5), ready)
    for number in visits:
        router.route("ada", f"ep-{number}", ready)
    assert len(router._routes) <= 5
