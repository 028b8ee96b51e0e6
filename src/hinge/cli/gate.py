"""The options of a gate: its policy, what an offload costs, its budgets, and the fleet that it learns with."""

import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hinge.cli import options
from hinge.cli.device_models import Certificates
from hinge.cli.options import UsageError
from hinge.costs import FixedCost, MeasuredCost, OffloadCost
from hinge.policies import Policy, at_most, build, on_budget, policy_class
from hinge.remotes.http import read_token

if TYPE_CHECKING:
    from hinge.fleet.member import Fleet

_ORACLE, _DEFAULT, _TARGET = "oracle", "sentinel", "target"
_PRICES = "--wrong-answer and a --price-per-call, --price-per-ms or --price-per-byte"


@dataclass(frozen=True)
class GateOptions:
    """Which policy decides, at which price and within which budget.

    >>> GateOptions(offload_cost="learned").price()
    Traceback (most recent call last):
    hinge.cli.options.UsageError: --offload-cost learned needs prices: --wrong-answer and a --price-per-call, ...
    >>> GateOptions("oracle").build()
    Traceback (most recent call last):
    hinge.cli.options.UsageError: oracle cannot run on a device: it must be told how often local agrees, in every bin
    """

    policy: options.Policy = _DEFAULT
    set: options.Set = field(default_factory=list)
    audit: options.Audit = None
    target: options.Target = None
    offload_cost: Annotated[
        str | None,
        typer.Option(
            help="What an offload costs, from 0 to 1; or 'learned', by the prices. Without it: learned where there "
            "are prices, or a trace that recorded costs; else 0.5."
        ),
    ] = None
    price_per_call: Annotated[
        float | None, typer.Option(min=0, help="The price of an offload as such, in any unit.")
    ] = None
    price_per_ms: Annotated[
        float | None, typer.Option(min=0, help="The price of a millisecond, in the same unit.")
    ] = None
    price_per_byte: Annotated[float | None, typer.Option(min=0, help="The price of a byte, in the same unit.")] = None
    wrong_answer: Annotated[float | None, typer.Option(help="The price of a wrong answer, in the same unit.")] = None
    alpha: options.Alpha = None
    bins: options.Bins = 16
    seed: options.Seed = 0
    at_most: Annotated[
        float | None, typer.Option(min=0, max=1, help="Offload at most this share of any 1000 samples in a row.")
    ] = None
    on_budget: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Offload this share of samples in the long run: those that are worth most."),
    ] = None

    @property
    def name(self) -> str:
        """The name of the policy; a target has its own.

        >>> GateOptions().name, GateOptions(target=0.9).name
        ('sentinel', 'target')
        """
        if self.target is None:
            return self.policy
        if self.policy not in (_DEFAULT, _TARGET):
            raise UsageError(f"--target has its own policy, and yet there is --policy {self.policy}: give one of them")
        return _TARGET

    def price(self, recorded: OffloadCost | None = None) -> tuple[float | None, OffloadCost]:
        """The offload cost that the policy knows, None if it is learned, and what an offload is charged.

        >>> GateOptions().price()
        (0.5, FixedCost(offload_cost=0.5))
        """
        prices = {"per_call": self.price_per_call, "per_ms": self.price_per_ms, "per_byte": self.price_per_byte}
        given: dict[str, Any] = {name: price for name, price in prices.items() if price is not None}
        if bool(given) != (self.wrong_answer is not None):
            raise UsageError(f"prices need both {_PRICES}")
        measured = None if self.wrong_answer is None else MeasuredCost(wrong_answer=self.wrong_answer, **given)
        known = options.offload_cost(self.offload_cost)
        if isinstance(known, float):
            if measured:
                raise UsageError(f"--offload-cost is known to be {known}, and yet there are prices: give one of them")
            return known, FixedCost(known)
        price = measured or recorded
        if price:
            return None, price
        if known is not None:
            raise UsageError(f"--offload-cost learned needs prices: {_PRICES}")
        return 0.5, FixedCost(0.5)

    def build(self, known_cost: float | None = 0.5, horizon: int | None = None) -> Policy:
        """The policy, within its budget if there is one; some need to know how many samples will come."""
        name, kind = self.name, policy_class(self.name)
        if name == _ORACLE or "history" in kind.settings():
            what = "how often local agrees, in every bin" if name == _ORACLE else "what was fitted on labelled history"
            raise UsageError(f"{name} cannot run on a device: it must be told {what}")
        settings = options.policy_settings([name], self.set, alpha=self.alpha, audit=self.audit, target=self.target)
        known = {} if horizon is None else {"horizon": horizon}
        policy = build(name, offload_cost=known_cost, bins=self.bins, seed=self.seed, **settings, **known)
        if policy.needs:
            needs = " and ".join(sorted(need.value for need in policy.needs))
            raise UsageError(f"{name} cannot run on a device: it must be told {needs}")
        if self.on_budget is not None:
            if not policy.limitable or policy.price_column is None:
                raise UsageError(f"--on-budget cannot be used with {name}, which has no price that could be moved")
            policy = on_budget(policy, self.on_budget)
        if self.at_most is not None and not policy.limitable:
            raise UsageError(f"--at-most cannot be used with {name}, which learns by the chance of an offload")
        return policy if self.at_most is None else at_most(policy, self.at_most)


@dataclass(frozen=True)
class FleetOptions:
    """The fleet to join, by its broker."""

    fleet: Annotated[
        str | None,
        typer.Option(
            help="Share what is learned with other devices by this MQTT broker: mqtt://[USER@]HOST[:PORT], or mqtts:// "
            "with --ca, --cert and --key. The password is in HINGE_FLEET_PASSWORD, or a file."
        ),
    ] = None
    fleet_name: options.FleetName = options.FLEET
    fleet_device: Annotated[
        str | None, typer.Option(help="The name of this device in its fleet; without it that of the machine.")
    ] = None
    fleet_region: Annotated[
        str | None,
        typer.Option(help="The region of this device, for large fleets: its hub is 'hinge fleet --region'."),
    ] = None
    fleet_password_file: options.FleetPasswordFile = None
    fleet_budget: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The share of samples that all devices of the fleet may offload, together."),
    ] = None
    home_assistant: Annotated[
        bool, typer.Option("--home-assistant", help="Let Home Assistant find this device by the broker of its fleet.")
    ] = False

    def join(self, gate: GateOptions, certificates: Certificates) -> "Fleet | None":
        """The fleet, if there is one."""
        if self.fleet is None:
            if self != FleetOptions():
                raise UsageError("--home-assistant and the options that begin with --fleet- need --fleet")
            return None
        if self.fleet_budget is not None and gate.on_budget is not None:
            raise UsageError("--fleet-budget has a price of its own: leave --on-budget out")
        from hinge.fleet.member import Fleet

        return Fleet(
            self.fleet,
            self.fleet_name,
            self.fleet_device or re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64],
            password=read_token(self.fleet_password_file, "HINGE_FLEET_PASSWORD"),
            tls=certificates.context() if self.fleet.startswith("mqtts:") else None,
            region=self.fleet_region,
            home_assistant=self.home_assistant,
            budget=self.fleet_budget,
        )
