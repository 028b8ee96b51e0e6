"""The record of a decision, of a batch of decisions, and of the reason for one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Decision(NamedTuple):
    """What a policy decided for one sample, and all that `learn` needs to know about it later.

    A decision that waits for feedback carries its bin, its time and the id of the policy that made it. An accepted
    sample usually teaches nothing; it then gets the shared record `ACCEPTED`, so that accepting allocates nothing.
    """

    offload: bool
    bin: int | None = None
    time: int | None = None
    policy: str | None = None


ACCEPTED = Decision(offload=False)


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of a batch: an array to act on, and a `Decision` for each sample to learn from.

    >>> from hinge import HILCB
    >>> batch = HILCB(bins=16, offload_cost=0.5).decide_many([3, 11])
    >>> batch.offload.tolist(), batch[1].bin, len(batch)
    ([True, True], 11, 2)
    """

    offload: "NDArray[np.bool_]"
    bins: "NDArray[np.int64]"
    first_time: int
    policy: str
    accepted_wait: bool  # whether accepted samples, too, await feedback

    def __len__(self) -> int:
        return len(self.offload)

    def __getitem__(self, position: int) -> Decision:
        offload = bool(self.offload[position])
        if not offload and not self.accepted_wait:
            return ACCEPTED
        time = self.first_time + range(len(self))[position]
        return Decision(offload, int(self.bins[position]), time, self.policy)

    def __iter__(self) -> Iterator[Decision]:
        return (self[position] for position in range(len(self)))


@dataclass(frozen=True)
class Explanation:
    """Why a policy would decide as it would for the next sample of a bin; `str()` says it in one sentence."""

    bin: int
    offload_probability: float  # 0 or 1 for a deterministic policy
    offloads: float | None  # n: offloads of this bin learned so far; None: the policy does not count them
    agreement: float | None  # f: the share of them in which local agreed with remote; None before the first
    expiry: int | None  # the time from which this bin is offloaded again; None: never, or not decided by expiry
    samples_left: int | None  # samples of any bin until then
    reason: str

    def __str__(self) -> str:
        return self.reason
