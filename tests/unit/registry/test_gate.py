"""A plan's gates are built with their options checked, named apart, and never pass by failing."""

from __future__ import annotations

import pytest

from contracts.errors import StartError
from contracts.policy import Plugin, Policy
from contracts.verdict import Verdict
from registry.evidence import ArmEvidence, Evidence
from registry.gate import GATES, Finding, GateOptions, Panel

NOTHING = Evidence("tab-v0001")


def test_the_folder_is_the_list() -> None:
    assert {"bench_floor", "guardrail", "non_inferiority", "sample_ratio"} <= set(GATES.names())


def test_names_tell_gates_of_a_plan_apart(tab_policy: Policy) -> None:
    twins = (Plugin(name="guardrail", options={"measure": "error", "max": 0.1}),) * 2
    assert Panel("p", twins).names == ("guardrail.error", "guardrail.error.2")
    assert "non_inferiority.reward" in Panel("p", tab_policy.rollout.gates).names


def test_a_plan_at_fault_is_named_with_the_field() -> None:
    with pytest.raises(StartError, match=r"plan p: no gate is called 'luck'; there are: .*guardrail"):
        Panel("p", (Plugin(name="luck"),))
    with pytest.raises(StartError, match="plan p: gate non_inferiority: margin"):
        Panel("p", (Plugin(name="non_inferiority", options={"margin": -1}),))


def test_without_any_evidence_every_shipped_gate_is_unsure(tab_policy: Policy) -> None:
    for plugins in (tab_policy.rollout.gates, tab_policy.rollout.bench_gates):
        results = Panel("p", plugins).judge(NOTHING)
        assert results and {result.verdict for result in results} == {Verdict.UNSURE}
        assert all(result.value is None or result.n for result in results)


@GATES.add("broken_for_test")
class Broken(GateOptions):
    def judge(self, evidence: Evidence) -> Finding:
        return Finding(verdict=Verdict.PASS, reason="", value=[0.0][evidence.candidate.requests])


def test_a_gate_that_raises_is_an_error() -> None:
    (result,) = Panel("p", (Plugin(name="broken_for_test"),)).judge(Evidence("v", candidate=ArmEvidence(requests=1)))
    assert result.verdict is Verdict.ERROR and "IndexError" in result.reason
