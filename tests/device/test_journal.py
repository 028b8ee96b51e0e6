"""Folders of Hinge 0.1: what was learned is kept, whatever this version would have decided."""

import math
import shutil
import zlib
from pathlib import Path

import pytest

from hinge import InvalidState, Isotonic, Policy
from hinge.device.journal import read_old
from hinge.policies import isotonic

OLD = Path(__file__).parent / "folders" / "journal-1-isotonic"
NEWEST = ("snapshot-00000002.json", "journal-00000002.log")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in OLD.glob("*-0*"):
        shutil.copy(path, tmp_path)
    return tmp_path


def learned(folder: Path) -> tuple[int, list[str]]:
    state, notes = read_old(folder)
    assert state is not None
    return state["learned"], notes


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.1, math.inf])
def test_a_version_that_decides_otherwise_loses_nothing(
    factor: float, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the journal's replay lost: 2235 offloads became 384 with licences a tenth longer."""
    before, _ = read_old(folder)
    expiry = isotonic.expiry_of

    def other(evidence: float, support: float, alpha: float) -> int:
        return int(min(2.0**62, factor * expiry(evidence, support, alpha) if expiry(evidence, support, alpha) else 0))

    monkeypatch.setattr(isotonic, "expiry_of", other)
    after, notes = read_old(folder)
    assert before is not None
    assert after is not None
    for key in ("learned", "evidence", "id", "merged"):
        assert after[key] == before[key]
    assert not notes
    policy: Policy = Isotonic.restore(after)
    assert policy.learned > 50


def test_damage_costs_what_follows_it_and_is_said(folder: Path) -> None:
    snapshot, journal = (folder / name for name in NEWEST)
    whole, _ = learned(folder)
    data = journal.read_bytes()
    counts = set()
    for position in range(28, len(data), 97):
        journal.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        count, notes = learned(folder)
        assert "journal-00000002.log is damaged at record" in str(notes)
        counts.add(count)
    assert max(counts) <= whole
    assert len(counts) > 10
    journal.write_bytes(data[:-5])  # cut short by a crash
    assert learned(folder)[0] in (whole, whole - 1)
    journal.write_bytes(b"")
    count, notes = learned(folder)
    assert (count, "has a damaged header" in str(notes)) == (min(counts), True)
    snapshot.write_bytes(b"{}")
    count, notes = learned(folder)
    assert "snapshot-00000002.json does not match its CRC" in str(notes)
    assert 0 < count <= min(counts), "as the generation before it ended"
    (folder / "snapshot-00000001.json").write_bytes(b"{}")
    assert read_old(folder)[0] is None


def test_a_newer_journal_is_refused_and_left_alone(folder: Path) -> None:
    path = folder / NEWEST[1]
    data = bytearray(path.read_bytes())
    data[8] = 2  # its version
    data[24:28] = zlib.crc32(bytes(data[:24])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InvalidState, match=r"journal-00000002\.log: is of version 2"):
        read_old(folder)
    assert path.read_bytes() == data
