"""Cost, regret, offloads and accuracy of a run: one definition for the simulator, the device and the demo.

`accept` and `offload` add one sample to an array of sums. They are plain functions that numba compiles, so that the
simulator's loops and `Ledger`, which keeps the sums of a running device, cannot drift apart.
"""

from typing import Any

REGRET, OFFLOADS, OFFLOAD_COST, ERRORS, RIGHT = range(5)  # the positions in an array of sums
SUMS = 5


def accept(sums: Any, agreed: float, gap: float) -> None:
    """Add a sample that was answered locally.

    `agreed` is 1 where local agrees with remote and 0 where it does not; `gap` is the expected cost of accepting minus
    that of offloading, so that accepting is a mistake where it is positive.
    """
    sums[ERRORS] += 1.0 - agreed
    if gap > 0.0:
        sums[REGRET] += gap


def offload(sums: Any, cost: float, gap: float) -> None:
    """Add a sample that was answered by the remote, whose answer counts as right."""
    sums[OFFLOADS] += 1.0
    sums[OFFLOAD_COST] += cost
    if gap < 0.0:
        sums[REGRET] -= gap


class Ledger:
    """The sums of a run, sample by sample, and the figures that follow from them. Not thread-safe.

    What is not known of a sample is None: whether the answer agrees with the remote's (`agreed`), the `gap`, whether
    the answer is `right` by the true label. Figures that need it are then None, or of the samples where it is known.

    >>> ledger = Ledger()
    >>> ledger.accept(agreed=False, gap=0.2)
    >>> ledger.offload(cost=0.5, gap=0.2)
    >>> ledger.cost, ledger.figures()["cost_per_sample"], ledger.figures()["regret"]
    (1.5, 0.75, 0.2)
    """

    def __init__(self) -> None:
        self._sums = [0.0] * SUMS
        self.samples = self._judged = self._weighed = self._labelled = 0

    def accept(
        self,
        agreed: float | None,
        *,
        gap: float | None = None,
        right: float | None = None,
        cost: float = 0.0,
    ) -> None:
        """Add a local answer; `cost` is what an offload that failed has cost nevertheless."""
        accept(self._sums, 1.0 if agreed is None else agreed, gap or 0.0)
        self._sums[OFFLOAD_COST] += cost
        self._count(agreed, gap, right)

    def offload(
        self,
        cost: float,
        *,
        gap: float | None = None,
        right: float | None = None,
        agreed: float | None = 1.0,
    ) -> None:
        """Add an offload; `agreed` is less than 1 only where the answer is not the one that the remote is known for."""
        offload(self._sums, cost, gap or 0.0)
        self._sums[ERRORS] += 0.0 if agreed is None else 1.0 - agreed
        self._count(agreed, gap, right)

    def _count(self, agreed: float | None, gap: float | None, right: float | None) -> None:
        self.samples += 1
        self._judged += agreed is not None
        self._weighed += gap is not None
        self._labelled += right is not None
        self._sums[RIGHT] += right or 0.0

    @property
    def offloads(self) -> int:
        """How many samples were offloaded."""
        return int(self._sums[OFFLOADS])

    @property
    def offload_cost(self) -> float:
        """What the offloads cost."""
        return self._sums[OFFLOAD_COST]

    @property
    def cost(self) -> float:
        """What the offloads cost, and one for every answer known to disagree with the remote's."""
        return self._sums[OFFLOAD_COST] + self._sums[ERRORS]

    @property
    def regret(self) -> float:
        """Pseudo-regret: the sum of |gap| over the decisions that the oracle would have made differently."""
        return self._sums[REGRET]

    def figures(self) -> dict[str, Any]:
        """The figures so far, named as in `--json`; None stands for what is not known."""
        samples, offload_cost = self.samples, self._sums[OFFLOAD_COST]
        mistaken = self._labelled - self._sums[RIGHT]
        return {
            "offloads": self.offloads,
            "offload_fraction": ratio(self.offloads, samples),
            "accuracy": ratio(self._judged - self._sums[ERRORS], self._judged),
            "cost_per_sample": ratio(self.cost, samples) if self._judged == samples else None,
            "regret": self.regret if self._weighed == samples else None,
            "true_accuracy": ratio(self._sums[RIGHT], self._labelled),
            "true_cost_per_sample": ratio(offload_cost + mistaken, samples) if self._labelled == samples else None,
        }


def ratio(part: float, whole: float) -> float | None:
    """The part of a whole, or None where there is none.

    >>> ratio(1, 4), ratio(0, 0)
    (0.25, None)
    """
    return part / whole if whole else None
