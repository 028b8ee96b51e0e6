"""Bins that fit themselves, transcribed from their description, around the literal Probation."""

from bisect import bisect_right

from tests.policies.literal_probation import Bin, LiteralProbation

EDGES = [1.0 / (1.0 + 2.0 ** (24.0 - 48.0 * cell / 512)) for cell in range(1, 512)]


class LiteralGate:
    """Counts by cell, and a grouping of the cells that is made anew now and then."""

    def __init__(self, offload_cost: float) -> None:
        self.policy, self.q = LiteralProbation(16, offload_cost), 1.0 - offload_cost
        self.samples, self.offloads, self.agreements = ([0.0] * 512 for _ in range(3))
        self.group = [0] + [min(int(edge * 16), 15) for edge in EDGES]
        self.due = 64

    def decide(self, confidence: float, told: float | None = None) -> bool:
        cell = bisect_right(EDGES, confidence)
        self.samples[cell] += 1.0
        return self.policy.decide(self.group[cell], told)

    def learn(self, confidence: float, agreed: float) -> None:
        cell = bisect_right(EDGES, confidence)
        dropped = self.policy.learn(self.group[cell], agreed)
        for each in range(512):
            if dropped == "all" or (dropped == "bin" and self.group[each] == self.group[cell]):
                self.samples[each] = self.offloads[each] = self.agreements[each] = 0.0
        if dropped:
            self.samples[cell] = 1.0
        self.offloads[cell] += 1.0
        self.agreements[cell] += agreed
        if self.policy.time >= self.due:
            self.regroup()
            self.due = self.policy.time + min(max(self.policy.time, 64), 4096)

    def regroup(self) -> None:
        old, old_group = self.policy.bins, self.group
        held = [sum(self.samples[c] for c in range(512) if old_group[c] == bin) for bin in range(16)]
        accepts = [one.a >= self.q * one.n for one in old]
        weights = [16.0 if self.mixed(accepts, old_group[c]) else 1.0 for c in range(512)]
        weights = [weight * samples for weight, samples in zip(weights, self.samples, strict=True)]
        below, parts = 0.0, []
        for weight in weights:
            parts.append(min(int((below + weight / 2.0) / sum(weights) * 16), 15) if any(weights) else 0)
            below += weight
        self.group = [sorted({*parts}).index(part) for part in parts]
        self.policy.bins = [Bin() for _ in range(16)]
        for bin, one in enumerate(self.policy.bins):
            cells = [c for c in range(512) if self.group[c] == bin]
            one.n, one.a = sum(self.offloads[c] for c in cells), sum(self.agreements[c] for c in cells)
            one.m = sum(self.samples[c] for c in cells)
        for bin, one in enumerate(self.policy.bins):
            left = whole = 0.0
            for c in range(512):
                was = old[old_group[c]]
                if self.group[c] == bin and self.samples[c]:
                    left += (was.licence - was.used) / held[old_group[c]] * self.samples[c]
                    whole += was.licence / held[old_group[c]] * self.samples[c]
            if one.n:
                most, one.testified = self.policy.granted(bin, one.m, self.policy.price)
                one.licence = max(min(most, int(left)), min(most, int(whole)))
                one.used = one.since = one.licence - min(most, int(left))

    @staticmethod
    def mixed(accepts: list[bool], bin: int) -> bool:
        """Whether a neighbour of a bin stands on the other side of break-even."""
        return any(accepts[other] != accepts[bin] for other in (bin - 1, bin + 1) if 0 <= other < 16)
