"""Who of a fleet is like whom, seen from no device in particular: for a hub, which has seen nothing itself.

Groups of kin are found one after the other: of the devices that are left, the one with the most evidence pools the
others, and its kin are its group. The largest group is the fleet's. Who fits what that group has pooled joins it, as
somebody with little evidence may have been counted with a liar. All others are doubted, for a reason that can be said:
the bin in which their evidence speaks most against that of the largest group.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hinge.fleet.pooling import UNLIKE, Pool, Verdict, are_kin, pool, unlike

MOST_GROUPS = 8  # that are looked for, the largest of which is what matters

Sums = tuple[Sequence[float], Sequence[float]]  # offloads and agreements, by bin


class Doubt(NamedTuple):
    """Why a device is not believed: what it says of one bin, what its fleet says, and how much that differs."""

    bin: int
    offloads: float
    agreements: float
    fleet_offloads: float
    fleet_agreements: float
    nats: float

    def __str__(self) -> str:
        own, fleet = (_share(*pair) for pair in (self[1:3], self[3:5]))
        more = "" if self.nats > UNLIKE else ", and more in other bins"
        return f"bin {self.bin}: local agreed in {own}, in the fleet in {fleet} ({self.nats:.1f} nats{more})"


class Kinship(NamedTuple):
    """The groups of a fleet, the largest first, what that one has seen together, and why others are not believed."""

    groups: list[list[str]]
    pooled: Pool
    doubts: dict[str, Doubt | None]  # None: it is of no group, and yet no bin tells why


def kinship(said: Mapping[str, Sums], bins: int) -> Kinship:
    """What a hub makes of what devices say they have seen, offloads and agreements by bin.

    >>> fleet = {f"camera {k}": ([10.0, 40.0], [2.0, 36.0]) for k in range(8)} | {"liar": ([90.0, 90.0], [90.0, 90.0])}
    >>> found = kinship(fleet, bins=2)
    >>> [len(group) for group in found.groups], found.pooled.offloads
    ([8, 1], [80.0, 320.0])
    >>> print(found.doubts["liar"])
    bin 0: local agreed in 100 % of 90, in the fleet in 20 % of 80 (68.2 nats)
    """
    left = {name: sums for name, sums in _by_evidence(said) if sum(sums[0]) > 0.0}
    heard, groups = dict(left), list[list[str]]()
    while left and len(groups) < MOST_GROUPS:
        first = next(iter(left))
        own = left.pop(first)
        groups.append([first, *_of_verdict(pool(own, left), Verdict.KIN)])
        left = {name: sums for name, sums in left.items() if name not in groups[-1]}
    nothing = [0.0] * bins, [0.0] * bins  # own evidence of who has none: all are alike
    if not groups:
        return Kinship([], Pool(*nothing, {}), {})
    groups.sort(key=len, reverse=True)
    largest = set(groups[0])
    known = pool(nothing, {name: heard[name] for name in largest})
    largest |= {name for name, sums in heard.items() if name not in largest and are_kin(known[:2], sums)}
    pooled = pool(nothing, {name: heard[name] for name in sorted(largest)})
    kin = set(_of_verdict(pooled, Verdict.KIN))
    others = ([name for name in group if name not in largest] for group in groups)
    ranked = sorted((sorted(group) for group in others if group), key=len, reverse=True)
    return Kinship([sorted(kin), *ranked], pooled, {name: doubt(heard[name], pooled) for name in heard.keys() - kin})


def doubt(sums: Sums, pooled: Pool) -> Doubt | None:
    """The bin in which evidence speaks most against what a group has pooled; None where they have none in common."""
    columns = zip(*sums, pooled.offloads, pooled.agreements, strict=True)
    found = [
        Doubt(i, *pairs, float(unlike(*pairs))) for i, pairs in enumerate(columns) if pairs[0] > 0.0 and pairs[2] > 0.0
    ]
    return max(found, key=lambda each: each.nats, default=None)


def _by_evidence(said: Mapping[str, Sums]) -> list[tuple[str, Sums]]:
    return sorted(said.items(), key=lambda each: (-sum(each[1][0]), each[0]))


def _of_verdict(pooled: Pool, wanted: Verdict) -> list[str]:
    return [name for name, verdict in pooled.verdicts.items() if verdict is wanted]


def _share(offloads: float, agreements: float) -> str:
    return f"{agreements / offloads:.0%} of {offloads:,.0f}".replace("%", " %").replace(",", " ")
