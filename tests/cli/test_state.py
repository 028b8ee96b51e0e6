"""The commands on a folder of state: what they show, change and refuse."""

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hinge import HILCB, Gate, HILCBLite, margin, restore
from hinge.cli.app import run
from hinge.device.store import Store
from hinge.gate import sealed
from hinge.policies import HedgeHI
from hinge.policies.policy import State
from tests.device.disks import FailingDisk, image
from tests.support.commands import Captured, answer, refusal

CONFIDENCE = 0.9


def fresh(offload_cost: float = 0.5) -> Gate:
    return Gate(offload_cost=offload_cost)


def learn(folder: Path, gate: Gate, offloads: int = 5, agreed: bool = True) -> None:
    """A device runs for a while, and ends."""
    with Store(folder, gate, seconds=None) as store:
        for _ in range(offloads):
            decision = store.decide(CONFIDENCE)
            if decision.offload:
                store.learn(decision, agreed=agreed, cost=0.5)


def offloads_in(figures: Any) -> float:
    return float(sum(bin["offloads"] for bin in figures["bins"]))


@pytest.mark.parametrize("change", ["set", "merge"])
def test_a_change_that_does_not_reach_the_disk_is_no_success(
    change: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    learn(mine, fresh())
    learn(other, fresh())
    before = answer(capsys, "state", "show", str(mine))
    disk = FailingDisk("full")
    disk.failing = {"write", "open"}
    monkeypatch.setattr("hinge.cli.state.Store", partial(Store, connect=disk))
    more = {"set": ["offload_cost=0.3"], "merge": [str(other)]}[change]
    problem = refusal(capsys, "state", change, str(mine), *more)
    assert problem.startswith(f"hinge: {mine}: the disk failed: ")
    assert answer(capsys, "state", "show", str(mine)) == before


# -- show -------------------------------------------------------------------------------------------------------------


def test_show_tells_what_the_policy_knows_by_ranges_of_confidence(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path, fresh())
    figures = answer(capsys, "state", "show", str(tmp_path))
    with Store(tmp_path, seconds=None) as store:
        policy, why = store.policy, store.explain(CONFIDENCE)
    assert (figures["policy"], figures["parameters"]) == ("probation", {"bins": 16, "offload_cost": 0.5})
    assert (figures["time"], figures["learned"], figures["id"]) == (policy.time, policy.learned, policy.id)
    assert (figures["pending"], figures["merged"], figures["budget"]) == (0, 0, None)
    assert (figures["confidence"], figures["binning"]["kind"]) == ({"name": "max_softmax"}, "fitted")
    (bin,) = (bin for bin in figures["bins"] if bin["from"] <= CONFIDENCE < bin["to"])
    assert (bin["offloads"], bin["agreement"]) == (policy.learned, 1.0)
    assert (bin["samples_left"], bin["reason"]) == (why.samples_left, str(why))
    assert run(["state", "show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Probation(bins=16, offload_cost=0.5)" in shown
    assert '"max_softmax"' in shown
    spans = [line.split()[:3] for line in shown.splitlines() if " to " in line]
    assert spans == [[f"{bin['from']:.9g}", "to", f"{bin['to']:.9g}"] for bin in figures["bins"]]


def test_show_works_on_a_folder_in_use_and_leaves_it_alone(capsys: Captured, tmp_path: Path) -> None:
    with Store(tmp_path, fresh(), seconds=None) as store:
        store.learn(store.decide(CONFIDENCE), agreed=True, cost=0.5)
        before = image(tmp_path)
        figures = answer(capsys, "state", "show", str(tmp_path))
        assert (figures["learned"], offloads_in(figures)) == (1, 1)
        assert figures["in_use_by"] == str(os.getpid())
        assert image(tmp_path) == before


def test_show_says_what_is_damaged_and_what_to_do(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"{}")
    problem = refusal(capsys, "state", "show", str(tmp_path))
    assert "state.db is damaged: file is not a database; a device that is given the folder puts it aside" in problem


def test_a_budget_is_shown_too(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path, Gate(offload_cost=0.5, budget=0.02))
    assert answer(capsys, "state", "show", str(tmp_path))["budget"] == 0.02
    assert run(["state", "show", str(tmp_path)]) == 0
    assert ", budget 0.02\n" in capsys.readouterr().out


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
    learn(folder / "other", fresh(), agreed=False)
    out = folder / "other.json"
    assert run(["state", "export", str(folder / "other"), "--out", str(out)]) == 0
    return out


def test_a_folder_in_use_is_left_alone(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.device.store.BUSY_S", 0.1)
    learn(tmp_path / "other", fresh())
    with Store(tmp_path / "state", fresh(), seconds=None):
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
    learn(tmp_path / "state", fresh())
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
    learn(tmp_path / "state", fresh())
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
        learn(folder, fresh(), offloads=offloads)
    learned = [offloads_in(known(capsys, folder)) for folder in (kitchen, hall, mine)]
    out = tmp_path / "kitchen.json"
    assert run(["state", "export", str(kitchen), "--out", str(out)]) == 0
    merged = answer(capsys, "state", "merge", str(mine), str(out), str(hall))
    assert len(merged["sources"]) == 2
    assert offloads_in(known(capsys, mine)) == sum(learned)
    assert answer(capsys, "state", "merge", str(mine), str(out), str(hall)) == merged
    assert offloads_in(known(capsys, mine)) == sum(learned), "each counts once"


def damaged(gate: State) -> dict[str, bytes]:
    """Files that are no states of the gate in the folder, by what is to be said of them."""
    policy, bins = gate["policy"], gate["bins"]
    ((cell, samples, _, agreements),) = bins["used"]
    wrong = {
        "made with bins {'kind': 'uniform', 'bins': 8}": Gate(offload_cost=0.5, bins=8).state(),
        "made with policy hi-lcb": Gate("hi-lcb", offload_cost=0.5).state(),
        "made with probation's offload_cost 0.3": fresh(0.3).state(),
        "made with confidence {'name': 'margin'}": Gate(offload_cost=0.5, confidence=margin).state(),
        "impossible counts of cells": {**gate, "bins": {**bins, "used": [[cell, samples, -1.0, agreements]]}},
        "time must be a count": {**gate, "policy": {**policy, "time": 10**400}},
        "version 1, got 99": {**gate, "hinge_gate": 99},
        "parameters must be a dict": {**gate, "policy": {**policy, "parameters": None}},
    }
    files = {says: json.dumps(sealed(content(state))).encode() for says, state in wrong.items()}
    files["does not match its checksum"] = json.dumps({**gate, "crc32": "00000000"}).encode()
    files["has no checksum"] = json.dumps(content(gate)).encode()
    files["is that of a policy alone"] = json.dumps(policy).encode()
    return {"holds no state": b"{", "but '[1, 2]'": b"[1, 2]", **files}


def content(state: State) -> State:
    return {key: value for key, value in state.items() if key != "crc32"}


def known(capsys: Captured, folder: Path) -> Any:
    figures = answer(capsys, "state", "show", str(folder))
    return {key: figures[key] for key in ("time", "learned", "merged", "bins")}


@pytest.mark.medium
def test_states_that_do_not_fit_change_nothing(capsys: Captured, tmp_path: Path) -> None:
    folder, other, fine = tmp_path / "state", tmp_path / "other.json", tmp_path / "fine.json"
    learn(folder, fresh())
    learn(tmp_path / "elsewhere", fresh())
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


@pytest.mark.parametrize(
    ("before", "settings", "after"),
    [
        (fresh(), {"offload_cost": 0.05}, fresh(0.05)),
        (Gate("hi-lcb", offload_cost=0.5), {"offload_cost": 0.05, "alpha": 0.6}, Gate(HILCB(16, 0.6, 0.05), bins=16)),
    ],
)
def test_set_changes_the_price_and_keeps_what_was_learned(
    before: Gate, settings: dict[str, float], after: Gate, capsys: Captured, tmp_path: Path
) -> None:
    learn(tmp_path, before, offloads=40)
    had = known(capsys, tmp_path)
    changed = answer(capsys, "state", "set", str(tmp_path), *(f"{key}={value}" for key, value in settings.items()))
    assert changed["parameters"] == after.policy.parameters
    has = known(capsys, tmp_path)
    assert [has[key] for key in ("time", "learned", "merged")] == [had[key] for key in ("time", "learned", "merged")]
    assert offloads_in(has) == offloads_in(had)
    accepted = [sum(bin["offload_probability"] == 0.0 for bin in figures["bins"]) for figures in (had, has)]
    assert accepted == [1, 0], "where offloads are cheap, so little evidence does not do"


def test_a_device_is_given_the_same_price_as_its_state(capsys: Captured, tmp_path: Path) -> None:
    learn(tmp_path, fresh())
    run_of = ["device", "--offload-cost", "0.3", "--state", str(tmp_path), "--limit", "1"]
    assert "made with probation's offload_cost 0.5, and this gate has 0.3" in refusal(capsys, *run_of)
    answer(capsys, "state", "set", str(tmp_path), "offload_cost=.3")
    assert run([*run_of, "--json"]) == 0


@pytest.mark.parametrize(
    ("gate", "setting", "problem"),
    [
        (fresh(), "offload_cost=2", "Probation: offload_cost must be from 0 to 1, got 2"),
        (fresh(), "offload_cost=null", "offload_cost cannot be changed so: of probation here, offload_cost can, to"),
        (fresh(), "bins=8", "bins cannot be changed so: of probation here, offload_cost can, to another number"),
        (fresh(), "price=1", "price cannot be changed so: of probation here, offload_cost can, to another number"),
        (fresh(), "offload_cost", "a setting must be NAME=VALUE, got 'offload_cost'"),
        (Gate(), "offload_cost=0.3", "offload_cost cannot be changed so: of probation here, nothing can"),
        (Gate(HILCBLite(16)), "offload_cost=0.3", "offload_cost cannot be changed so: of hi-lcb-lite here, alpha can"),
        (
            Gate(HedgeHI(100, offload_cost=0.5)),
            "offload_cost=0.3",
            "offload_cost cannot be changed so: of hedge-hi here, nothing can",
        ),
    ],
)
def test_set_refuses_what_cannot_be_changed(
    gate: Gate, setting: str, problem: str, capsys: Captured, tmp_path: Path
) -> None:
    learn(tmp_path, gate)
    before = answer(capsys, "state", "show", str(tmp_path))
    assert problem in refusal(capsys, "state", "set", str(tmp_path), setting)
    assert answer(capsys, "state", "show", str(tmp_path)) == before
