"""What is known of the other devices of a fleet: of each, the latest evidence that could be believed. No I/O.

Messages may come in any order, by any route and more than once: of each device the one with the largest counter counts,
once. So a device that joins late, comes back or missed some of them ends with the same as everybody else.
"""

from __future__ import annotations

from collections.abc import Iterator

from hinge._checks import shown
from hinge.fleet.messages import REASONS, Dropped, Evidence, parse_evidence, source

MOST_DEVICES = 4096


class Peers:
    """The latest evidence of each device of a fleet, and how many messages were dropped, by reason.

    >>> from hinge.fleet.messages import build_evidence
    >>> peers, gate = Peers("cams", "0123456789abcdef", bins=2), "0123456789abcdef"
    >>> for counter in (90, 60):
    ...     said = peers.take("hinge/1/cams/hall/evidence", build_evidence("hall", gate, counter, 90, [9, 3], [1, 3]))
    Traceback (most recent call last):
    hinge.fleet.messages.Dropped: an older counter than is known of the device, ...: 60 by 'hall', after 90
    >>> peers["hall"].counter, peers.dropped["older"]
    (90, 1)
    """

    def __init__(self, fleet: str, gate: str | None, bins: int, most: int = MOST_DEVICES) -> None:
        self.fleet, self.gate, self.bins, self._most = fleet, gate, bins, most
        self._latest: dict[str, Evidence] = {}
        self.dropped = dict.fromkeys(REASONS, 0)
        self.version = 0  # how often what is known has changed

    def take(self, topic: str, payload: bytes) -> Evidence | None:
        """Count a message; its evidence, if that is new, or None if it is known. Raises `Dropped`.

        An empty message, by which a retained one is deleted, withdraws what the device has said.
        """
        try:
            if not payload:
                self.version += self._latest.pop(source(topic, self.fleet, "evidence"), None) is not None
                return None
            return self._take(parse_evidence(topic, payload, self.fleet, self.gate, self.bins))
        except Dropped as drop:
            self.dropped[drop.reason] += 1
            raise

    def _take(self, found: Evidence) -> Evidence | None:
        known = self._latest.get(found.device)
        if known == found:
            return None
        if known is not None and known.counter >= found.counter:
            raise Dropped("older", f"{found.counter} by {shown(found.device)}, after {known.counter}")
        if known is None and len(self._latest) >= self._most:
            raise Dropped("crowd", f"{shown(found.device)}, and {self._most} others are known")
        self._latest[found.device] = found
        self.version += 1
        return found

    def sums(self) -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
        """Offloads and agreements of each device, to be pooled."""
        return {each.device: (each.offloads, each.agreements) for each in self._latest.values()}

    def __getitem__(self, device: str) -> Evidence:
        return self._latest[device]

    def __iter__(self) -> Iterator[Evidence]:
        return iter(self._latest.values())

    def __len__(self) -> int:
        return len(self._latest)
