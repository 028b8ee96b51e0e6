"""Settings in a file: `device`, `serve` and `gateway` read it, and name it when it is wrong."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge import fashion
from hinge.cli.app import run
from hinge.cli.options import class_names
from hinge.policies import policy as registering
from tests.support.commands import Captured, answer, refusal

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


# -- device and serve -------------------------------------------------------------------------------------------------


@pytest.mark.medium
def test_the_command_line_goes_before_the_file(write: Write, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = "[serve]\nmodels = ['fashion']\nport = 9\ninsecure = true\n"
    path = str(write(f"[device]\nlimit = 7\npolicy = 'always-local'\n{serving}"))
    assert summary(capsys, "--config", path)["policy"] == "always-local"
    both = summary(capsys, "--config", path, "--limit", "3", "--policy", "probation")
    assert (both["samples"], both["policy"]) == (3, "probation")
    same = summary(capsys, "--config", path, "--limit", "3", "--policy", "always-local")
    assert (same["samples"], same["policy"]) == (3, "always-local")
    made = served(monkeypatch, "--config", path, "--port", "8", "fashion-local")
    assert (made["port"], made["models"]) == (8, ("fashion-local",))
    assert made["insecure"] is True
    assert served(monkeypatch, "--config", path)["port"] == 9


@pytest.mark.parametrize("edges", ["[0.25, 0.5, 0.9]", "'0.25,0.5,0.9'"])
def test_edges_of_bins_are_a_list_or_a_text(edges: str, write: Write, capsys: Captured, tmp_path: Path) -> None:
    path = str(write(f"[device]\nlimit = 3\nstate = 'state'\nbins = {edges}\n"))
    assert summary(capsys, "--config", path)["samples"] == 3
    assert answer(capsys, "state", "show", str(tmp_path / "state"))["binning"]["edges"] == [0.25, 0.5, 0.9]
    said = refusal(capsys, "device", "--config", str(write("[device]\nbins = ['a', 'b']\n")))
    assert "must be a number, or edges such as 0.5,0.9, got 'a,b'" in said


def test_paths_may_start_from_the_home_folder(
    write: Write, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    shutil.copy(fashion.local_model(), home / "local.onnx")
    assert summary(capsys, "--config", str(write("[device]\nlimit = 3\nlocal = '~/local.onnx'\nstate = '~/s'\n")))
    assert (home / "s").is_dir()
    np.savez(home / "few.npz", samples=fashion.labelled_images()[0][:3])
    few = "[device]\nsamples = '~/few.npz'\nlocal = '~/local.onnx'\nremote = '~/local.onnx'\n"
    assert summary(capsys, "--config", str(write(few)))["samples"] == 3
    assert not (tmp_path / "~").exists()


def test_paths_start_from_the_folder_of_the_file(
    write: Write, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "etc" / "models").mkdir(parents=True)
    shutil.copy(fashion.local_model(), tmp_path / "etc" / "models" / "local.onnx")
    shutil.copy(fashion.local_model(), tmp_path / "etc" / "bare")
    shutil.copy(fashion.remote_model(), tmp_path / "etc" / "models" / "remote.onnx")
    path = tmp_path / "etc" / "hinge.toml"
    models = '["fashion", "models/local.onnx", "birds=models/local.onnx", "bare"]'
    both = 'local = "models/local.onnx"\nremote = "models/remote.onnx"\n'
    text = f'[device]\n{both}state = "state"\nlimit = 3\noffload_cost = 0.25\n[serve]\nmodels = '
    path.write_text(text + models)
    figures = summary(capsys, "--config", str(path))
    assert figures["offload_cost"] == 0.25 * figures["answered_by_remote"]
    assert (tmp_path / "etc" / "state").is_dir()
    monkeypatch.chdir(tmp_path)
    model = str(Path("etc", "models", "local.onnx"))
    expected = ["fashion", model, f"birds={model}", str(Path("etc", "bare"))]
    assert served(monkeypatch, "--config", "etc/hinge.toml")["models"] == tuple(expected)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[device]\n\n# why\nlmiit = 3\n", "no setting of [device] is called 'lmiit'; did you mean 'limit'?"),
        ("[device]\nas_json = true\n", "no setting of [device] is called 'as_json'; did you mean 'json'?"),
        ("[device]\nconfig = 'more.toml'\n", "no setting of [device] is called 'config'"),
        ("[device]\ntoken = 'secret'\n", "no setting of [device] is called 'token'; did you mean 'token_file'?"),
        ("[serve]\nport = 1\n[devcie]\nlimit = 3\n", "no section is called 'devcie'; did you mean 'device'?"),
        ("[serve]\nport = 1\n[gateway]\n", "has no section [device], but [serve] and [gateway]"),
        ("limit = 3\n[device]\n", "'limit' must stand below [device], [serve] or [gateway]"),
        ("\ndevice = 3\n", "'device' must be a section, [device]"),
        ("[serve]\nlimit = 3\n[device]\nlimit = 'x'\n", "limit must be an integer, got 'x'"),
        ("[device]\nlimit = true\n", "limit must be an integer, got 'true'"),
        ("[device]\nlimit = 2.5\n", "limit must be an integer, got '2.5'"),
        ("[device]\nlimit = [3]\n", "limit must be one value, got [3]"),
        ("[device]\nlimit = { a = 3 }\n", "limit must be one value, got {'a': 3}"),
        ("[device]\nbins = 0\n", "bins must be an integer >= 1, got 0"),
        ("[device]\nlabels = ['cat, black', 'dog']\n", "labels has 'cat, black', with a comma: name a file of lines"),
        ("[device]\nshadow = 'both'\n", "shadow must be one of local, remote, got 'both'"),
        ("[device]\njson = 'perhaps'\n", "json must be true or false, got 'perhaps'"),
        ("[device]\npolicy = 'hi-lcb'\n'set' = ['alpha=-1']\n", "set: alpha must be > 0, got -1"),
        ("\ndevice = { policy = 'hi-lcb', set = ['alpha=-1'] }\n", "set: alpha must be > 0, got -1"),
        ("[device]\nset = ['alpha=0.6']\n", "set: alpha must be left out: it is no setting of probation, but of "),
        ("[device]\nset = 'alpha=0.6'\n", "set must be a list, got 'alpha=0.6'"),
        ("[device]\nlimit =\n", "Invalid value (at line 2, column 8)"),
        ("[device]\nlimit = 3\nlimit = 4\n", "Cannot overwrite a value (at line 3, column 10)"),
        ("[device]\nlimit = [3,\n", ""),
        (f"[device]\nlimit = {'9' * 5000}\n", "a value is too large to be read"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(text: str, problem: str, write: Write, capsys: Captured) -> None:
    assert refusal(capsys, "device", "--config", str(write(text))).startswith(f"hinge: hinge.toml: {problem}")


@pytest.mark.parametrize(
    ("command", "text", "problem"),
    [
        ("device", "policy = 'probaton'", "no policy is called 'probaton'; did you mean 'probation'?"),
        ("device", "policy = 3", "no policy is called '3'"),
        ("device", "local = 'none.onnx'", "none.onnx: there is no such file"),
        ("device", "samples = 'none.npz'", "none.npz: No such file or directory"),
        ("device", "bins = 4\noffload_cost = 2", "hinge.toml: offload_cost must be from 0 to 1, got 2"),
        ("device", "offload_cost = 'dear'", "hinge.toml: offload_cost must be a number from 0 to 1, or"),
        ("serve", "models = ['fashion', 'fashon']", "there is no model 'fashon'; did you mean 'fashion'?"),
        ("serve", "models = [3]", "there is no model '3'"),
        ("serve", "models = ['fashion']\ntoken_file = 'none'", "none: No such file or directory"),
    ],
)
def test_a_value_is_read_as_it_would_be_on_the_command_line(
    command: str, text: str, problem: str, write: Write, capsys: Captured
) -> None:
    path = str(write(f"[{command}]\n{text}\n"))
    told = refusal(capsys, command, "--config", path)
    assert told.startswith(f"hinge: {problem}")
    assert "hinge.toml" in told or "No such file" in told


def test_a_value_from_the_command_line_is_not_blamed_on_the_file(write: Write, capsys: Captured) -> None:
    path = str(write("[device]\nbins = 3\n"))
    problem = refusal(capsys, "device", "--config", path, "--budget", "3")
    assert problem.startswith("hinge: --budget must be <= 1, got 3.0")


def test_a_file_that_is_not_there_or_no_text(write: Write, capsys: Captured) -> None:
    assert refusal(capsys, "device", "--config", "none.toml") == "hinge: none.toml: No such file or directory"
    write("").write_bytes(b"\xff\xfe")
    assert refusal(capsys, "device", "--config", "hinge.toml") == "hinge: hinge.toml: is not text in UTF-8"


# -- policies of one's own --------------------------------------------------------------------------------------------

OWN = """
from hinge import HILCB, HILCBLite

