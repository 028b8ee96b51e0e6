"""The command line as a whole: help, completion, how errors are told, and the installed script."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hinge import __version__
from hinge.cli.app import COMMANDS, check_options, command_of, run
from hinge.fashion import local_model
from tests.support.commands import SHORT, Captured, refusal, shown

HEAVY = ["numpy", "numba", "onnxruntime", "plotly", "uvicorn"]


def broken(*arguments: object, **settings: object) -> None:
    nothing: Any = None
    nothing[0]


def python(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


# -- help -------------------------------------------------------------------------------------------------------------

ALL = [
    *("demo", "list", "record", "evaluate", "simulate", "reproduce", "device", "serve", "gateway"),
    *("state show", "state set", "state export", "state merge", "export c", "export table"),
]


def test_help_lists_every_command_and_what_it_does(capsys: Captured) -> None:
    said = " ".join(shown(capsys, "--help").split())
    assert set(COMMANDS) == {name.split()[0] for name in ALL}
    for name, about in COMMANDS.items():
        assert f"{name} " in said
        assert about in said
    assert shown(capsys) == shown(capsys, "--help")
    assert shown(capsys, "state") == shown(capsys, "state", "--help")


@pytest.mark.parametrize("command", ALL)
def test_every_help_ends_with_an_example_of_options_that_exist(command: str, capsys: Captured) -> None:
    said = shown(capsys, *command.split(), "--help")
    *_, heading, example = said.splitlines()
    assert heading == "Example:"
    assert example.startswith(f"  hinge {command}")
    found, given = command_of(shlex.split(example)[1:])
    check_options(found, given, [])
    assert ("--json" in said) == (command not in ("serve", "gateway", "state export"))


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], []])
def test_the_first_word_comes_without_loading_the_rest(arguments: list[str]) -> None:
    first, *_, loaded = python(
        f"import json, sys; from hinge.cli.app import run; code = run({arguments})\n"
        f"assert code == 0; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    assert first == f"hinge {__version__}" or first.startswith("Usage: hinge")
    assert json.loads(loaded) == []


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("state shwo", "no command is called 'shwo'; did you mean 'show'?"),
        ("simulat", "no command is called 'simulat'; did you mean 'simulate'?"),
        ("weather", "no command is called 'weather'; there are demo, device, evaluate, export, gateway, list, record,"),
        ("--verison", "no option is called '--verison'; did you mean '--version'?"),
        ("device --dead-line 3", "no option is called '--dead-line'; did you mean '--deadline-s'?"),
        ("simulate --polcy hi-lcb", "no option is called '--polcy'; did you mean '--policy'?"),
        ("simulate --no-json", "no option is called '--no-json'; did you mean '--json'?"),
        ("state set state --alhpa 3", "no option is called '--alhpa'; there are --json; see 'hinge state set --help'"),
        ("serve fashon", "there is no model 'fashon'; did you mean 'fashion'?"),
        ("serve", "there must be a model to serve, such as 'fashion'; see 'hinge serve --help'"),
        ("evaluate", "TRACE must be given; see 'hinge evaluate --help'"),
        ("gateway", "--local must be given; see 'hinge gateway --help'"),
        ("simulate --bins", "--bins needs a value; see 'hinge simulate --help'"),
        ("simulate more", "there are more words than this command takes: more; see 'hinge simulate --help'"),
        ("device --prices ms=-1,wrong-answer=2", "MeasuredCost: per_ms must be >= 0, got -1.0"),
        ("device --prices ms=1", "--prices need wrong-answer=… and call=…, ms=… or byte=…, got 'ms=1'"),
        ("export c --policy hi-lcb --out firmware --set alpha=0", "--set: alpha must be > 0, got 0"),
        ("export c --state nowhere --bins 3 --out firmware", "--bins is in the state already"),
        ("simulate --policy hi-lbc", "no policy is called 'hi-lbc'; did you mean 'hi-lcb'?"),
        ("simulate --trace synthetic-cifra10", "no trace is called 'synthetic-cifra10'; did you mean"),
        ("evaluate fashion --policies hi-lcb,hedge-ih", "no policy is called 'hedge-ih'; did you mean 'hedge-hi'?"),
        ("evaluate synthetic-cifar", "no trace is called 'synthetic-cifar'; did you mean"),
        ("simulate --bins 100000000000000", "out of memory: "),
    ],
)
def test_a_refusal_says_what_was_typed_and_what_was_meant(arguments: str, line: str, capsys: Captured) -> None:
    assert refusal(capsys, *arguments.split()).startswith(f"hinge: {line}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--bins 0", "--bins must be an integer >= 1, got 0"),
        ("--bins 1.5", "--bins must be > 0 and <= 1, got 1.5"),
        ("--bins few", "--bins must be a number, or edges such as 0.5,0.9, got 'few'"),
        ("--horizon 0", "--horizon must be >= 1, got 0"),
        ("--runs 0", "--runs must be >= 1, got 0"),
        ("--runs 99999999999999999999", "--runs must be <= 100000, got 99999999999999999999"),
        ("--runs many", "--runs must be an integer, got 'many'"),
        ("--seed -1", "--seed must be >= 0, got -1"),
        ("--offload-cost 2", "--offload-cost must be from 0 to 1, got 2"),
        ("--offload-cost -0.1", "--offload-cost must be from 0 to 1, got -0.1"),
        ("--offload-cost nan", "--offload-cost must be from 0 to 1, got nan"),
        ("--offload-cost x", "--offload-cost must be a number from 0 to 1, or 'learned', got 'x'"),
    ],
)
@pytest.mark.parametrize("command", ["simulate --policy hi-lcb", "evaluate synthetic-cifar10"])
def test_impossible_parameters_are_named(command: str, arguments: str, message: str, capsys: Captured) -> None:
    assert message in refusal(capsys, *command.split(), *arguments.split())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "No such file or directory"),
        ("empty.csv", b"", "there must be a header"),
        ("short.csv", b"confidence,local,remote\n0.9,1\n", "line 2: 2 fields where the header has 3"),
        ("lacking.csv", b"confidence,local\n0.9,1\n", "column 'remote' is missing"),
        ("named.csv", b"conf,local,remote\n0.9,1,1\n", "(is it 'conf'?); needed are confidence, local, remote, found"),
        ("misspelt.csv", b"confidence,local,remote,lable\n0.9,1,1,1\n", "did you mean 'label'?"),
        ("range.csv", b"confidence,local,remote\n0.5,1,1\n1.9,1,1\n", "line 3: confidence must be from 0 to 1"),
        ("cost.csv", b"confidence,local,remote,cost\n0.5,1,1,2\n", "line 2: cost must be from 0 to 1, got 2.0"),
        ("bytes.csv", b"\xff\xfe\x00\x01", "line 1"),
        ("junk.npz", b"junk", "cannot be read as npz"),
        ("junk.parquet", b"junk", "cannot be read as Parquet"),
        ("log.txt", b"junk", "no format of traces ends in '.txt'"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "simulate --trace"])
def test_files_that_cannot_be_read_are_named(
    command: str, name: str, content: bytes | None, message: str, capsys: Captured, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    line = refusal(capsys, *command.split(), str(path))
    assert message in line
    assert str(path) in line


def test_a_folder_is_no_trace_and_no_place_for_figures_before_the_work(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hinge.cli.simulate.simulate", None)
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert "Is a directory" in refusal(capsys, "evaluate", str(folder))
    assert "Is a directory" in refusal(capsys, "simulate", *SHORT, "--out", str(folder))
    for name in ("out.csv", "out.html"):
        assert "No such file" in refusal(capsys, "simulate", *SHORT, "--out", str(tmp_path / "none" / name))


# -- bugs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [TypeError("odd"), ValueError("odd"), LookupError("odd"), OSError("odd")])
def test_an_error_of_ours_is_called_a_bug(error: Exception, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr("hinge.cli.simulate.simulate", fails)
    assert run(["simulate", "--runs", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.err == (
        f"hinge: this is a bug in Hinge, please report it: {type(error).__name__}: odd; "
        "'hinge --debug simulate --runs 1' shows where\n"
    )
    assert captured.out == ""


def test_debug_shows_where(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.cli.simulate.simulate", broken)
    assert run(["--debug", "simulate", "--runs", "1"]) == 1
    err = capsys.readouterr().err
    assert "Traceback (most recent call last):" in err
    assert ", in broken" in err
    assert err.splitlines()[-1].startswith("hinge: this is a bug")
    assert run(["--debug", "simulate", "--policy", "hi-lbc"]) == 2
    err = capsys.readouterr().err
    assert "hinge.errors.UnknownName" in err
    assert err.endswith("hinge: no policy is called 'hi-lbc'; did you mean 'hi-lcb'?\n")


def test_an_error_of_the_system_is_no_bug(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hinge.cli.simulate.simulate", fails)
    assert run(["simulate"]) == 1
    assert capsys.readouterr().err == (
        "hinge: OSError: [Errno 28] No space left on device; 'hinge --debug simulate' shows where\n"
    )


def test_a_missing_extra_is_named_with_its_remedy(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "hinge.models.onnx", raising=False)
    assert "pip install 'hinge-gate[" in refusal(capsys, "device", "--limit", "1")


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("cyclopts", "list", "cli"),
        ("rich", "list", "cli"),
        ("plotly", "reproduce figure-2 --quick", "report"),
        ("plotly", "demo", "cli,device,server,report"),
        ("onnxruntime", "device --limit 1", "device"),
        ("aiohttp", "device --remote http://127.0.0.1:9 --limit 1", "device"),
        ("prometheus_client", "device --limit 1 --metrics-port 0", "metrics"),
        ("starlette", "serve fashion --port 0", "server"),
        ("h11", "serve fashion --port 0", "server"),
        ("pyarrow", "evaluate log.parquet", "sim"),
        ("PIL", "device . --local {local} --remote http://127.0.0.1:9 --model m", "images"),
        ("ai_edge_litert", "device . --local m.tflite --remote http://127.0.0.1:9 --model m", "litert"),
        ("openvino", "device . --local m.xml --remote http://127.0.0.1:9 --model m", "openvino"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(missing: str, command: str, extra: str, tmp_path: Path) -> None:
    for name in ("log.parquet", "m.tflite", "image.png"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "m.xml").write_text('<net name="m" version="11"><layers/><edges/></net>')
    (tmp_path / "m.bin").write_bytes(b"")
    words = command.format(local=local_model()).split()
    program = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['hinge', *{words!r}]"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; from hinge.cli import main; main()"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip  # several to a line
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("hinge: ")
    assert f"pip install 'hinge-gate[{extra}]'" in done.stderr


def test_what_comes_from_outside_cannot_move_the_cursor(capsys: Captured, tmp_path: Path) -> None:
    for arguments in (
        ["simulate", "--trace", f"{tmp_path}/a\x1b[2Jb.csv"],
        ["\x1b]0;title\x07"],
        ["device", "--\x1b[2J"],
        ["evaluate", "line\nline"],
    ):
        assert refusal(capsys, *arguments).isprintable()
    assert len(refusal(capsys, "evaluate", "x" * 100_000)) < 1100


# -- the installed command --------------------------------------------------------------------------------------------


@pytest.mark.server
def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "hinge", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"hinge {__version__}\n")
