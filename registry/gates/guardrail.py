"""A share of requests, or the slow end of latency, that must stay below a bound, whatever the reward says.

`measure`: how answers end (error, empty, silence, abort, length), as a share of requests; or `latency_p95_ms`.
`max`: the absolute bound. `max_ratio`: the bound as a multiple of the champion's figure in the same step.
Fail: the whole anytime-valid interval (1 - `alpha`, so looking often costs nothing) is beyond the bound. Pass: at least
`min_requests` requests, and the figure is within it. Unsure: too few requests, or beyond the bound with an interval that is not.
Latency is judged as a share, too: of the candidate's requests slower than the bound, which may not be more than 5 %.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from contracts.verdict import Verdict
from registry.evidence import ArmEvidence, Evidence
from registry.gate import GATES, Finding, GateOptions
from registry.statistics import share_sequence

_LATENCY = "latency_ms"
_SLOW_SHARE = 0.05


@GATES.add("guardrail")
class Guardrail(GateOptions):
    measure: Literal["error", "empty", "silence", "abort", "length", "latency_p95_ms"]
    max: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    max_ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    min_requests: Annotated[int, Field(ge=1, description="requests of the candidate, and of the champion for a ratio")] = 50

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.max is None) == (self.max_ratio is None):
            raise ValueError("exactly one of max and max_ratio is needed")
        return self

    @property
    def subject(self) -> str:
        return self.measure

    def measures(self) -> frozenset[str]:
        return frozenset({_LATENCY}) if self.measure == "latency_p95_ms" else frozenset()

    def judge(self, evidence: Evidence) -> Finding:
        return self._latency(evidence) if self.measure == "latency_p95_ms" else self._share(evidence)

    def _share(self, evidence: Evidence) -> Finding:
        candidate, champion = evidence.candidate, evidence.champion
        hits, n = candidate.finished(self.measure), candidate.requests
        if n == 0:
            return Finding(verdict=Verdict.UNSURE, reason="no request of the candidate yet")
        low, high = share_sequence(hits, n, self.alpha)
        bound, sure_bound = self._bounds(champion)
        value = hits / n
        said = f"{value:.1%} of {n} requests ended in {self.measure}, at most {bound:.1%} may"
        return self._verdict(candidate, champion, said, value, low, high, beyond=value > bound, surely=low > sure_bound)

    def _bounds(self, champion: ArmEvidence) -> tuple[float, float]:
        """The bound to pass, and the one beyond which failure is sure: the champion's own share is known only so well."""
        if self.max is not None:
            return self.max, self.max
        ratio = self.max_ratio or 1.0
        hits, n = champion.finished(self.measure), champion.requests
        return ratio * (hits / n if n else 0.0), ratio * share_sequence(hits, n, self.alpha)[1]

    def _latency(self, evidence: Evidence) -> Finding:
        candidate, champion = evidence.candidate, evidence.champion
        value, base = candidate.latency(1 - _SLOW_SHARE), champion.latency(1 - _SLOW_SHARE)
        limit = self.max if self.max is not None else None if base is None else base * (self.max_ratio or 1.0)
        if value is None or limit is None:
            return Finding(verdict=Verdict.UNSURE, reason="no latency of both arms yet")
        slow = sum(latency > limit for latency in candidate.latencies)
        low, _ = share_sequence(slow, len(candidate.latencies), self.alpha)
        said = f"p95 is {value:.0f} ms, at most {limit:.0f} ms may be; {slow} of {len(candidate.latencies)} were slower"
        return self._verdict(candidate, champion, said, value, None, None, beyond=value > limit, surely=low > _SLOW_SHARE)

    def _verdict(
        self,
        candidate: ArmEvidence,
        champion: ArmEvidence,
        said: str,
        value: float,
        low: float | None,
        high: float | None,
        *,
        beyond: bool,
        surely: bool,
    ) -> Finding:
        few = self._few(candidate, champion)
        verdict = Verdict.FAIL if surely and not self._blind(champion) else Verdict.UNSURE if beyond or few else Verdict.PASS
        if few and verdict is Verdict.UNSURE:
            said += f"; {self.min_requests} requests are needed"
        return Finding(verdict=verdict, reason=said, value=value, low=low, high=high, n=candidate.requests)

    def _few(self, candidate: ArmEvidence, champion: ArmEvidence) -> bool:
        return candidate.requests < self.min_requests or self._blind(champion)

    def _blind(self, champion: ArmEvidence) -> bool:
        """A ratio to a champion that was hardly seen says nothing."""
        return self.max_ratio is not None and champion.requests < self.min_requests
