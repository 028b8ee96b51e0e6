"""What a demo has found: the figures of every policy, and whether the live answers were the recorded ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hinge.cli.demo.comparison import FLAGSHIP, Comparison
from hinge.cli.demo.timing import Clock, Timing
from hinge.cli.device.course import Course, Seen
from hinge.cli.device.samples import Case
from hinge.device.answer import Answer
from hinge.device.status import Status
from hinge.policies.policy import Explanation
from hinge.simulation.results import checkpoints

NAMES = {"always-local": "local only", "always-remote": "remote only", FLAGSHIP: f"{FLAGSHIP} (live)"}
_EXAMPLES = 13  # of each source, at most


class Example(NamedTuple):
    """An answer to look at, with the reason that held when it was given."""

    number: int
    case: Case
    answer: Answer
    reason: str


class Examples:
    """Some of the answers: of each source, most from the beginning, where most is learned."""

    def __init__(self, samples: int) -> None:
        self._due = {source: checkpoints(samples, _EXAMPLES).tolist() for source in ("local", "remote")}
        self.taken: list[Example] = []

    def take(self, seen: Seen) -> None:
        """Keep an answer, if one is due."""
        number, case, answer = seen
        due = self._due[answer.source]
        if not due or number + 1 < due[0]:
            return
        while due and due[0] <= number + 1:
            del due[0]
        self.taken.append(Example(number, case, answer, answer.reason))


@dataclass
class Outcome:
    """All that is known of a demo."""

    wanted: int  # samples
    offload_cost: float
    comparison: Comparison
    course: Course
    timing: Timing
    clock: Clock
    examples: Examples
    seconds: float = 0.0
    status: Status | None = None  # of the device, in the end
    licences: Sequence[Explanation] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, int]:
        """Answers that the remote could not give, by the kind of failure."""
        return self.status.fell_back if self.status else {}

    def rows(self) -> list[dict[str, Any]]:
        """The figures of every policy, with the milliseconds that a sample takes: measured, or else estimated."""
        measured = {"always-local": self.timing.local_ms, "always-remote": self.timing.remote_ms}
        rows = self.comparison.rows()
        for row in rows:
            name, share = row["policy"], row["offload_fraction"]
            row["latency_ms"] = measured[name] if name in measured else self.clock.estimate_ms(share)
            row["latency_estimated"] = name not in (*measured, FLAGSHIP)
        return rows

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        compared = self.comparison
        return {
            "samples": self.course.samples,
            "complete": self.course.samples == self.wanted,
            "seconds": self.seconds,
            "offload_cost": self.offload_cost,
            "bins": len(self.licences),
            "remote_answers": {"checked": compared.checked, "not_as_recorded": compared.differences},
            "bins_not_as_recorded": compared.elsewhere,
            "faults": self.faults,
            "policies": self.rows(),
        }
