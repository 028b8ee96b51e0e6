"""Options that several commands share, alone and in groups, and what their texts mean."""

import json
import os
import re
import ssl
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from hinge._checks import did_you_mean
from hinge.bins import Bins as AnyBins
from hinge.bins import EdgeBins, FittedBins, UniformBins
from hinge.cli.settings import EDGES, UsageError
from hinge.confidence import ConfidenceMeasure
from hinge.costs import FixedCost, MeasuredCost, OffloadPrice
from hinge.errors import InvalidArgument, InvalidValue
from hinge.gate import Gate
from hinge.policies import Policy as AnyPolicy
from hinge.policies import Threshold, build, policy_class, policy_names
from hinge.price import make_price
from hinge.simulation.evaluate import LEARNED
from hinge.tasks import Classification

_DEFAULT, _TARGET, _ORACLE = "probation", "target", "oracle"  # policies that options name, or cannot
_PRICES = {"call": "per_call", "ms": "per_ms", "byte": "per_byte", "wrong-answer": "wrong_answer"}
TAKEN = {"bins", "horizon", "offload_cost"}  # settings of policies that a trace or a device must know, too


def option(help: str, low: float | None = None, high: float | None = None, **more: Any) -> Parameter:
    """Return what cyclopts is told of an option: its help, and the least and the largest number it may be."""
    limits = () if low is None and high is None else Number(gte=low, lte=high)
    return Parameter(help=help, validator=limits, **more)


def flag(help: str, **more: Any) -> Parameter:
    """Return the same for an option without a value."""
    return Parameter(help=help, show_default=False, **more)


Policy = Annotated[str, option("By name (see 'hinge list policies'); your own as MODULE:CLASS.")]
Set = Annotated[
    tuple[str, ...],
    option("A setting of the policy, as alpha=0.52; may be repeated.", metavar="NAME=VALUE", show_default=False),
]
Target = Annotated[float | None, option("The agreement with the remote to hold, with probability 0.95.", 0, 1)]
OffloadCost = Annotated[
    str | None,
    option("From 0 to 1; or 'learned', of which policies are not told. Without it: learned if recorded, else 0.5."),
]
Bins = Annotated[str, option("How many bins of equal width; or the edges between them.", metavar=EDGES)]
Output = Annotated[str | None, option("The local output that has the scores; without it the first of real numbers.")]
Runs = Annotated[int, option("Runs to average over.", 1, 100_000)]
Seed = Annotated[int, option("The seed: the same seed gives the same figures.", 0)]
Json = Annotated[bool, flag("Print one JSON object instead of a table.", name="--json")]
Out = Annotated[Path | None, option("Also write the course of the figures: .csv, or drawn: .html, .png, .svg, .pdf.")]
Config = Annotated[Path | None, option("A TOML file of settings, in [COMMAND]; the command line goes before it.")]
Page = Annotated[int | None, option("Serve the live page at this port of 127.0.0.1; 0: any free one.", 0, 65_535)]
State = Annotated[Path | None, option("The folder in which the policy survives.")]
Shadow = Annotated[Literal["local", "remote"] | None, option("Who answers everything, while the policy learns.")]


# -- what texts mean --------------------------------------------------------------------------------------------------


def class_names(text: str | None) -> tuple[str, ...] | None:
    """Return the names of classes, from a file that has one in a line, or separated by commas.

    >>> class_names("cat, dog")
    ('cat', 'dog')
    >>> class_names("cat,dog,cat")
    Traceback (most recent call last):
    hinge.errors.InvalidValue: Classification: labels must name each class once, got 'cat' twice
    """
    if text is None:
        return None
    try:  # os.path, as Path raises an error for a list that is too long for a name
        given = Path(text).read_text("utf-8").splitlines() if os.path.isfile(text) else text.split(",")
    except UnicodeDecodeError:
        raise UsageError(f"--labels {text}: is not text in UTF-8") from None
    names = tuple(name.strip() for name in given if name.strip())
    if len(names) < 2:
        raise UsageError(f"--labels {text}: must name two classes or more, by commas or in a file, one in a line")
    Classification(names)  # refuses what comes twice
    return names


def policy_named(text: str) -> str:
    """Return the name of a policy. One of your own, module:Class, is imported as a program here would do it.

    >>> policy_named("hi-lcb"), policy_named("hinge.policies:HILCB")
    ('hi-lcb', 'hi-lcb')
    >>> policy_named("hinge.policies:HLCB")
    Traceback (most recent call last):
    hinge.cli.settings.UsageError: hinge.policies:HLCB: the module has no policy 'HLCB'; did you mean 'HILCB'?
    """
    module, colon, name = text.partition(":")
    if not colon:
        return text
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = vars(import_module(module))
    except Exception as error:  # whatever a user's module may raise
        raise UsageError(f"{text}: cannot be imported: {type(error).__name__}: {error}") from error
    kinds = {key: kind for key, kind in found.items() if isinstance(kind, type) and issubclass(kind, AnyPolicy)}
    if name in found and name not in kinds:
        raise UsageError(f"{text}: is no hinge.Policy; other deciders run in Python, hinge.evaluate(log, [{name}()])")
    if name not in kinds:
        raise UsageError(f"{text}: the module has no policy {name!r}{did_you_mean(name, kinds)}")
    if "name" not in vars(kinds[name]):
        raise UsageError(f"{text}: the policy has no name: set name = 'my-policy' in the class")
    return kinds[name].name


