"""Thin devices: they only look up, and the server that sees their offloads learns for them. No I/O.

A *table* gives each bin a licence: so many of its samples are accepted after each that is offloaded, which is the
audit. A thin device counts down by itself (`ThinDevice`, whose twin in C is `hinge.h` with HINGE_THIN). Until it
hears of a new table, each licence is half as long as the one before: a table that is lost or stale ends by itself,
after less than twice its licences.

An offload tells the bin, the local answer, and how many samples of the bin were accepted before it. For all devices of
a *kind* there is one policy (`Kind`), to which their samples are one stream: an audit of one is an audit for all. Each
device counts its own licences, so that of n devices together one sample in g is an audit, as of one device. Nothing
has to be scaled.

A device cannot claim offloads that it has not made, but it can lie about bins and answers. So once two devices report,
only those count that `pool` finds to be kin of each other, and of what is known; whom it does not is counted again
when it does.
"""

from __future__ import annotations

from collections.abc import Mapping

from hinge.fleet.messages import LONGEST_LICENCE, MOST_DEVICES, Dropped, parse_table
from hinge.fleet.pooling import Verdict, pool
from hinge.policies import Sentinel

Sums = tuple[list[float], list[float]]  # offloads and agreements, by bin


class ThinDevice:
    """A device that has a table of licences, and learns nothing.

    >>> from hinge.fleet.messages import Table, build_table
    >>> device = ThinDevice(bins=2)
    >>> device.take(build_table(Table(1, (0, 4))))
    True
    >>> [device.decide(1) for _ in range(9)]  # after 4 samples an audit, and no answer: half as many
    [False, False, False, False, True, False, False, True, False]
    """

    def __init__(self, bins: int) -> None:
        self.left, self.granted = [0] * bins, [0] * bins
        self.counter = 0
        self.accepted = 0  # samples of its bin before the last offload

    def take(self, message: bytes) -> bool:
        """Go on with the table in a message; False if it is none, or no later one.

        A licence that is counted down goes on from the last audit: it becomes as long as the new one, or, if that is
        shorter, lasts no longer from now on.
        """
        try:
            table = parse_table(message, len(self.left))
        except Dropped:
            return False
        if table.counter <= self.counter:
            return False
        self.counter = table.counter
        for bin, licence in enumerate(table.licences):
            used = self.granted[bin] - self.left[bin]
            longer = licence >= self.granted[bin]
            self.left[bin] = licence - used if longer else min(self.left[bin], licence)
            self.granted[bin] = used + self.left[bin]
        return True

    def decide(self, bin: int) -> bool:
        """Whether to offload the next sample; a bin that the table does not have always is."""
        self.accepted = 0
        if not 0 <= bin < len(self.left):
            return True
        if self.left[bin]:
            self.left[bin] -= 1
            return False
        self.accepted = self.granted[bin]
        self.left[bin] = self.granted[bin] = self.granted[bin] >> 1
        return True


class Kind:
    """What is learned for thin devices of one kind: the same local model, bins and confidence measure.

    >>> kind = Kind(Sentinel(bins=4, offload_cost=0.5))
    >>> for _ in range(3):
    ...     kind.learn("kitchen", bin=3, agreed=True, accepted=0)
    >>> kind.licences
    (0, 0, 0, 10)
    """

    def __init__(self, policy: Sentinel, most: int = MOST_DEVICES) -> None:
        self.policy, self._most = policy, most
        self._settled = self._evidence()  # what no device of those below has told
        self._told: dict[str, Sums] = {}
        self.trusted: set[str] = set()
        self._dropped = list(policy.table.dropped)
        self._longest = list(policy.table.granted)

    def learn(self, device: str, bin: int, agreed: bool, accepted: int | None = None) -> None:
        """Count an offload of a device, after so many samples of the bin; None: as many as the table allowed."""
        if device not in self._told and len(self._told) >= self._most:
            raise Dropped("crowd", f"{device!r}, and {self._most} others are known")
        policy = self.policy
        told = self._told.setdefault(device, ([0.0] * policy.bins, [0.0] * policy.bins))
        told[0][bin] += 1.0
        told[1][bin] += agreed
        if len(self._told) == 1:
            self.trusted.add(device)
        if device not in self.trusted:
            return
        granted = policy.table.granted
        policy.learn_reported(bin, agreed, granted[bin] if accepted is None else min(accepted, self._longest[bin]))
        self._longest = list(map(max, self._longest, granted))
        self._follow_drops()

    @property
    def devices(self) -> int:
        return len(self._told)

    @property
    def licences(self) -> tuple[int, ...]:
        left = self.policy.table.left  # all that is licensed is granted
        return tuple(min(samples or self.policy.countdown(bin)[0], LONGEST_LICENCE) for bin, samples in enumerate(left))

    def judge(self) -> None:
        """Find out whom to trust, of two devices and more."""
        self.trust(pool(*self.told()).verdicts)

    def told(self) -> tuple[Sums, dict[str, Sums]]:
        """What is settled, and what each device has told, as `pool` takes them; copied, as that may take long."""
        copied = {device: (list(sums[0]), list(sums[1])) for device, sums in self._told.items()}
        return (list(self._settled[0]), list(self._settled[1])), copied

    def trust(self, verdicts: Mapping[str, Verdict]) -> None:
        """Count what those have told who are kin, and nobody else."""
        trusted = {device for device, verdict in verdicts.items() if verdict is Verdict.KIN}
        if len(verdicts) < 2 or trusted == self.trusted:
            return
        self.trusted = trusted
        parts = [self._settled, *(self._told[device] for device in sorted(trusted))]
        self.policy.revise(*([sum(column) for column in zip(*each, strict=True)] for each in zip(*parts, strict=True)))

    def _evidence(self) -> Sums:
        evidence = self.policy.own_evidence()
        return evidence["offloads"], evidence["agreements"]

    def _follow_drops(self) -> None:
        """Forget what alarms have dropped."""
        dropped = list(self.policy.table.dropped)
        for bin in range(self.policy.bins):
            if dropped[bin] != self._dropped[bin]:
                for known, kept in zip(self._settled, self._evidence(), strict=True):
                    known[bin] = kept[bin]
                for told in self._told.values():
                    told[0][bin] = told[1][bin] = 0.0
        self._dropped = dropped
