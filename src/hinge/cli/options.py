"""Options that several commands share, and the file of settings that may stand in for them."""

import inspect
import tomllib
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import typer
from typer.models import ArgumentInfo

from hinge._checks import did_you_mean
from hinge.errors import HingeError
from hinge.policies import policy_names
from hinge.simulation.evaluate import LEARNED

SECTIONS = ("device", "serve")  # of a file of settings
_PLACE = "FILE|URL"  # a path, unless it has a scheme
_CONFIG = "config"  # the option that names the file, which cannot be set in it


class UsageError(HingeError):
    """Options that do not go together, or a value that cannot be used."""


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
    kind = Path if described.metavar == _PLACE else kind
    return Setting(kind, parameter.default, described.help, isinstance(described, ArgumentInfo))


def read_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the section of the command in a TOML file Click's defaults, so that the command line goes before it."""
    if path is None or ctx.resilient_parsing:
        return path
    section, known = str(ctx.info_name), settings_of(ctx.command)
    content = _parsed(path)
    for name, part in content.items():
        if not isinstance(part, dict):
            where = f"be a section, [{name}]" if name in SECTIONS else "stand below [device] or [serve]"
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
        return text if "://" in text else str(folder / text)
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
        metavar=_PLACE, help="The remote model: a file as the local one, or its server, http://, https:// or grpc://."
    ),
]
Model = Annotated[str | None, typer.Option(help="The name of the remote model on its server.")]
TokenFile = Annotated[Path | None, typer.Option(help="A file with the token to show the server; or set HINGE_TOKEN.")]
Policy = Annotated[
    str, typer.Option(help="The policy, by name; see 'hinge list policies'.", autocompletion=policy_names)
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
Alpha = Annotated[float, typer.Option(help="The exploration parameter of the paper's policies.")]
Bins = Annotated[int, typer.Option(min=1, help="How many bins confidences are sorted into.")]
Runs = Annotated[int, typer.Option(min=1, help="Runs to average over.")]
Seed = Annotated[int, typer.Option(min=0, help="The seed: the same seed gives the same figures.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Out = Annotated[Path | None, typer.Option(help="Also write the figures at every checkpoint to this CSV file.")]
Config = Annotated[
    Path | None,
    typer.Option(
        is_eager=True,
        callback=read_config,
        help="A file of settings, as by 'hinge new'; what the command line says goes before it.",
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
