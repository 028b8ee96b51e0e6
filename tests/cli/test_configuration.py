"""Settings in a file: `hinge new` writes one, `device` and `serve` read it, and say on which line it is wrong."""

import inspect
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hinge import fashion
from hinge.cli.app import run
from hinge.cli.configuring import read_settings
from hinge.cli.device.command import device_command
from hinge.cli.serving import serve_command
from hinge.cli.starting import starter
from tests.cli.test_cli import Captured, refusal

COMMANDS: dict[str, Callable[..., None]] = {"device": device_command, "serve": serve_command}
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file of settings, and goes to its folder."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Path:
        path = Path("hinge.toml")
        path.write_text(text, encoding="utf-8")
        return path

    return written


def summary(capsys: Captured, *arguments: str) -> Any:
    assert run(["device", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])["summary"]


def served(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """What the server is made with."""
    made: dict[str, Any] = {}

    class Server:
        places = ()

        def __init__(self, models: list[str], **settings: Any) -> None:
            made.update(settings, models=models)

        def run(self, tell: object) -> None:
            pass

    monkeypatch.setattr("hinge.server.Server", Server)
    assert run(["serve", *arguments]) == 0
    return made


# -- new --------------------------------------------------------------------------------------------------------------


def test_new_writes_a_file_that_works_as_it_is(
    write: Write, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new"]) == 0
    assert capsys.readouterr().out == "hinge.toml is written; try: hinge device --config hinge.toml\n"
    assert summary(capsys, "--config", "hinge.toml", "--limit", "5")["samples"] == 5
    assert served(monkeypatch, "--config", "hinge.toml")["models"] == ["fashion"]


def test_new_leaves_a_file_alone(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("mine")
    assert refusal(capsys, "new", str(tmp_path / "mine.toml")) == f"hinge: {tmp_path / 'mine.toml'}: File exists"
    assert (tmp_path / "mine.toml").read_text() == "mine"


@pytest.mark.parametrize("section", COMMANDS)
def test_new_names_every_option_with_its_default(section: str, write: Write) -> None:
    parameters = inspect.signature(COMMANDS[section]).parameters
    defaults = {name: each.default for name, each in parameters.items() if each.default is not None}
    text = starter("hinge.toml")
    in_section = text.partition(f"[{section}]\n")[2].partition("\n[")[0]
    assert re.findall(r"^#?(\w+) = ", in_section, re.MULTILINE) == [name for name in parameters if name != "config"]
    path = write(re.sub(r"^#(\w+ = [^…\n]*)$", r"\1", text, flags=re.MULTILINE))  # all that have a default, set to it
    values = read_settings(path, section, COMMANDS[section]).values
    assert values == defaults | ({"models": ["fashion"]} if section == "serve" else {})


# -- device and serve -------------------------------------------------------------------------------------------------


def test_the_command_line_goes_before_the_file(write: Write, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = "[serve]\nmodels = ['fashion']\nport = 9\nwatch = true\n"
    path = str(write(f"[device]\nlimit = 7\npolicy = 'always-local'\n{serving}"))
    assert summary(capsys, "--config", path)["policy"] == "always-local"
    both = summary(capsys, "--config", path, "--limit", "3", "--policy", "isotonic")
    assert (both["samples"], both["policy"]) == (3, "isotonic")
    same = summary(capsys, "--config", path, "--limit", "3", "--policy", "always-local")
    assert (same["samples"], same["policy"]) == (3, "always-local")
    made = served(monkeypatch, "--config", path, "--port", "8", "fashion-local")
    assert (made["port"], made["models"]) == (8, ["fashion-local"])
    assert made["watch_s"] is not None
    assert served(monkeypatch, "--config", path)["port"] == 9


def test_a_default_on_the_command_line_goes_before_the_file(write: Write, capsys: Captured) -> None:
    path = str(write("[device]\nlimit = 3\npolicy = 'always-local'\n"))
    assert summary(capsys, "--config", path, "--policy", "isotonic")["policy"] == "isotonic"


def test_paths_start_from_the_folder_of_the_file(
    write: Write, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "etc" / "models").mkdir(parents=True)
    shutil.copy(fashion.local_model(), tmp_path / "etc" / "models" / "local.onnx")
    shutil.copy(fashion.local_model(), tmp_path / "etc" / "bare")
    path = tmp_path / "etc" / "hinge.toml"
    models = '["fashion", "models/local.onnx", "birds=models/local.onnx", "bare"]'
    text = '[device]\nlocal = "models/local.onnx"\nstate = "state"\nlimit = 3\noffload_cost = 0.25\n[serve]\nmodels = '
    path.write_text(text + models)
    figures = summary(capsys, "--config", str(path))
    assert figures["offload_cost"] == 0.25 * figures["answered_by_remote"]
    assert (tmp_path / "etc" / "state").is_dir()
    monkeypatch.chdir(tmp_path)
    model = str(Path("etc", "models", "local.onnx"))
    expected = ["fashion", model, f"birds={model}", str(Path("etc", "bare"))]
    assert served(monkeypatch, "--config", "etc/hinge.toml")["models"] == expected


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[device]\n\n# why\nalhpa = 3\n", "line 4: no setting is called 'alhpa'; did you mean 'alpha'?"),
        ("[device]\ntoken = 'secret'\n", "line 2: no setting is called 'token'; did you mean 'token_file'?"),
        ("[serve]\nport = 1\n[devcie]\nlimit = 3\n", "line 3: no section is called 'devcie'; did you mean 'device'?"),
        ("limit = 3\n[device]\n", "line 1: 'limit' must stand below [device] or [serve]"),
        ("\ndevice = 3\n", "line 2: 'device' must be a section, [device]"),
        ("[serve]\nlimit = 3\n[device]\nlimit = '3'\n", "line 4: limit must be a whole number, got '3'"),
        ("[device]\nlimit = true\n", "line 2: limit must be a whole number, got True"),
        ("[device]\nlimit = 2.5\n", "line 2: limit must be a whole number, got 2.5"),
        ("[device]\nalpha = 'high'\n", "line 2: alpha must be a number, got 'high'"),
        ("[device]\njson = 1\n", "line 2: json must be true or false, got 1"),
        ("[device]\nlocal = 3\n", "line 2: local must be a path in quotes, got 3"),
        ("[device]\npolicy = 3\n", "line 2: policy must be text in quotes, got 3"),
        ("[device]\n'alpha' = -1\n", "line 2: alpha must be > 0, got -1"),
        ("\ndevice = { alpha = -1 }\n", "line 2: alpha must be > 0, got -1"),
        ("[device]\nbins = 4\noffload_cost = 2\n", "line 3: offload_cost must be from 0 to 1, got 2"),
        ("[device]\noffload_cost = 'dear'\n", "line 2: offload_cost must be a number from 0 to 1, or 'learned', got"),
        ("[device]\npolicy = 'isotnic'\n", "line 2, policy: no policy is called 'isotnic'; did you mean 'isotonic'?"),
        ("[device]\nlocal = 'none.onnx'\n", "line 2, local: none.onnx: there is no such file"),
        ("[device]\nsamples = 'none.npz'\n", "line 2, samples: none.npz: No such file or directory"),
        ("[device]\nlimit =\n", "line 2: "),
        ("[device]\nlimit = 3\nlimit = 4\n", "line 3: "),
        ("[device]\nlimit = [3,\n", "line 2: "),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, problem: str, write: Write, capsys: Captured) -> None:
    assert refusal(capsys, "device", "--config", str(write(text))).startswith(f"hinge: hinge.toml, {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[serve]\nmodels = 'fashion'\n", "line 2: models must be a list of texts in quotes, got 'fashion'"),
        ("[serve]\nmodels = [3]\n", "line 2: models must be a list of texts in quotes, got [3]"),
        ("[serve]\nmodels = ['fashion', 'fashon']\n", "line 2, models: there is no model 'fashon'; did you mean"),
        ("[serve]\nmodels = ['fashion']\nport = 70000\n", "line 3: port must be an integer from 0 to 65535, got 70000"),
        ("[serve]\nmodels = ['fashion']\nmax_batch = 0\n", "line 3: max_batch must be an integer >= 1, got 0"),
        ("[serve]\nmodels = ['fashion']\ntoken_file = 'none'\n", "line 3, token_file: none: No such file or directory"),
    ],
)
def test_what_is_wrong_for_a_server_too(text: str, problem: str, write: Write, capsys: Captured) -> None:
    assert refusal(capsys, "serve", "--config", str(write(text))).startswith(f"hinge: hinge.toml, {problem}")


def test_a_value_from_the_command_line_is_not_blamed_on_the_file(write: Write, capsys: Captured) -> None:
    path = str(write("[device]\nalpha = 0.6\n"))
    assert refusal(capsys, "device", "--config", path, "--alpha", "-1") == "hinge: --alpha must be > 0, got -1"
    path = str(write("[device]\nbins = 3\n"))
    assert (
        refusal(capsys, "device", "--config", path, "--at-most", "3") == "hinge: --at-most must be from 0 to 1, got 3"
    )


def test_a_file_that_is_not_there_or_no_text(write: Write, capsys: Captured) -> None:
    assert refusal(capsys, "device", "--config", "none.toml") == "hinge: none.toml: No such file or directory"
    write("").write_bytes(b"\xff\xfe")
    assert refusal(capsys, "device", "--config", "hinge.toml") == "hinge: hinge.toml: is not text in UTF-8"
