"""`hinge export`: what it takes, refuses and says."""

import json
from pathlib import Path

import pytest

from hinge import HILCB, Gate, Policy, Thompson
from hinge.cli.export import export_command
from hinge.cli.settings import UsageError
from hinge.device.store import Store
from hinge.embedded import export_c, export_table
from hinge.errors import HingeError, InvalidState
from hinge.gate import sealed


def export(*arguments: str) -> None:
    command, bound, _ = export_command.parse_args([*arguments], print_error=False, exit_on_error=False)
    command(*bound.args, **bound.kwargs)


def saved(source: Policy | Gate, folder: Path) -> str:
    path = folder / "state.json"
    path.write_text(json.dumps(sealed(source.state())))
    return str(path)


def config(folder: Path) -> str:
    return (folder / "src/hinge_config.h").read_text()


def test_a_gates_state_is_exported_from_a_file_and_from_a_devices_folder(tmp_path: Path) -> None:
    gate = Gate(offload_cost=0.2)
    for sample in range(500):
        decision = gate.decide(confidence=sample % 100 / 100)
        if decision.offload:
            gate.learn(decision, agreed=sample % 100 > 40)
    with Store(tmp_path / "state", gate) as store:
        store.sync()
    for command, write in (("c", export_c), ("table", export_table)):
        write(gate, tmp_path / "python")
        for name, source in (("file", saved(gate, tmp_path)), ("folder", str(tmp_path / "state"))):
            export(command, "--state", source, "--out", str(tmp_path / command / name))
            assert config(tmp_path / command / name) == config(tmp_path / "python")


def test_edges_that_fall_together_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export("c", "--bins", "0.5,0.500001,0.9", "--out", str(tmp_path / "near"))
    assert "1 edges fall together with others in 16 bits of log-odds: 3 bins are left" in capsys.readouterr().err
    export("c", "--bins", "0.5,0.9", "--out", str(tmp_path / "wide"))
    assert capsys.readouterr().err == ""


def test_refusals(tmp_path: Path) -> None:
    state = saved(Thompson(4, offload_cost=0.5), tmp_path)
    refused: list[tuple[type[Exception], str, list[str]]] = [
        (UsageError, "only probation, hi-lcb and hi-lcb-lite learn on a device", ["c", "--policy", "thompson"]),
        (UsageError, "--bins is in the state already", ["c", "--bins", "4", "--state", state]),
        (UsageError, "only probation, hi-lcb and hi-lcb-lite learn on a device", ["c", "--state", state]),
        (UsageError, "has no table of licences or expiries", ["table", "--state", state]),
        (HingeError, "bins must be an integer from 1 to 255", ["c", "--bins", "1000"]),
        (HingeError, "offload_cost must be above 0 and below 1", ["c", "--offload-cost", "1"]),
    ]
    for kind, message, arguments in refused:
        with pytest.raises(kind, match=message):
            export(*arguments, "--out", str(tmp_path / "c"))
    Path(state).write_text("[")
    with pytest.raises(InvalidState, match="holds no state"):
        export("table", "--state", state, "--out", str(tmp_path / "c"))
    assert not (tmp_path / "c").exists()


def test_a_policy_that_is_not_known_here_is_told_what_writes_its_table(tmp_path: Path) -> None:
    path = Path(saved(HILCB(4, offload_cost=0.5), tmp_path))
    path.write_text(json.dumps(sealed({**HILCB(4, offload_cost=0.5).state(), "policy": "mine"})))
    with pytest.raises(InvalidState, match=r"'mine'.*your own is written in Python, by hinge\.embedded"):
        export("table", "--state", str(path), "--out", str(tmp_path / "c"))


def test_what_may_have_been_edited_is_not_replaced_in_silence(tmp_path: Path) -> None:
    example = tmp_path / "examples/plain/main.c"
    for _ in range(2):  # the same again changes nothing
        export("c", "--out", str(tmp_path))
    original = example.read_text()
    example.write_text("mine")
    with pytest.raises(UsageError, match=r"main\.c is there already, with another content: --replace writes over"):
        export("c", "--bins", "8", "--out", str(tmp_path))
    assert "HINGE_BINS 16" in config(tmp_path), "nothing is written"
    export("c", "--bins", "8", "--replace", "--out", str(tmp_path))
    assert example.read_text() == original
    assert "HINGE_BINS 8" in config(tmp_path)
