"""Options that several commands share, and the file of settings that may stand in for them and `hinge new` writes."""

import inspect
import json
import os
import re
import shlex
import ssl
import sys
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from hinge._checks import did_you_mean
from hinge.bins import EdgeBins, UniformBins
from hinge.cli import console
from hinge.cli.app import load
from hinge.confidence import ConfidenceMeasure
from hinge.costs import FixedCost, MeasuredCost
from hinge.costs import OffloadCost as AnyCost
from hinge.errors import HingeError, InvalidValue
from hinge.gate import Gate
from hinge.policies import Policy as AnyPolicy
from hinge.policies import at_most, build, on_budget, policy_class, policy_names
from hinge.simulation.evaluate import LEARNED
from hinge.tasks import Classification

SECTIONS = ("device", "serve", "gateway")  # of a file of settings
PLACE = "FILE|URL"  # a path, unless it has a scheme
NAMES = "FILE|A,B,C"  # a path, if there is such a file
EDGES = "NUMBER|EDGES"  # of bins
_CONFIG = "config"  # the option that names the file, which cannot be set in it
_HEAD = """\
# Settings of Hinge: 'hinge device --config {file}' reads them; likewise 'hinge serve' and 'hinge gateway'.
# What the command line says goes before them. Paths start from the folder of this file.
# A line such as '#name = value' is what holds without it; take away the '#' to change it.
"""
_FIRST = {"models": ["fashion"]}  # set, as the command cannot run without it
_BLANKS: dict[type, str] = {int: "…", float: "…", list: '["…"]'}  # all else is text
_DEFAULT, _TARGET, _ORACLE = "sentinel", "target", "oracle"  # policies that options name, or cannot
_PRICES = "--wrong-answer and a --price-per-call, --price-per-ms or --price-per-byte"
_OPTIONS = {"bins", "horizon", "offload_cost", "seed"}  # settings of policies that a trace or a device must know, too


class UsageError(HingeError):
    """Options that do not go together, or a value that cannot be used."""


def option(help: str, *names: str, default: Any = None, **limits: Any) -> Any:
    """The default of a parameter of a `grouped` command, or of a field of its dataclasses, that is an option."""
    return field(default=default, metadata={"typer": typer.Option(*names, help=help, **limits)})


