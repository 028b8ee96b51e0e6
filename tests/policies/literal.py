"""HI-LCB and HI-LCB-lite transcribed from the paper's Algorithm 1, line by line, for decisions to be compared with.

Nothing here is solved for t, cached or shared with the package: every bound is computed anew for every sample. With
`offload_cost` given, LCB_γ = γ (remark "Fixed Offloading Cost"). Readings 1 to 4: a bin without offloads has the bound
-∞, also inside the maximum and at t = 1; t is the global slot, counted from 1; "or O_φ = 0" can be left out; the
comparison is strict.
"""

import math

import numpy as np


class LiteralHILCB:
    """Algorithm 1."""

    def __init__(self, bins: int, alpha: float, offload_cost: float | None = None, offload_unseen: bool = True) -> None:
        self.alpha, self.offload_cost, self.offload_unseen = alpha, offload_cost, offload_unseen
        self.t = 0
        self.offloads_all, self.mean_cost = 0, 0.0  # O_γ, γ̂
        self.offloads, self.agreement = np.zeros(bins), np.full(bins, -math.inf)  # O_φ; f̂, -∞ before the first

    def lcb(self, bin: int) -> float:
        """max over φ_j ≤ φ_i of f̂(φ_j) - √(α log t / O_φj)   (eq. LCB_def)"""
        f, n = self.agreement[: bin + 1], np.maximum(self.offloads[: bin + 1], 1)  # where n is 0, f is -∞
        return float(np.maximum.reduce(f - np.sqrt(self.alpha * math.log(self.t) / n)))

    def lcb_cost(self) -> float:
        """γ̂ - √(α log t / O_γ)   (eq. LCB2), or γ itself where it is known"""
        if self.offload_cost is not None:
            return self.offload_cost
        if self.offloads_all == 0:
            return -math.inf
        return self.mean_cost - math.sqrt(self.alpha * math.log(self.t) / self.offloads_all)

    def decide(self, bin: int) -> tuple[bool, float]:
        """D(t), whether to offload the sample; and LCB_γ - (1 - LCB_φ), the margin by which it is accepted."""
        self.t += 1
        wrong, cost = 1 - self.lcb(bin), self.lcb_cost()
        unseen = self.offload_unseen and self.offloads[bin] == 0
        return bool(wrong >= cost or unseen), cost - wrong

    def learn(self, bin: int, agreed: float, cost: float) -> None:
        """Lines 8 to 10, for an offload whose feedback has arrived; `agreed` is 1 - η."""
        n, m = float(self.offloads[bin]), self.offloads_all
        self.agreement[bin] = (n * float(self.agreement[bin]) + agreed) / (n + 1) if n else agreed
        self.mean_cost = (m * self.mean_cost + cost) / (m + 1)
        self.offloads[bin], self.offloads_all = n + 1, m + 1


class LiteralHILCBLite(LiteralHILCB):
    """Algorithm 1 with eq. vanillaLCB in place of eq. LCB_def."""

    def __init__(self, bins: int, alpha: float, offload_cost: float | None = None) -> None:
        super().__init__(bins, alpha, offload_cost)

    def lcb(self, bin: int) -> float:
        """f̂(φ_i) - √(α log t / O_φi)"""
        n = float(self.offloads[bin])
        return float(self.agreement[bin]) - math.sqrt(self.alpha * math.log(self.t) / n) if n else -math.inf