class Eager(HILCB):
    \"\"\"One of the user's own.\"\"\"
    name = "eager"

class Unnamed(HILCBLite):
    pass

class Streak(HILCBLite):
    name = "streak"

    def __init__(self, bins=16, offload_cost=0.5, wins=3):
        super().__init__(bins, offload_cost=offload_cost)
        self.wins = int(wins)
"""


@pytest.fixture
def own(write: Write, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user's, in the folder where the commands are called; its policies are forgotten afterwards."""
    write("[device]\npolicy = 'ownpolicies:Eager'\n").with_name("ownpolicies.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("hinge.policies.policy._registry", dict(registering._registry))
    yield
    sys.modules.pop("ownpolicies", None)


@pytest.mark.medium
@pytest.mark.usefixtures("own")
def test_a_policy_of_ones_own_goes_wherever_a_name_does(capsys: Captured) -> None:
    short = ["--horizon", "500", "--runs", "2"]
    mine = answer(capsys, "simulate", "--policy", "ownpolicies:Eager", "--set", "offload_unseen=false", *short)
    plain = answer(capsys, "simulate", "--policy", "hi-lcb", "--set", "offload_unseen=false", *short)
    assert mine == {**plain, "policy": "eager"}
    both = answer(capsys, "evaluate", "synthetic-cifar10", "--policies", "ownpolicies:Eager, hi-lcb", *short)[
        "policies"
    ]
    assert [row["policy"] for row in both] == ["eager", "hi-lcb"]
    assert both[0]["cost_per_sample"] == both[1]["cost_per_sample"]
    assert summary(capsys, "--config", "hinge.toml", "--limit", "3")["policy"] == "eager"
    assert summary(capsys, "--policy", "ownpolicies:Eager", "--limit", "3", "--state", "state")["policy"] == "eager"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(("wins", "kind"), [("x", "ValueError"), ("null", "TypeError")])
def test_settings_that_a_policy_of_ones_own_refuses_are_no_bug(capsys: Captured, wins: str, kind: str) -> None:
    for command in ("device", "simulate"):
        said = refusal(capsys, command, "--policy", "ownpolicies:Streak", "--set", f"wins={wins}")
        assert said.startswith("hinge: streak: settings are invalid: {")
        assert f": {kind}: int() argument" in said or f": {kind}: invalid literal" in said


def test_a_list_of_labels_may_be_longer_than_the_name_of_a_file() -> None:
    names = tuple(f"class {number}" for number in range(1000))
    assert class_names(",".join(names)) == names


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("ownpolicies:Eagre", "the module has no policy 'Eagre'; did you mean 'Eager'?"),
        ("ownpolicies:Unnamed", "the policy has no name"),
        ("datetime:date", "is no hinge.Policy; other deciders run in Python, hinge.evaluate(log, [date()])"),
        ("datetime:Eager", "the module has no policy 'Eager'"),
        ("nowhere:Eager", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        (":Eager", "cannot be imported: ValueError"),
    ],
)
def test_what_is_no_policy_of_ones_own_is_refused(policy: str, problem: str, capsys: Captured) -> None:
    assert refusal(capsys, "simulate", "--policy", policy).startswith(f"hinge: {policy}: {problem}")