def argument(help: str, default: Any = None, **limits: Any) -> Any:
    """The same for an argument; one whose default is `...` must be given."""
    return field(default=default, metadata={"typer": typer.Argument(help=help, **limits)})


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command as Typer reads it, whose parameters have an `option` or `argument` for a default, if not an annotation.

    A parameter that is a dataclass stands for its fields: an option for each, and one object.
    """
    asked = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in asked if is_dataclass(each.annotation)}
    flat = list[inspect.Parameter]()
    for each in asked:
        if each.name in groups:
            hints = get_type_hints(each.annotation, include_extras=True)
            flat += [_parameter(part.name, hints[part.name], part) for part in fields(groups[each.name])]
        else:
            flat.append(_parameter(each.name, each.annotation, each.default))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {each.name: each.annotation for each in flat}
    return run


def _parameter(name: str, hint: Any, given: Any) -> inspect.Parameter:
    """A parameter as Typer reads it; a flag has no opposite."""
    if isinstance(given, Field):
        described = given.metadata.get("typer")
        given = given.default if given.default_factory is MISSING else given.default_factory()
        if described is not None:
            described.param_decls = described.param_decls or ([f"--{name.replace('_', '-')}"] if given is False else ())
            hint, given = Annotated[hint, described], inspect.Parameter.empty if given is ... else given
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=hint)


# -- a file of settings -----------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """An option or argument of a command, as it can be set in a file."""

    kind: type
    default: Any
    help: str
    positional: bool
    commas: bool  # between the parts of one text, which may be a list, too


def settings_of(command: Any) -> dict[str, Setting]:
    """What can be set of a command, by name, from the signature of its function."""
    found = {}
    for name, parameter in inspect.signature(command.callback).parameters.items():
        annotation, described = get_args(parameter.annotation)  # Annotated[str | None, typer.Option(…)]
        kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        kind = next(get_origin(each) or each for each in kinds if each is not NoneType)
        kind = Path if described.metavar in (PLACE, NAMES) else kind
        positional, commas = isinstance(described, ArgumentInfo), described.metavar in (NAMES, EDGES)
        found[name] = Setting(kind, parameter.default, described.help, positional, commas)
    found.pop(_CONFIG, None)
    return found


def read_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the section of the command in a TOML file Click's defaults, so that the command line goes before it."""
    if path is None or ctx.resilient_parsing:
        return path
    section, known = str(ctx.info_name), settings_of(ctx.command)
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:  # says where
        raise UsageError(f"{path}: {error}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        raise UsageError(f"{path}: a value is too large to be read") from None
    for name, part in content.items():
        if not isinstance(part, dict):
            where = f"be a section, [{name}]" if name in SECTIONS else "stand below [device], [serve] or [gateway]"
            raise UsageError(f"{path}: {name!r} must {where}")
        if name not in SECTIONS:
            raise UsageError(f"{path}: no section is called {name!r}{did_you_mean(name, SECTIONS)}")
    if content and section not in content:
        there = " and ".join(f"[{name}]" for name in content)
        raise UsageError(f"{path}: has no section [{section}], but {there}")
    defaults: dict[str, Any] = {}
    for name, value in content.get(section, {}).items():
        if name not in known:
            raise UsageError(f"{path}: no setting of [{section}] is called {name!r}{did_you_mean(name, known)}")
        if known[name].commas and isinstance(value, list):
            if comma := next((each for each in value if "," in str(each)), None):
                raise UsageError(f"{path}: {name} has {comma!r}, with a comma: name a file of lines instead")
            value = ",".join(map(str, value))
        is_list, several = isinstance(value, list), known[name].kind is list
        if is_list != several or isinstance(value, dict):
            raise UsageError(f"{path}: {name} must be {'a list' if several else 'one value'}, got {value!r}")
        typed = [_located(path.parent, each, known[name]) for each in (value if is_list else [value])]
        defaults[name] = typed if is_list else typed[0]
    ctx.default_map = defaults
    return path


def _located(folder: Path, value: Any, setting: Setting) -> str:
    """A value as it would be typed, so that one parser reads both. Paths start from the folder of the file."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if setting.kind is Path:
        path = folder / os.path.expanduser(text)
        return text if "://" in text or ("," in text and not path.exists()) else str(path)
    if not setting.positional or text in ("-", setting.default):
        return text
    name, sign, place = text.rpartition("=")  # a model may be NAME=PATH
    path = Path(os.path.expanduser(place))
    looks_like_one = path.suffix or len(path.parts) > 1 or (folder / path).exists()
    return f"{name}{sign}{folder / path}" if looks_like_one else text


@grouped
def new_command(
    file: Path = argument("The file to write; one that is there already is left alone.", default=Path("hinge.toml")),
) -> None:
    """It holds every option of 'hinge device', 'hinge serve' and 'hinge gateway', with its default and what it means.

    Example: hinge new hinge.toml
    """
    if not file.name.isprintable():
        raise UsageError(f"FILE must have a printable name, got {file.name!r}")
    text = starter(file.name)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(text)
    console.say(f"{file} is written; try: hinge device --config {shlex.quote(str(file))}")


def starter(file: str) -> str:
    """The text of such a file."""
    lines = [_HEAD.format(file=file)]
    for section in SECTIONS:
        lines.append(f"[{section}]")
        for name, setting in settings_of(load(section)).items():
            value = _FIRST.get(name, setting.default)
            # text, numbers, booleans and lists are written alike in JSON and TOML
            shown = _BLANKS.get(setting.kind, '"…"') if value is None else json.dumps(value, ensure_ascii=False)
            lines.append(textwrap.fill(setting.help, 110, initial_indent="# ", subsequent_indent="# "))
            lines.append(f"{'' if setting.positional else '#'}{name} = {shown}\n")
    return "\n".join(lines)


# -- options ----------------------------------------------------------------------------------------------------------


def complete_policies(incomplete: str) -> list[str]:
    """What the shell offers for the last of several policies."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ["all", *policy_names()]]


Output = Annotated[
    str | None,
    typer.Option(help="The output of the local model that has the scores; without it the first of real numbers."),
]


def class_names(text: str | None) -> tuple[str, ...] | None:
    """The names of classes, from a file that has one in a line, or separated by commas.

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
    """The name of a policy. One of your own is given as module:Class, and imported as a program here would do it.

    >>> policy_named("hi-lcb"), policy_named("hinge.policies:HILCB")
    ('hi-lcb', 'hi-lcb')
    >>> policy_named("hinge.policies:HLCB")
    Traceback (most recent call last):
    hinge.cli.options.UsageError: hinge.policies:HLCB: the module has no policy 'HLCB'; did you mean 'HILCB'?
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


def policies_named(text: str) -> str:
    """Names of policies, each once, separated by commas; 'all' has those of your own in it once they are imported.

    >>> policies_named("sentinel, hi-lcb,sentinel")
    'sentinel,hi-lcb'
    """
    names = dict.fromkeys(policy_named(name.strip()) for name in text.split(","))
    return "all" if "all" in names else ",".join(names)


Policy = Annotated[
    str,
    typer.Option(
        help="The policy, by name (see 'hinge list policies'); your own as MODULE:CLASS.",
        autocompletion=policy_names,
        callback=policy_named,
    ),
]
OffloadCost = Annotated[
    str | None,
    typer.Option(
        help="What an offload costs, from 0 to 1, known to the policies; or 'learned': as the trace recorded, or else "
        "0.45 or 0.55 by chance, and the policies have to find out. Without it: learned where the trace has costs, "
        "else 0.5."
    ),
]
Target = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Hold this agreement with the remote's answers, with probability 0.95, by as few offloads as possible.",
    ),
]
Alpha = Annotated[
    float | None, typer.Option(help="The exploration parameter of the paper's policies; without it 0.52.")
]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="NAME=VALUE", help="Another setting of the policy; may be given repeatedly."),
]


