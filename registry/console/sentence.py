"""One line in words: how things stand, for whoever has three seconds."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.states import CheckpointState
from contracts.verdict import Verdict
from registry.console.views import CycleView, RolloutView, Tone, VersionView


def say(
    rollout: RolloutView | None, versions: Sequence[VersionView], cycles: Sequence[CycleView], requests: int
) -> tuple[Tone, str]:
    if rollout is None:
        return "empty", "No version serves yet. The learner seals the first one when it starts; check that it runs."
    if rollout.candidate is None:
        return _alone(rollout, versions, cycles, requests)
    if rollout.candidate_state is not CheckpointState.CANARY or rollout.step is None:
        return "moving", f"{rollout.champion} serves everybody; {rollout.candidate} is loaded and on the bench."
    return "moving", (
        f"{rollout.candidate} answers {rollout.share:.0%} of people, {rollout.champion} the rest "
        f"(step {rollout.step + 1} of {len(rollout.steps)}): {_gates(rollout)}."
    )


def _gates(rollout: RolloutView) -> str:
    passed = sum(gate.verdict is Verdict.PASS for gate in rollout.gates)
    if not rollout.gates:
        return "no gate has judged yet"
    unsure = [gate.gate for gate in rollout.gates if gate.verdict is not Verdict.PASS]
    said = f"{passed} of {len(rollout.gates)} gates pass"
    return said if not unsure else f"{said}, open: {', '.join(unsure)}"


def _alone(rollout: RolloutView, versions: Sequence[VersionView], cycles: Sequence[CycleView], requests: int) -> tuple[Tone, str]:
    serves = f"{rollout.champion} serves everybody"
    if requests == 0:
        return "empty", f"{serves}, and nobody has asked yet. Send a request to the gateway, or start the demo."
    newest = max(versions, key=lambda version: version.since, default=None)
    if newest is not None and newest.state in (CheckpointState.ROLLED_BACK, CheckpointState.REJECTED):
        did = "was rolled back" if newest.state is CheckpointState.ROLLED_BACK else "was rejected"
        return "bad", f"{serves}. {newest.version} {did}: {newest.reason}."
    learning = next((cycle for cycle in cycles if cycle.state == "running"), None)
    if learning is not None:
        return "steady", f"{serves}; the learner works on {learning.samples} samples for {learning.version}."
    return "good" if len(versions) > 1 else "steady", f"{serves}; no candidate is under way."
