"""All that one run measures, and how often."""

from importlib import import_module
from typing import Any

from benchmarks.peers import Peer, peers
from benchmarks.probes import (
    SLOW_S,
    Probes,
    batch_probe,
    bytes_per_bin,
    learn_probe,
    literal_probes,
    loop_probe,
    policy_probes,
    seconds_at,
    unit_probe,
)
from benchmarks.timing import interleave
from benchmarks.workload import COST, Samples, Stream, Subject, subjects, upper_bins

DRAWN = 20_000  # samples drawn in advance for each number of bins
KEYS = ("sentinel", "hi-lcb", "hi-lcb-lite")  # read as often as the empty call, since goals rest on their ratio to it

Row = dict[int, Probes]


class Plan:
    """All probes of a run, and how often and long they are read."""

    def __init__(self, quick: bool) -> None:
        self.bins = (16, 65_536) if quick else (16, 256, 4_096, 65_536)
        self.rounds, self.batch_s, self.most_s, self.mix_least = (5, 0.002, 0.1, 3) if quick else (15, 0.004, 0.5, 8)
        self.drawn: dict[int, Samples] = {
            bins: Stream(bins, seed=7).draw(DRAWN, *upper_bins(bins)) for bins in self.bins
        }
        self.unit, self.loop = unit_probe(self.drawn[16][0]), loop_probe(self.drawn[16][0])
        self.policies: dict[str, Row] = {}
        self.bytes: dict[str, float] = {}
        for subject in subjects():
            self.policies[subject.label] = {
                bins: policy_probes(subject, bins, self.drawn[bins], self.mix_least)
                if seconds_at(subject, bins) < SLOW_S
                else Probes()
                for bins in self.bins
            }
            self.bytes[subject.label] = bytes_per_bin(subject)
        self.literals = self._literals()
        found = list(peers(16))
        self.peers = [one for one in found if isinstance(one, Peer)]
        self.missing = [one for one in found if isinstance(one, str)]
        self.learn = learn_probe(Subject("sentinel"), 16)
        self.batches = {bins: batch_probe(bins) for bins in (16, 65_536)}

    def _literals(self) -> dict[str, Row]:
        try:
            module: Any = import_module("tests.policies.literal")
        except ImportError:
            return {}
        kinds = {
            "literal hi-lcb": (module.LiteralHILCB, COST),
            "literal hi-lcb-lite": (module.LiteralHILCBLite, COST),
            "literal hi-lcb, learned cost": (module.LiteralHILCB, None),
        }
        return {
            label: {bins: literal_probes(kind, cost, bins, self.drawn[bins], self.mix_least) for bins in self.bins}
            for label, (kind, cost) in kinds.items()
        }

    def run(self) -> None:
        keys = [self.policies[name][bins].accepted for name in KEYS for bins in (16, 65_536)]
        references = [self.unit, self.loop, *(probe for probe in keys if probe)]
        rows = [*self.policies.values(), *self.literals.values()]
        others = [probe for row in rows for probes in row.values() for probe in probes.all()]
        others += [probe for peer in self.peers for probe in (peer.decide, peer.both)]
        others += [self.learn, *self.batches.values()]
        others = [probe for probe in others if probe not in references]
        interleave(references, others, self.rounds, self.batch_s, self.most_s)