def binning(text: str) -> UniformBins | EdgeBins:
    """The value of `--bins`: how many of equal width, or where bins 1, 2, … begin.

    >>> binning("16"), binning("0.25, 0.5")
    (UniformBins(bins=16), EdgeBins(edges=(0.25, 0.5)))
    """
    try:
        return UniformBins(int(text)) if text.isdecimal() else EdgeBins([float(edge) for edge in text.split(",")])
    except HingeError as error:
        raise typer.BadParameter(f"{error}") from None
    except ValueError:
        raise typer.BadParameter(f"must be a number, or edges such as 0.5,0.9, got {text!r:.200}") from None


def check_bins(text: str | None) -> str | None:
    """Refuse what `binning` cannot read."""
    if text is not None:
        binning(text)
    return text


Bins = Annotated[
    str,
    typer.Option(
        metavar=EDGES,
        callback=check_bins,
        help="How many bins confidences are sorted into, of equal width; or the edges between them, such as 0.5,0.9: "
        "'hinge evaluate' recommends some.",
    ),
]
LogBins = Annotated[
    str | None,
    typer.Option(
        metavar=EDGES,
        callback=check_bins,
        help="As many bins of equal width, which the recommendation cuts anew, or the edges between them, which it "
        "keeps; without it 16, or those of the device that wrote a production log.",
    ),
]
Runs = Annotated[int, typer.Option(min=1, max=100_000, help="Runs to average over.")]
Seed = Annotated[int, typer.Option(min=0, help="The seed: the same seed gives the same figures.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Also write the figures at every checkpoint: .csv; or draw them: .html, .png, .svg, .pdf."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        is_eager=True,
        callback=read_config,
        help="A file of settings, as by 'hinge new'; what the command line says goes before it.",
    ),
]

State = Annotated[Path | None, typer.Option(help="The folder in which the policy survives.")]
Shadow = Annotated[
    Literal["local", "remote"] | None, typer.Option(help="Answer always by 'local', or always by 'remote', and learn.")
]
PagePort = Annotated[
    int | None,
    typer.Option(
        "--page", min=0, max=65_535, help="Serve the live page at this port of 127.0.0.1; 0 takes any that is free."
    ),
]


def offload_cost(text: str | None) -> float | str | None:
    """The value of `--offload-cost`: a number, 'learned', or None if it was not given."""
    if text is None or text == LEARNED:
        return text
    try:
        number = float(text)
    except ValueError:
        raise UsageError(f"--offload-cost must be a number from 0 to 1, or 'learned', got {text!r}") from None
    if not 0 <= number <= 1:  # nor NaN
        raise UsageError(f"--offload-cost must be from 0 to 1, got {text}")
    return number


def assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Settings from the command line: numbers, also as .2, true, false, null and lists as in JSON; all else is text.

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


def policy_settings(policies: Sequence[str], set: Sequence[str] = (), **given: Any) -> dict[str, Any]:
    """The settings that were given for these policies; one that none of them has is refused, as it would do nothing.

    >>> policy_settings(["hi-lcb"], alpha=0.6, audit=None)
    {'alpha': 0.6}
    >>> policy_settings(["sentinel"], alpha=0.6)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: --set: alpha must be left out: it is no setting of sentinel, but of ...
    """
    changes = assignments(set)
    for setting in changes.keys() & _OPTIONS:
        raise UsageError(f"--set {setting}=…: it has an option of its own")
    found = {name: value for name, value in given.items() if value is not None} | changes
    for setting in found if "all" not in policies else ():
        if not any(setting in policy_class(name).settings() for name in policies):
            known = [name for name in policy_names() if setting in policy_class(name).settings()]
            problem = f"must be left out: it is no setting of {', '.join(policies)}"
            raise InvalidValue("--set", setting, f"{problem}, but of {', '.join(known)}" if known else problem)
    return found


