"""The front door: help, completion and refusals of the command line as a whole."""

import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from hinge import __version__, policy_names
from hinge.cli import show
from hinge.cli.app import run
from hinge.cli.contents import CHAPTERS, ENTRIES, load
from hinge.traces import trace_names
from tests.cli.test_cli import Captured, answer, refusal

HEAVY = ["numpy", "numba", "onnxruntime", "plotly", "uvicorn"]
ALL = [
    *("demo", "list", "evaluate", "simulate", "reproduce", "new", "device", "serve"),
    *("state show", "state rollback", "state export", "state merge", "export c", "export table"),
]
WITHOUT_FIGURES = ["new", "serve", "state export"]  # the last writes nothing but JSON
every_command = pytest.mark.parametrize("command", ALL)


def shown(capsys: Captured, *arguments: str) -> str:
    assert run(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def python(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


# -- help -------------------------------------------------------------------------------------------------------------


def test_help_is_a_table_of_contents(capsys: Captured) -> None:
    lines = shown(capsys, "--help").splitlines()
    places = [lines.index(f"{heading}:") for heading in (*CHAPTERS, "Options")]
    assert places == sorted(places)
    for heading, chapter in CHAPTERS.items():
        for below, entry in enumerate(chapter, lines.index(f"{heading}:") + 1):
            assert lines[below].split(maxsplit=1) == [entry.name, entry.about]
            assert len(lines[below]) <= 80


def test_hinge_alone_shows_the_help_and_so_does_a_group_alone(capsys: Captured) -> None:
    assert shown(capsys) == shown(capsys, "--help")
    assert shown(capsys, "state") == shown(capsys, "state", "--help")


def test_the_contents_are_complete() -> None:
    named = {name.split()[0] for name in ALL}
    assert set(ENTRIES) == named
    for name in ("state", "export"):
        assert sorted(f"{name} {each}" for each in load(ENTRIES[name]).commands) == sorted(
            each for each in ALL if each.startswith(f"{name} ")
        )


@every_command
def test_every_help_ends_with_an_example_of_options_that_exist(command: str, capsys: Captured) -> None:
    *_, heading, example = shown(capsys, *command.split(), "--help").splitlines()
    assert heading == "Example:"
    assert example.startswith(f"  hinge {command}")
    assert shown(capsys, *shlex.split(example)[1:], "--help").splitlines()[-1] == example


@every_command
def test_every_command_with_figures_has_them_as_json(command: str, capsys: Captured) -> None:
    assert ("--json" in shown(capsys, *command.split(), "--help")) == (command not in WITHOUT_FIGURES)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], []])
def test_the_first_word_comes_without_loading_the_rest(arguments: list[str]) -> None:
    first, *_, loaded = python(
        f"import json, sys; from hinge.cli.app import run; code = run({arguments})\n"
        f"assert code == 0; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    assert first == f"hinge {__version__}" or first.startswith("Usage: hinge")
    assert json.loads(loaded) == []


# -- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--show-completion", shell])
    assert ended.value.code == 0
    assert "_HINGE_COMPLETE" in capsys.readouterr().out


def offered(monkeypatch: pytest.MonkeyPatch, capsys: Captured, typed: str) -> list[str]:
    words = typed.split(" ")
    settings = {"_HINGE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    with monkeypatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit):
            run([])
    return capsys.readouterr().out.split()


def test_the_shell_is_offered_commands_options_policies_and_traces(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def completed(typed: str) -> list[str]:
        return offered(monkeypatch, capsys, typed)

    assert completed("hinge ") == list(ENTRIES)
    assert completed("hinge state ro") == ["rollback"]
    assert completed("hinge simulate --tr") == ["--trace"]
    assert completed("hinge device --policy ") == policy_names()
    assert completed("hinge evaluate --policies kl,hi-lcb-l") == ["kl,hi-lcb-lite"]
    assert completed("hinge simulate --trace cifar10-") == [name for name in trace_names() if "cifar10-" in name[:8]]
    assert completed("hinge evaluate ") == trace_names()
    assert completed("hinge evaluate ./") == [], "so that the shell offers files"


def test_to_list_commands_loads_none() -> None:
    code = "import os, sys; os.environ |= dict(_HINGE_COMPLETE='complete_bash', COMP_WORDS='hinge s', COMP_CWORD='1')\n"
    code += "from hinge.cli.app import run\ntry:\n    run([])\nexcept SystemExit:\n    print('numpy' in sys.modules)"
    assert python(code)[-1] == "False"


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("state shwo", "no command is called 'shwo'; did you mean 'show'?"),
        ("weather", "no command is called 'weather'; there are demo, device, evaluate, export, list, new, reproduce,"),
        ("--verison", "no option is called '--verison'; did you mean '--version'?"),
        ("device --dead-line 3", "no option is called '--dead-line'; did you mean '--deadline-s'?"),
        ("serve fashon", "there is no model 'fashon'; did you mean 'fashion'?"),
        ("serve", "there must be a model to serve, such as 'fashion'; see 'hinge serve --help'"),
        ("evaluate", "Missing argument '"),
        ("simulate --bins", "Option '--bins' requires an argument"),
        ("device --price-per-ms -1 --wrong-answer 2", "--price-per-ms must be >= 0, got -1"),
        ("export c --out firmware --alpha 0", "--alpha must be > 0, got 0"),
    ],
)
def test_a_refusal_says_what_was_typed_and_what_was_meant(arguments: str, line: str, capsys: Captured) -> None:
    assert refusal(capsys, *arguments.split()).startswith(f"hinge: {line}")


@pytest.mark.parametrize("policy", policy_names())
def test_no_refusal_names_what_lies_behind_an_option(policy: str, capsys: Captured) -> None:
    for option, value in (("--bins", "0"), ("--horizon", "0"), ("--seed", "-1"), ("--alpha", "-1")):
        arguments = ["simulate", "--policy", policy, "--horizon", "100", "--runs", "1", option, value]
        if run(arguments) == 2:  # not every policy explores
            assert capsys.readouterr().err.startswith(f"hinge: {option} must be ")
        else:
            assert option == "--alpha"


# -- words ------------------------------------------------------------------------------------------------------------


def test_one_sample_is_no_samples(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("confidence,local,remote\n0.9,1,1\n")
    path, only = str(tmp_path / "log.csv"), ["--policies", "always-local"]
    assert "log.csv: 1 sample, in order" in "".join(shown(capsys, "evaluate", path, *only).splitlines())
    once = shown(capsys, "simulate", "--trace", "fashion", "--horizon", "5", "--runs", "1")
    assert "fashion, horizon 5, 1 run " in once


def test_labels_agree_with_and_without_a_decimal_point(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("confidence,local,remote\n0.9,3,3.0\n0.8,4,4.0\n")
    data = answer(capsys, "evaluate", str(tmp_path / "log.csv"), "--policies", "always-local", "--runs", "1")
    assert data["policies"][0]["accuracy"] == 1


@pytest.mark.parametrize(("terminal", "said"), [(True, True), (False, False)])
def test_whoever_watches_is_told_why_it_takes_a_while(
    terminal: bool, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(show, "err", Console(file=screen, force_terminal=terminal, width=100))
    with show.progress("isotonic on fashion"):
        pass
    assert ("isotonic on fashion: compiling, the first time" in screen.getvalue()) == said
