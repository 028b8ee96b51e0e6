"""The commands on a folder of state: what they show, change and refuse."""

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hinge import HILCB, Gate, margin, restore
from hinge.cli.app import run
from hinge.device.store import Store
from hinge.gate import sealed
from hinge.policies.policy import State
from tests.device.disks import FailingDisk, image
from tests.support.commands import Captured, answer, refusal


def usual() -> Gate:
    return Gate(offload_cost=0.5, bins=16)


def learn(folder: Path, gate: Gate, offloads: int = 5, agreed: bool = True) -> None:
    """A device runs for a while, and ends."""
    with Store(folder, gate, seconds=None) as store:
        for _ in range(offloads):
            decision = store.decide(0.15)
            if decision.offload:
                store.learn(decision, agreed, 0.5)


@pytest.mark.parametrize("change", ["set", "merge"])
def test_a_change_that_does_not_reach_the_disk_is_no_success(
    change: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    learn(mine, usual())
    learn(other, usual())
    before = answer(capsys, "state", "show", str(mine))
    disk = FailingDisk("full")
    disk.failing = {"write", "open"}
    monkeypatch.setattr("hinge.cli.state.Store", partial(Store, connect=disk))
    more = {"set": ["offload_cost=0.3"], "merge": [str(other)]}[change]
    problem = refusal(capsys, "state", change, str(mine), *more)
    assert problem.startswith(f"hinge: {mine}: the disk failed: ")
    assert answer(capsys, "state", "show", str(mine)) == before


# -- show -------------------------------------------------------------------------------------------------------------


def test_show_tells_what_the_policy_knows(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path, usual())
    figures = answer(capsys, "state", "show", str(tmp_path))
    with Store(tmp_path, seconds=None) as store:
        policy = store.policy
    assert (figures["policy"], figures["parameters"]["bins"]) == ("probation", 16)
    assert (figures["time"], figures["learned"], figures["id"]) == (policy.time, policy.learned, policy.id)
    assert (figures["pending"], figures["merged"]) == (0, 0)
    assert (figures["confidence"], figures["binning"]["bins"]) == ({"name": "max_softmax"}, 16)
    bin = figures["bins"][2]
    assert (bin["offloads"], bin["agreement"]) == (policy.learned, 1.0)
    assert bin["samples_left"] == policy.explain(2).samples_left
    assert run(["state", "show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Probation(bins=16" in shown
    assert '"max_softmax"' in shown
    spans = [line.split()[:3] for line in shown.splitlines() if " to " in line]
    assert spans == [[f"{low / 16:g}", "to", f"{(low + 1) / 16:g}"] for low in range(16)]


def test_show_works_on_a_folder_in_use_and_leaves_it_alone(capsys: Captured, tmp_path: Path) -> None:
    with Store(tmp_path, usual(), seconds=None) as store:
        store.learn(store.decide(0.2), agreed=True, cost=0.5)
        before = image(tmp_path)
        figures = answer(capsys, "state", "show", str(tmp_path))
        assert (figures["learned"], figures["bins"][3]["offloads"]) == (1, 1)
        assert figures["in_use_by"] == str(os.getpid())
        assert image(tmp_path) == before


def test_show_says_what_is_damaged_and_what_to_do(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"{}")
    problem = refusal(capsys, "state", "show", str(tmp_path))
    assert "state.db is damaged: file is not a database; a device that is given the folder puts it aside" in problem


def test_bins_that_fit_themselves_are_shown_by_their_confidences(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path, Gate(offload_cost=0.5, budget=0.5))
    figures = answer(capsys, "state", "show", str(tmp_path))
    assert figures["binning"]["kind"] == "fitted"
    assert sum(bin["offloads"] for bin in figures["bins"] if bin["from"] <= 0.15 < bin["to"]) == figures["learned"]


def test_an_exported_file_is_shown_and_no_folder(capsys: Captured, tmp_path: Path) -> None:
    file = exported(tmp_path)
    folder, shown = (answer(capsys, "state", "show", str(path)) for path in (tmp_path / "other", file))
    assert shown == folder
    assert "'hinge state merge FOLDER FILE' takes an exported one" in refusal(
        capsys, "state", "merge", str(file), str(file)
    )
    file.write_text(file.read_text()[:-9])
    assert "holds no state" in refusal(capsys, "state", "show", str(file))


def exported(folder: Path) -> Path:
    """What another device knows, in a file."""
    learn(folder / "other", usual(), agreed=False)
    out = folder / "other.json"
    assert run(["state", "export", str(folder / "other"), "--out", str(out)]) == 0
    return out


def test_a_folder_in_use_is_left_alone(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.device.store.BUSY_S", 0.1)
    learn(tmp_path / "other", usual())
    with Store(tmp_path / "state", usual(), seconds=None):
        for more in (
            ["set", str(tmp_path / "state"), "offload_cost=0.3"],
            ["merge", *map(str, [tmp_path / "state", tmp_path / "other"])],
        ):
            assert "in use by process" in refusal(capsys, "state", *more)


@pytest.mark.parametrize("command", [["show"], ["export"], ["merge"]])
def test_folders_without_state_are_refused_and_not_made(command: list[str], capsys: Captured, tmp_path: Path) -> None:
    more = [str(tmp_path / "other.json")] if command == ["merge"] else []
    assert "No such file" in refusal(capsys, "state", *command, str(tmp_path / "nowhere"), *more)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    assert "empty" in refusal(capsys, "state", *command, str(tmp_path / "empty"), *more)
    assert not list((tmp_path / "empty").iterdir())


# -- export and merge -------------------------------------------------------------------------------------------------


def test_an_export_is_the_state_with_a_checksum(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path / "state", usual())
    out = tmp_path / "state.json"
    assert run(["state", "export", str(tmp_path / "state"), "--out", str(out)]) == 0
    state = json.loads(out.read_text())
    gate = restore(state)
    assert isinstance(gate, Gate)
    assert sealed(gate.state()) == state
    assert run(["state", "export", str(tmp_path / "state")]) == 0
    assert json.loads(capsys.readouterr().out) == state
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "state.json"]


@pytest.mark.medium
def test_no_flipped_bit_of_an_export_is_merged(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path / "state", usual())
    whole, flipped = exported(tmp_path).read_bytes(), tmp_path / "flipped.json"
    before = known(capsys, tmp_path / "state")
    for position in range(0, len(whole) - 1, 5):
        flipped.write_bytes(whole[:position] + bytes([whole[position] ^ (1 << position % 7)]) + whole[position + 1 :])
        with suppress(ValueError):
            if json.loads(flipped.read_bytes()) == json.loads(whole):
                continue  # of the white space
        assert str(flipped) in refusal(capsys, "state", "merge", str(tmp_path / "state"), str(flipped))
    assert known(capsys, tmp_path / "state") == before


def test_merging_adds_what_others_know_once(capsys: Captured, tmp_path: Path) -> None:
    kitchen, hall, mine = (tmp_path / name for name in ("kitchen", "hall", "mine"))
    for folder, offloads in ((kitchen, 4), (hall, 5), (mine, 6)):
        learn(folder, usual(), offloads=offloads)
    learned = {folder: known(capsys, folder)["bins"][2]["offloads"] for folder in (kitchen, hall, mine)}
    out = tmp_path / "kitchen.json"
    assert run(["state", "export", str(kitchen), "--out", str(out)]) == 0
    merged = answer(capsys, "state", "merge", str(mine), str(out), str(hall))
    assert len(merged["sources"]) == 2
    assert known(capsys, mine)["bins"][2]["offloads"] == sum(learned.values())
    assert answer(capsys, "state", "merge", str(mine), str(out), str(hall)) == merged
    assert known(capsys, mine)["bins"][2]["offloads"] == sum(learned.values()), "each counts once"


def damaged(gate: State) -> dict[str, bytes]:
    """Files that are no states of the policy in the folder, by what is to be said of them."""
    state = gate["policy"]
    evidence = {**state["table"], "offloads": [-1.0] * 16}
    many = {**state["table"], "offloads": [1e9] * 16}

    def within(**changes: Any) -> State:
        return sealed({**{key: value for key, value in gate.items() if key != "crc32"}, "policy": {**state, **changes}})

    wrong = {
        "made with bins": sealed(Gate(offload_cost=0.5, bins=8).state()),
        "made with policy hi-lcb": sealed(Gate(HILCB(bins=16, offload_cost=0.5)).state()),
        "in 'offloads'": within(table=evidence),
        "offloads": within(id="liar", table=many),
        "time": within(id="liar", time=10**400),
        "got 99": within(hinge_state=99),
        "parameters": within(parameters=None),
        "made with confidence {'name': 'margin'}": sealed(Gate(offload_cost=0.5, bins=16, confidence=margin).state()),
        "does not match its checksum": {**gate, "crc32": "00000000"},
        "has no checksum": {key: value for key, value in gate.items() if key != "crc32"},
    }
    files = {says: json.dumps(content).encode() for says, content in wrong.items()}
    return {"holds no state": b"{", "but '[1, 2]'": b"[1, 2]", **files}


def known(capsys: Captured, folder: Path) -> Any:
    figures = answer(capsys, "state", "show", str(folder))
    return {key: figures[key] for key in ("time", "learned", "merged", "bins")}


@pytest.mark.medium
def test_states_that_do_not_fit_change_nothing(capsys: Captured, tmp_path: Path) -> None:
    folder, other, fine = tmp_path / "state", tmp_path / "other.json", tmp_path / "fine.json"
    learn(folder, usual())
    learn(tmp_path / "elsewhere", usual())
    assert run(["state", "export", str(tmp_path / "elsewhere"), "--out", str(fine)]) == 0
    before = known(capsys, folder)
    for problem, content in damaged(json.loads(fine.read_text())).items():
        other.write_bytes(content)
        refused = refusal(capsys, "state", "merge", str(folder), str(fine), str(other))
        assert problem in refused
        assert str(other) in refused
        assert known(capsys, folder) == before
    assert "No such file" in refusal(capsys, "state", "merge", str(folder), str(tmp_path / "missing.json"))


# -- set --------------------------------------------------------------------------------------------------------------


def test_set_changes_the_price_and_keeps_what_was_learned(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path, usual(), offloads=40)
    before = answer(capsys, "state", "show", str(tmp_path))
    changed = answer(capsys, "state", "set", str(tmp_path), "offload_cost=0.05")
    assert changed["parameters"] == {**before["parameters"], "offload_cost": 0.05}
    after = answer(capsys, "state", "show", str(tmp_path))
    assert [after[key] for key in ("id", "time", "learned")] == [before[key] for key in ("id", "time", "learned")]
    assert after["bins"][2]["offloads"] == before["bins"][2]["offloads"]
    assert after["bins"][2]["samples_left"] < before["bins"][2]["samples_left"], "cheaper offloads end a licence sooner"
    with Store(tmp_path, Gate(offload_cost=0.05, bins=16), seconds=None) as store:
        assert store.policy.learned == before["learned"], "a device with the new price goes on from it"


def test_a_device_with_another_price_says_how_to_change_it(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path, usual())
    run_of = ["device", "--bins", "16", "--offload-cost", "0.3", "--state", str(tmp_path), "--limit", "1"]
    assert "made with probation's offload_cost 0.5, and this gate has 0.3" in refusal(capsys, *run_of)
    answer(capsys, "state", "set", str(tmp_path), "offload_cost=.3")
    assert run([*run_of, "--json"]) == 0


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("offload_cost=2", "Probation: offload_cost must be from 0 to 1, got 2"),
        ("offload_cost=null", "offload_cost of probation cannot be None"),
        ("bins=8", "bins of probation cannot be 8"),
        ("price=1", "price of probation cannot be 1"),
        ("offload_cost", "a setting must be NAME=VALUE, got 'offload_cost'"),
    ],
)
def test_set_refuses_what_cannot_be_changed(setting: str, problem: str, capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path, usual())
    before = answer(capsys, "state", "show", str(tmp_path))
    assert refusal(capsys, "state", "set", str(tmp_path), setting).endswith(problem)
    assert answer(capsys, "state", "show", str(tmp_path)) == before