# -- groups of options -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificates:
    """Files for TLS: who signs the server's certificate, if the system does not know them, and the device's own."""

    ca: Path | None = option("Who signs the server's certificate, where the system does not know them.")
    cert: Path | None = option("Our own certificate, to show a server with mutual TLS.")
    key: Path | None = option("The key of that certificate, unless it is in its file.")

    def __post_init__(self) -> None:
        if self.key is not None and self.cert is None:
            raise UsageError("--key needs --cert")
        for path in filter(None, (self.ca, self.cert, self.key)):
            path.open("rb").close()

    def context(self) -> ssl.SSLContext | None:
        """For HTTP; None where there are no files."""
        if self == Certificates():
            return None

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

    policy: Policy = _DEFAULT
    set: Set = field(default_factory=list)
    audit: float | None = option(
        "The share of samples that the policies for drift audit; without it 0.001.", min=0, max=1
    )
    target: Target = None
    offload_cost: str | None = option(
        "What an offload costs, from 0 to 1; or 'learned', by the prices. Without it: learned where there are prices, "
        "or a trace that recorded costs; else 0.5, or nothing with --on-budget, or if the policy has no use for it, as "
        "with --target."
    )
    price_per_call: float | None = option("The price of an offload as such, in any unit.", min=0)
    price_per_ms: float | None = option("The price of a millisecond, in the same unit.", min=0)
    price_per_byte: float | None = option("The price of a byte, in the same unit.", min=0)
    wrong_answer: float | None = option("The price of a wrong answer, in the same unit.")
    alpha: Alpha = None
    bins: Bins = "16"
    seed: Seed = 0
    at_most: float | None = option("Offload at most this share of any 1000 samples in a row.", min=0, max=1)
    on_budget: float | None = option(
        "Offload this share of samples in the long run: those that are worth most.", min=0, max=1
    )

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

    def price(self, recorded: AnyCost | None = None) -> tuple[float | None, AnyCost | None]:
        """The offload cost that the policy knows, None if it is learned, and what an offload is charged.

        >>> GateOptions().price(), GateOptions(target=0.9).price()  # a target is held at any price
        ((0.5, FixedCost(offload_cost=0.5)), (None, None))
        >>> GateOptions(on_budget=0.1).price()  # finds its own
        (0.0, None)
        """
        prices = {"per_call": self.price_per_call, "per_ms": self.price_per_ms, "per_byte": self.price_per_byte}
        given: dict[str, Any] = {name: price for name, price in prices.items() if price is not None}
        if bool(given) != (self.wrong_answer is not None):
            raise UsageError(f"prices need both {_PRICES}")
        measured = None if self.wrong_answer is None else MeasuredCost(wrong_answer=self.wrong_answer, **given)
        known = offload_cost(self.offload_cost)
        if isinstance(known, float):
            if measured:
                raise UsageError(f"--offload-cost is known to be {known}, and yet there are prices: give one of them")
            return known, FixedCost(known)
        price = measured or recorded
        if price:
            return None, price
        if known is not None:
            raise UsageError(f"--offload-cost learned needs prices: {_PRICES}")
        kind = policy_class(self.name)
        if not kind.weighs_cost and "offload_cost" not in kind.settings():
            return None, None
        # a budget finds a price that is added to the cost: one made up would keep it from being spent
        return (0.5, FixedCost(0.5)) if self.on_budget is None else (0.0, None)

    def build(
        self,
        known_cost: float | None = 0.5,
        horizon: int | None = None,
        confidence: ConfidenceMeasure | None = None,
    ) -> Gate:
        """The gate, its policy within a budget if there is one; some need to know how many samples will come."""
        name, kind = self.name, policy_class(self.name)
        if name == _ORACLE or "history" in kind.settings():
            what = "how often local agrees, in every bin" if name == _ORACLE else "what was fitted on labelled history"
            raise UsageError(f"{name} cannot run on a device: it must be told {what}")
        settings = policy_settings([name], self.set, alpha=self.alpha, audit=self.audit, target=self.target)
        known = {} if horizon is None else {"horizon": horizon}
        bins = binning(self.bins)
        policy = build(name, offload_cost=known_cost, bins=bins.bins, seed=self.seed, **settings, **known)
        if policy.needs:
            needs = " and ".join(sorted(need.value for need in policy.needs))
            raise UsageError(f"{name} cannot run on a device: it must be told {needs}")
        if self.on_budget is not None:
            if not policy.limitable or policy.price_column is None:
                raise UsageError(f"--on-budget cannot be used with {name}, which has no price that could be moved")
            policy = on_budget(policy, self.on_budget)
        if self.at_most is not None and not policy.limitable:
            raise UsageError(f"--at-most cannot be used with {name}, which learns by the chance of an offload")
        policy = policy if self.at_most is None else at_most(policy, self.at_most)
        return Gate(policy, bins=bins, confidence=confidence)