def policies_named(text: str) -> list[str]:
    """Return the names of policies, each once, separated by commas; 'all' has your own in it once they are imported.

    >>> policies_named("probation, hi-lcb,probation")
    ['probation', 'hi-lcb']
    """
    names = dict.fromkeys(policy_named(name.strip()) for name in text.split(","))
    return ["all"] if "all" in names else list(names)


def binning(text: str) -> UniformBins | EdgeBins:
    """Return the value of `--bins`: how many of equal width, or where bins 1, 2, … begin.

    >>> binning("16"), binning("0.25, 0.5")
    (UniformBins(bins=16), EdgeBins(edges=(0.25, 0.5)))
    """
    try:
        return UniformBins(int(text)) if text.isdecimal() else EdgeBins([float(edge) for edge in text.split(",")])
    except InvalidArgument as error:
        raise InvalidValue("hinge", "bins", error.problem) from None
    except ValueError:
        problem = f"must be a number, or edges such as 0.5,0.9, got {text!r:.200}"
        raise InvalidValue("hinge", "bins", problem) from None


def offload_cost(text: str | None) -> float | str | None:
    """Return the value of `--offload-cost`: a number, 'learned', or None if it was not given."""
    if text is None or text == LEARNED:
        return text
    try:
        number = float(text)
    except ValueError:
        problem = f"must be a number from 0 to 1, or 'learned', got {text!r}"
        raise InvalidValue("hinge", "offload_cost", problem) from None
    if not 0 <= number <= 1:  # nor NaN
        raise InvalidValue("hinge", "offload_cost", f"must be from 0 to 1, got {text}")
    return number


def measured_cost(text: str | None) -> MeasuredCost | None:
    """Return the value of `--prices`.

    >>> measured_cost("ms=0.02, wrong-answer=5")
    MeasuredCost(wrong_answer=5.0, per_call=0.0, per_ms=0.02, per_byte=0.0, cap=1.0, unit='€')
    >>> measured_cost("ms=0.02")
    Traceback (most recent call last):
    hinge.cli.settings.UsageError: --prices need wrong-answer=… and call=…, ms=… or byte=…, got 'ms=0.02'
    """
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        given: dict[str, Any] = {_PRICES[name.strip()]: float(price) for name, _, price in pairs}
    except (KeyError, ValueError):
        given = {}
    if "wrong_answer" not in given or len(given) < 2:
        needed = "--prices need wrong-answer=… and call=…, ms=… or byte=…"
        raise UsageError(f"{needed}, got {text!r}")
    return MeasuredCost(**given)


def assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Return settings from the command line: numbers, true, false, null and lists as in JSON; all else is text.

    >>> assignments(["memory=1000", "offload_cost=.2", "complexity=N ln 2"])
    {'memory': 1000, 'offload_cost': 0.2, 'complexity': 'N ln 2'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"a setting must be NAME=VALUE, got {text!r}")
        try:
            found[name.replace("-", "_")] = json.loads(re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", value))
        except ValueError:
            found[name.replace("-", "_")] = value
    return found


def policy_settings(
    policies: Sequence[str], assigned: Sequence[str] = (), taken: Collection[str] = TAKEN
) -> dict[str, Any]:
    """Return the settings that were given for these policies, and refuse one that none of them has.

    >>> policy_settings(["hi-lcb"], ["alpha=0.6"])
    {'alpha': 0.6}
    >>> policy_settings(["probation"], ["alpha=0.6"])
    Traceback (most recent call last):
    hinge.errors.InvalidValue: --set: alpha must be left out: it is no setting of probation, but of ...
    """
    found = assignments(assigned)
    for setting in found.keys() & taken:
        raise UsageError(f"--set {setting}=…: it has an option of its own")
    for setting in found if "all" not in policies else ():
        if not any(setting in policy_class(name).settings() for name in policies):
            known = [name for name in policy_names() if setting in policy_class(name).settings()]
            problem = f"must be left out: it is no setting of {', '.join(policies)}"
            raise InvalidValue("--set", setting, f"{problem}, but of {', '.join(known)}" if known else problem)
    return found


# -- groups of options -------------------------------------------------------------------------------------------------


@Parameter(name="*", group="Certificates")
@dataclass(frozen=True)
class Certificates:
    """Files for TLS: who signs the server's certificate, if the system does not know them, and the device's own."""

    ca: Annotated[Path | None, option("Who signs the server's certificate, if the system does not know them.")] = None
    cert: Annotated[Path | None, option("Our own certificate, to show a server with mutual TLS.")] = None
    key: Annotated[Path | None, option("The key of that certificate, unless it is in its file.")] = None

    def context(self) -> ssl.SSLContext | None:
        """Return what asks by these certificates; None where there are no files."""
        if self == Certificates():
            return None
        if self.key is not None and self.cert is None:
            raise UsageError("--key needs --cert")
        for path in filter(None, (self.ca, self.cert, self.key)):
            path.open("rb").close()

        def passphrase() -> str:  # else OpenSSL asks for it on the terminal, each time that the key is loaded
            named = f"--cert {self.cert}" if self.key is None else f"--key {self.key}"
            raise UsageError(f"{named}: the key has a passphrase; give one without")

        context = ssl.create_default_context()
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, passphrase)
        except ssl.SSLError as error:
            named = ", ".join(f"--{name} {path}" for name, path in vars(self).items() if path is not None)
            raise UsageError(f"{named}: no certificates, or not the key of them: {error.reason or error}") from None
        return context


