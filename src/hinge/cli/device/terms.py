"""The policy and the price list of `hinge device`, from what the command line says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hinge._checks import real
from hinge.cli.options import cost_number
from hinge.costs import FixedCost, MeasuredCost, OffloadCost
from hinge.policies import Policy, at_most, build, policy_class

_ORACLE = "oracle"
_NEEDED = "--wrong-answer and a --price-per-call, --price-per-ms or --price-per-byte"


@dataclass(frozen=True)
class Prices:
    """What a call, a millisecond and a byte of an offload cost, and a wrong answer, in one unit."""

    per_call: float | None
    per_ms: float | None
    per_byte: float | None
    wrong_answer: float | None

    def measured(self) -> MeasuredCost | None:
        """The price list; None if none was given."""
        given = [price for price in (self.per_call, self.per_ms, self.per_byte) if price is not None]
        if not given and self.wrong_answer is None:
            return None
        if not given or self.wrong_answer is None:
            raise ValueError(f"prices need both {_NEEDED}")
        per_call, per_ms, per_byte = self.per_call or 0.0, self.per_ms or 0.0, self.per_byte or 0.0
        return MeasuredCost(wrong_answer=self.wrong_answer, per_call=per_call, per_ms=per_ms, per_byte=per_byte)


def price_of(text: str | None, prices: Prices, recorded: OffloadCost | None) -> tuple[float | None, OffloadCost]:
    """The offload cost that the policy knows, None if it is learned, and what an offload is charged.

    >>> none = Prices(None, None, None, None)
    >>> price_of(None, none, None)
    (0.5, FixedCost(offload_cost=0.5))
    >>> price_of("learned", none, None)
    Traceback (most recent call last):
    ValueError: --offload-cost learned needs prices: --wrong-answer and a --price-per-call, --price-per-ms or ...
    """
    measured = prices.measured()
    if text is not None and text != "learned":
        if measured:
            raise ValueError(f"--offload-cost is known to be {text}, and yet there are prices: give one of them")
        return cost_number(text), FixedCost(cost_number(text))
    price = measured or recorded
    if price:
        return None, price
    if text == "learned":
        raise ValueError(f"--offload-cost learned needs prices: {_NEEDED}")
    return 0.5, FixedCost(0.5)


def policy_of(name: str, settings: dict[str, Any], horizon: int | None, most: float | None) -> Policy:
    """The policy of that name, within a budget if there is one; some need to know how many samples will come.

    >>> policy_of("oracle", {"bins": 16, "offload_cost": 0.5}, None, None)
    Traceback (most recent call last):
    TypeError: oracle cannot run on a device: it must be told how often local agrees, in every bin
    """
    kind = policy_class(name)
    if name == _ORACLE or "history" in kind.settings():
        what = "how often local agrees, in every bin" if name == _ORACLE else "what was fitted on labelled history"
        raise TypeError(f"{name} cannot run on a device: it must be told {what}")
    policy = build(name, **settings, **({} if horizon is None else {"horizon": horizon}))
    if policy.needs:
        needs = " and ".join(sorted(need.value for need in policy.needs))
        raise TypeError(f"{name} cannot run on a device: it must be told {needs}")
    return policy if most is None else _within(policy, real("device", "at_most", most, 0, 1))


def _within(policy: Policy, most: float) -> Policy:
    if not policy.limitable:
        raise TypeError(f"--at-most cannot be used with {policy.name}, which learns by the chance of an offload")
    return at_most(policy, most)
