"""Who meets which version, and how likely that was.

Enters: a routing, a subject, an episode. Leaves: a `Route` with the propensity of exactly what happened: a candidate that is
not ready splits nothing, so its would-be subjects are outside the experiment. A subject's place is fixed within an
experiment: a growing share only ever adds subjects to the candidate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass, replace

from contracts.ids import sticky_fraction
from contracts.rollout import Rollout
from contracts.turn import Arm


@dataclass(frozen=True, slots=True)
class Route:
    version: str
    arm: Arm
    experiment: str | None = None
    step: int | None = None
    propensity: float = 1.0


def assign(rollout: Rollout, subject: str, candidate_ready: bool) -> Route:
    candidate, experiment, share = rollout.candidate, rollout.experiment, rollout.share
    if candidate is None or experiment is None or share <= 0 or not candidate_ready:
        return Route(rollout.champion, "champion")
    if sticky_fraction(experiment, subject) < share:
        return Route(candidate, "candidate", experiment, rollout.step, share)
    return Route(rollout.champion, "champion", experiment, rollout.step, 1.0 - share)


class Router:
    """The routing of one policy in force, and the arms of its latest episodes. One thread routes; any may apply."""

    def __init__(self, episodes: int) -> None:
        self._limit = episodes
        self._routes: OrderedDict[str, Route] = OrderedDict()
        self.rollout: Rollout | None = None

    def apply(self, rollout: Rollout, ready: Container[str]) -> None:
        """Take a newer routing over. While its champion is not ready the old one stays, without a candidate that was dropped."""
        now = self.rollout
        if now is not None and rollout.revision < now.revision:
            return
        if rollout.champion in ready:
            self.rollout = rollout
        elif now is not None and now.candidate not in (None, rollout.champion, rollout.candidate):
            self.rollout = now.model_copy(update={"candidate": None, "candidate_state": None, "share": 0.0})

    def route(self, subject: str, episode_id: str, ready: Container[str]) -> Route | None:
        """None: nothing can be served yet. Later turns of an episode stay where its first one went."""
        rollout = self.rollout
        if rollout is None:
            return None
        route = self._again(episode_id, rollout, ready)
        if route is None:
            route = assign(rollout, subject, rollout.candidate in ready)
        self._routes[episode_id] = route
        self._routes.move_to_end(episode_id)
        if len(self._routes) > self._limit:
            self._routes.popitem(last=False)
        return route

    def _again(self, episode_id: str, rollout: Rollout, ready: Container[str]) -> Route | None:
        first = self._routes.get(episode_id)
        if first is None or first.version not in ready:
            return None
        if first.arm == "candidate" and first.version not in (rollout.champion, rollout.candidate):
            return None  # rolled back: nobody is kept on it
        if first.experiment == rollout.experiment and rollout.share > 0:
            return first
        # The experiment is over; what this episode still says belongs to none.
        return replace(first, arm="champion", experiment=None, step=None, propensity=1.0)
