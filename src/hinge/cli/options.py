"""Options that several commands share, and the file of settings that may stand in for them."""

import inspect
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from hinge._checks import did_you_mean
from hinge.confidence import ConfidenceMeasure, restore_measure
from hinge.errors import HingeError, InvalidValue
from hinge.policies import Policy as AnyPolicy
from hinge.policies import policy_class, policy_names
from hinge.simulation.evaluate import LEARNED

SECTIONS = ("device", "serve", "gateway")  # of a file of settings
PLACE = "FILE|URL"  # a path, unless it has a scheme
_NAMES = "FILE|A,B,C"  # a path, if there is such a file
_CONFIG = "config"  # the option that names the file, which cannot be set in it
_OPTIONS = {"bins", "horizon", "offload_cost", "seed"}  # settings of policies that a trace or a device must know, too


Measure = Literal["max_softmax", "margin", "entropy", "max_probability"]


class UsageError(HingeError):
    """Options that do not go together, or a value that cannot be used."""


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command, in which a parameter that is a dataclass stands for its fields: an option for each, and one object."""
    asked = inspect.signature(command).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in asked if is_dataclass(each.annotation)}
    flat = [option for each in asked for option in (_options(each.annotation) if each.name in groups else [each])]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in flat])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in flat}
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    hints, kept = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(each.name, kept, default=getattr(group(), each.name), annotation=hints[each.name])
        for each in fields(group)
    ]


# -- a file of settings -----------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """An option or argument of a command, as it can be set in a file."""

    kind: type
    default: Any
    help: str
    positional: bool


def settings_of(command: Any) -> dict[str, Setting]:
    """What can be set of a command, by name, from the signature of its function."""
    parameters = inspect.signature(command.callback).parameters
    return {name: _setting(parameter) for name, parameter in parameters.items() if name != _CONFIG}


def _setting(parameter: inspect.Parameter) -> Setting:
    annotation, described = get_args(parameter.annotation)  # Annotated[str | None, typer.Option(…)]
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    kind = next(get_origin(each) or each for each in kinds if each is not NoneType)
    kind = Path if described.metavar in (PLACE, _NAMES) else kind
    return Setting(kind, parameter.default, described.help, isinstance(described, ArgumentInfo))


def read_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the section of the command in a TOML file Click's defaults, so that the command line goes before it."""
    if path is None or ctx.resilient_parsing:
        return path
    section, known = str(ctx.info_name), settings_of(ctx.command)
    content = _parsed(path)
    for name, part in content.items():
        if not isinstance(part, dict):
            where = f"be a section, [{name}]" if name in SECTIONS else "stand below [device], [serve] or [gateway]"
            raise UsageError(f"{path}: {name!r} must {where}")
        if name not in SECTIONS:
            raise UsageError(f"{path}: no section is called {name!r}{did_you_mean(name, SECTIONS)}")
    defaults = {}
    for name, value in content.get(section, {}).items():
        if name not in known:
            raise UsageError(f"{path}: no setting of [{section}] is called {name!r}{did_you_mean(name, known)}")
        defaults[name] = _value(path, name, value, known[name])
    ctx.default_map = defaults
    return path


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:  # says where
        raise UsageError(f"{path}: {error}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        raise UsageError(f"{path}: a value is too large to be read") from None


def _value(path: Path, name: str, value: Any, setting: Setting) -> str | list[str]:
    """The value as it would be typed, so that one parser reads both. Paths start from the folder of the file."""
    if isinstance(value, list) != (setting.kind is list) or isinstance(value, dict):
        raise UsageError(f"{path}: {name} must be {'a list' if setting.kind is list else 'one value'}, got {value!r}")
    if isinstance(value, list):
        return [_located(path.parent, each, setting) for each in value]
    return _located(path.parent, value, setting)


def _located(folder: Path, value: Any, setting: Setting) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if setting.kind is Path:
        return text if "://" in text or ("," in text and not os.path.exists(folder / text)) else str(folder / text)
    if not setting.positional or text in ("-", setting.default):
        return text
    name, sign, place = text.rpartition("=")  # a model may be NAME=PATH
    path = Path(place)
    looks_like_one = path.suffix or len(path.parts) > 1 or (folder / path).exists()
    return f"{name}{sign}{folder / path}" if looks_like_one else text


# -- options ----------------------------------------------------------------------------------------------------------


def complete_policies(incomplete: str) -> list[str]:
    """What the shell offers for the last of several policies."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ["all", *policy_names()]]


Local = Annotated[Path | None, typer.Option(help="The local model: .onnx, .tflite or .xml (OpenVINO).")]
Remote = Annotated[
    str | None,
    typer.Option(
        metavar=PLACE, help="The remote model: a file as the local one, or its server, http://, https:// or grpc://."
    ),
]
Output = Annotated[
    str | None,
    typer.Option(help="The output of the local model that has the scores; without it the first of real numbers."),
]
RemoteOutput = Annotated[
    str | None, typer.Option(help="The output of the remote model that has labels or scores; without it the first.")
]
Input = Annotated[
    str | None,
    typer.Option(
        help="The array of an .npz file that goes into the models; without it 'samples', 'images', 'X_test' or "
        "the like. The true labels are in 'labels', 'y', 'y_test' or 'target'."
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(metavar=_NAMES, help="The names of the classes in the models' order, as a list or a file of lines."),
]
Confidence = Annotated[
    Measure | None, typer.Option(help="How scores become a confidence; without it, by the largest softmax.")
]
Model = Annotated[str | None, typer.Option(help="The name of the remote model on its server.")]
TokenFile = Annotated[Path | None, typer.Option(help="A file with the token to show the server; or set HINGE_TOKEN.")]


def measure(name: Measure | None) -> ConfidenceMeasure | None:
    """The confidence measure of that name, if one is given."""
    return None if name is None else restore_measure({"name": name})


def class_names(text: str | None) -> tuple[str, ...] | None:
    """The names of classes, from a file that has one in a line, or separated by commas.

    >>> class_names("cat, dog")
    ('cat', 'dog')
    >>> class_names("cat,dog,cat")
    Traceback (most recent call last):
    hinge.cli.options.UsageError: --labels: 'cat' comes twice
    """
    if text is None:
        return None
    is_file = os.path.isfile(text)  # False, where Path raises an error: for a list that is too long for a name
    try:
        given = Path(text).read_text("utf-8").splitlines() if is_file else text.split(",")
    except UnicodeDecodeError:
        raise UsageError(f"--labels {text}: is not text in UTF-8") from None
    names = tuple(name.strip() for name in given if name.strip())
    if len(names) < 2:
        raise UsageError(f"--labels {text}: must name two classes or more, by commas or in a file, one in a line")
    for name, times in Counter(names).items():
        if times > 1:
            raise UsageError(f"--labels: {name!r} comes twice")
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
    if name not in kinds:
        raise UsageError(f"{text}: the module has no policy {name!r}{did_you_mean(name, kinds)}")
    if "name" not in vars(kinds[name]):
        raise UsageError(f"{text}: the policy has no name: set name = 'my-policy' in the class")
    return kinds[name].name


def policies_named(text: str) -> str:
    """Names of policies, separated by commas; 'all' has those of your own in it once they are imported."""
    names = [policy_named(name.strip()) for name in text.split(",")]
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
Bins = Annotated[int, typer.Option(min=1, help="How many bins confidences are sorted into.")]
Runs = Annotated[int, typer.Option(min=1, help="Runs to average over.")]
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

Audit = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="The share of samples that the policies for drift audit; without it 0.001."),
]
State = Annotated[Path | None, typer.Option(help="The folder in which the policy survives.")]
Shadow = Annotated[
    Literal["local", "remote"] | None, typer.Option(help="Answer always by 'local', or always by 'remote', and learn.")
]
FLEET = "fleet"  # its name, unless it is given another
FleetName = Annotated[str, typer.Option(help="The fleet: devices with the same two models.")]
FleetPasswordFile = Annotated[
    Path | None, typer.Option(help="A file with the password of the user that --fleet names.")
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
    """Settings from the command line: numbers, true, false, null and lists as JSON has them; all else is text.

    >>> assignments(["memory=1000", "complexity=N ln 2"])
    {'memory': 1000, 'complexity': 'N ln 2'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"a setting must be NAME=VALUE, got {text!r}")
        try:
            found[name.replace("-", "_")] = json.loads(value)
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
