"""The record of an answer: what it is, who gave it, what that cost, and why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from hinge.errors import PolicyFailed, RemoteFailed, printable
from hinge.policies.policy import Decision, Explanation

Source = Literal["local", "remote"]


class _Fields(NamedTuple):
    label: Any
    source: Source
    confidence: float  # the local model's
    group: int  # the bin; of bins that fit themselves, a number that only samples in one bin at one time share
    decision: Decision  # what the gate decided; in shadow, what it would have done
    local: Any  # the local model's label, whoever answered
    explains: Callable[[float], Explanation]  # by confidence
    offloaded: bool = False  # whether the remote was asked for this answer
    cost: float = 0.0  # what asking cost, from 0 to 1; 0.0 where it was not asked
    failure: RemoteFailed | None = None  # why there is no answer of the remote's, where it was to be asked
    agreed: float | None = None  # how far local agrees with remote, from 0 to 1; None where the remote did not answer
    audit: bool = False  # whether the remote only checked, in shadow, what is accepted otherwise


class Answer(_Fields):
    """What a device answers to one sample.

    `why` and `reason` are found when they are read, from what the policy knows by then: most answers need neither.
    """

    __slots__ = ()

    @property
    def fault(self) -> str | None:
        """How the remote failed, in words."""
        return None if self.failure is None else str(self.failure)

    @property
    def why(self) -> Explanation:
        """The evidence about such samples, as of now."""
        try:
            return self.explains(self.confidence)
        except Exception as error:  # of the policy, which may be anybody's
            return _unknown(
                self.confidence, f"the policy cannot say why: {printable(f'{type(error).__name__}: {error}')}"
            )

    @property
    def reason(self) -> str:
        """In words, why this answer came from where it came."""
        return self.reason_by(self.why)

    def reason_by(self, why: Explanation) -> str:
        """The same, from an explanation of such samples."""
        if isinstance(self.failure, PolicyFailed):
            return f"The policy failed: {self.failure}; the local answer stands."
        decided = self._decided(why)
        if self.fault is not None:
            return f"{decided} The remote's answer could not be had: {self.fault}; the local one stands."
        if self.decision.offload and not self.offloaded:
            return f"{decided} In shadow, the local answer stands."
        if self.offloaded and not self.decision.offload:
            return f"{decided} In shadow, the remote was asked all the same."
        return decided

    def _decided(self, why: Explanation) -> str:
        """What is known by now explains the next such sample; what this one changed, or ended, is said before."""
        if why.offload_probability in (0.0, 1.0) and bool(why.offload_probability) != self.decision.offload:
            done = "Offloaded" if self.decision.offload else "Accepted"
            return f"{done} by what was known. The next: {why.reason}"
        return why.reason

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain data, for logs and JSON; a line of JSON for each is a log that `hinge evaluate` reads.

        `remote` is None where the remote gave no answer to compare, `time` is when this is called.
        """
        why = self.why
        return {
            "time": datetime.now(UTC).isoformat(),
            "label": self.label,
            "source": self.source,
            "local": self.local,
            "remote": None if self.agreed is None else self.label,
            "agreed": self.agreed,
            "confidence": self.confidence,
            "bin": self.group,
            "decision": "offload" if self.decision.offload else "accept",
            "offloaded": self.offloaded,
            "audit": self.audit,
            "cost": self.cost,
            "fault": self.fault,
            "offloads": why.offloads,
            "agreement": why.agreement,
            "samples_left": why.samples_left,
            "reason": self.reason_by(why),
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Answer, tuple(self._replace(explains=_Elsewhere()))  # the device stays where it is

    def __repr__(self) -> str:
        fault = "" if self.fault is None else f", fault={self.fault!r}"
        shown = f"label={self.label!r}, source={self.source!r}, confidence={self.confidence:.4g}"
        return f"Answer({shown}, offloaded={self.offloaded}, cost={self.cost:.4g}{fault})"


class _Elsewhere:
    """Explains an answer that was copied or unpickled."""

    def __call__(self, confidence: float) -> Explanation:
        return _unknown(confidence, "the device that knows why is elsewhere")


def _unknown(confidence: float, reason: str) -> Explanation:
    return Explanation(0, 0.5, None, None, None, f"Confidence {confidence:.4g}; {reason}.")