@Parameter(name="*", group="The gate")
@dataclass(frozen=True)
class GateOptions:
    """Which policy decides, at which price and within which budget.

    >>> GateOptions(offload_cost="learned").price()
    Traceback (most recent call last):
    hinge.cli.settings.UsageError: --offload-cost learned needs --prices, by which to tell what an offload has cost
    >>> GateOptions("oracle").build()
    Traceback (most recent call last):
    hinge.cli.settings.UsageError: oracle cannot run on a device: it must be told how often local agrees, in every bin
    """

    policy: Policy = _DEFAULT
    set: Set = ()
    target: Target = None
    offload_cost: Annotated[
        str | None, option("From 0 to 1, where a wrong answer costs 1; or 'learned'. Without it: learned, or 0.5.")
    ] = None
    prices: Annotated[str | None, option("To learn by, as ms=0.02,wrong-answer=5; also call=… and byte=….")] = None
    bins: Annotated[str | None, option("How many; or the edges. Else they fit themselves.", metavar=EDGES)] = None
    budget: Annotated[float | None, option("Offload this share at most: the samples worth most.", 0, 1)] = None

    @property
    def name(self) -> str:
        """The name of the policy; a target has its own.

        >>> GateOptions().name, GateOptions(target=0.9).name
        ('probation', 'target')
        """
        if self.target is None:
            return policy_named(self.policy)
        if self.policy not in (_DEFAULT, _TARGET):
            raise UsageError(f"--target has its own policy, and yet there is --policy {self.policy}: give one of them")
        return _TARGET

    def price(self, recorded: OffloadPrice | None = None) -> tuple[float | None, OffloadPrice | None]:
        """Return the offload cost that the policy knows, None if it is learned, and what an offload is charged.

        >>> GateOptions().price(), GateOptions(target=0.9).price()  # a target is held at any price
        ((0.5, FixedCost(offload_cost=0.5)), (None, None))
        >>> GateOptions(budget=0.1).price()  # finds its own
        (0.0, None)
        """
        measured, known = measured_cost(self.prices), offload_cost(self.offload_cost)
        if isinstance(known, float):
            if measured:
                raise UsageError(f"--offload-cost is known to be {known}, and yet there are --prices: give one of them")
            return known, FixedCost(known)
        price = measured or recorded
        if price:
            return None, price
        if known is not None:
            raise UsageError("--offload-cost learned needs --prices, by which to tell what an offload has cost")
        kind = policy_class(self.name)
        if not kind.weighs_price and "offload_cost" not in kind.settings():
            return None, None
        # a budget finds a price that is added to the cost: one made up would keep it from being spent
        return (0.5, FixedCost(0.5)) if self.budget is None else (0.0, None)

    def build(
        self,
        known_cost: float | None = 0.5,
        horizon: int | None = None,
        confidence: ConfidenceMeasure | None = None,
    ) -> Gate:
        """Return the gate; some policies need to know how many samples will come."""
        name, kind = self.name, policy_class(self.name)
        if name == _ORACLE or "history" in kind.settings():
            what = "how often local agrees, in every bin" if name == _ORACLE else "what was fitted on labelled history"
            raise UsageError(f"{name} cannot run on a device: it must be told {what}")
        settings: dict[str, Any] = {"seed": 0} | policy_settings([name], self.set)
        settings |= {} if self.target is None else {"target": self.target}
        settings |= {} if horizon is None else {"horizon": horizon}
        settings |= {} if known_cost is None else {"offload_cost": known_cost}
        bins: AnyBins | None = None if self.bins is None else binning(self.bins)
        if bins is not None or kind is not Threshold:  # whose bins part at the threshold
            settings["bins"] = 16 if bins is None else bins.bins
        policy = build(name, **settings)
        if policy.needs:
            needs = " and ".join(sorted(need.value for need in policy.needs))
            raise UsageError(f"{name} cannot run on a device: it must be told {needs}")
        if self.budget is not None and policy.functions.offloads_at is None:
            raise UsageError(f"--budget cannot be used with {name}, whose price cannot be raised")
        if bins is None and policy.functions.regroups is not None:
            bins = FittedBins()
        gate = Gate(policy, bins=bins, confidence=confidence, budget=self.budget)
        if known_cost is None and policy.takes_price and policy.weighs_price and not policy.learns_cost:
            gate.price = make_price()
        return gate
