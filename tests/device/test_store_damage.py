"""Damaged and foreign files: never a crash, never a wrong state, and always said in words."""

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from hinge import InvalidState, Isotonic
from hinge.device.storage import journal, snapshot
from hinge.device.storage.store import Store
from tests.device.disks import QuickDisk
from tests.device.streams import BINS, play
from tests.device.test_store import crash, peer, reopened, text


@pytest.fixture
def kept(tmp_path: Path) -> tuple[dict[str, bytes], list[str]]:
    """The files of a store with two generations, and every state that it was ever in."""
    folder = tmp_path / "kept"
    store = Store(folder, Isotonic(BINS), seconds=None, disk=QuickDisk())
    states = [text(store.policy.state())]
    for number, _ in enumerate(islice(play(store, 100), 24), 1):
        states.append(text(store.policy.state()))
        if number == 12:
            store.merge(peer(store.policy, 1))
            states.append(text(store.policy.state()))
    crash(store)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}, states


def damages(data: bytes) -> Iterator[bytes]:
    for position in range(len(data)):
        yield data[:position] + bytes([data[position] ^ (1 << position % 8)]) + data[position + 1 :]
    for length in range(0, len(data), 11):
        yield data[:length]
        yield data[:length] + bytes(len(data) - length)
    yield data + b"more"
    yield data[:-100] + data[:100]


def lay(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("number", range(4))
def test_damage_anywhere_gives_an_earlier_state_and_is_said(
    number: int, kept: tuple[dict[str, bytes], list[str]], tmp_path: Path
) -> None:
    files, states = kept
    name = sorted(files)[number]
    newest = name.endswith(("2.json", "2.log"))
    for damaged in damages(files[name]):
        if damaged == files[name]:
            continue
        lay(tmp_path / "laid", {**files, name: damaged})
        store = reopened(tmp_path / "laid")
        crash(store)
        at = states.index(text(store.policy.state()))
        assert at >= 12 if newest else at == len(states) - 1
        if newest and not (name.endswith(".log") and len(damaged) % 48 == 28 and files[name].startswith(damaged)):
            assert name in str(store.found)  # a journal cut at the end of a record is a shorter journal
        aside = tmp_path / "laid" / f"{name}.damaged"
        assert aside.exists() == (name in store.found.damaged)
        assert not aside.exists() or aside.read_bytes() == damaged


def test_if_nothing_is_whole_the_policy_starts_anew_and_all_is_set_aside(
    kept: tuple[dict[str, bytes], list[str]], tmp_path: Path
) -> None:
    files = {name: data[:-9] + b"?" + data[-8:] for name, data in kept[0].items()}
    lay(tmp_path / "laid", files)
    with pytest.raises(InvalidState, match=r"laid: holds no state, .* snapshot-00000001.json does not match its CRC"):
        reopened(tmp_path / "laid")
    with Store(tmp_path / "laid", Isotonic(BINS), seconds=None) as store:
        assert str(store.found).startswith("Nothing usable was found: the policy starts anew.")
        assert store.policy.learned == 0
    for name, data in files.items():
        assert (tmp_path / "laid" / f"{name}.damaged").read_bytes() == data


def test_newer_versions_are_refused_and_left_alone(kept: tuple[dict[str, bytes], list[str]], tmp_path: Path) -> None:
    files, folder = kept[0], tmp_path / "laid"
    content = files["snapshot-00000002.json"][len('{"crc32":"12345678","content":') : -2]
    for old, new in ((b'"hinge_snapshot":1', b'"hinge_snapshot":2'), (b'"hinge_state":1', b'"hinge_state":2')):
        body = content.replace(old, new, 1)
        whole = b'{"crc32":"%08x","content":%s}\n' % (zlib.crc32(body), body)
        lay(folder, {**files, "snapshot-00000002.json": whole})
        with pytest.raises(InvalidState, match=r"snapshot-00000002.json: is of version"):
            reopened(folder)
        assert (folder / "snapshot-00000002.json").read_bytes() == whole
    begin = journal._HEADER.pack(journal.MAGIC, journal.VERSION + 1, 99, 0, 2)
    lay(folder, {**files, "journal-00000002.log": begin + journal._CRC.pack(zlib.crc32(begin))})
    with pytest.raises(InvalidState, match=r"journal-00000002.log: is of version 2"):
        reopened(folder)


def test_a_journal_that_does_not_follow_its_snapshot_is_used_up_to_there(tmp_path: Path) -> None:
    store = Store(tmp_path, Isotonic(BINS), seconds=None, disk=QuickDisk())
    list(islice(play(store, 50), 10))
    state = store.policy.state()
    store._append(journal.LEARNED, True, 1, 99_999, 1.0, 0.5)  # a decision that nobody made
    list(islice(play(store, 50), 5))
    crash(store)
    again = reopened(tmp_path)
    assert again.policy.state() == state
    assert "does not follow its snapshot at record 10" in str(again.found)
    assert (tmp_path / "journal-00000001.log.damaged").exists()


def test_another_policy_or_an_unknown_one_is_refused(tmp_path: Path) -> None:
    Store(tmp_path, Isotonic(BINS), seconds=None).close()
    with pytest.raises(InvalidState, match=r"snapshot-00000001.json: holds Isotonic\(bins=6.*and not Isotonic\(bins=7"):
        Store(tmp_path, Isotonic(BINS + 1), seconds=None)
    state = {**Isotonic(BINS).state(), "policy": "unheard-of"}
    (tmp_path / "snapshot-00000001.json").write_bytes(snapshot.snapshot_bytes(1, state))
    with pytest.raises(InvalidState, match=r"snapshot-00000001.json: no policy is called 'unheard-of'"):
        reopened(tmp_path)


def test_one_process_to_a_folder(tmp_path: Path) -> None:
    program = f"from hinge.device.storage.store import Store; Store({str(tmp_path)!r})"
    with Store(tmp_path, Isotonic(BINS), seconds=None):
        with pytest.raises(InvalidState, match=rf"lock: the folder is in use by process {os.getpid()}"):
            reopened(tmp_path)
        other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert other.returncode == 1
        assert f"lock: the folder is in use by process {os.getpid()}" in other.stderr
    reopened(tmp_path).close()


def test_rollback_goes_back_to_before_the_merge_and_stays_there(tmp_path: Path) -> None:
    store = Store(tmp_path, Isotonic(BINS), seconds=None, disk=QuickDisk())
    with pytest.raises(InvalidState, match="there is no previous generation"):
        store.rollback()
    run = play(store, 300)
    list(islice(run, 40))
    before = store.policy.state()
    store.merge(peer(store.policy, 1))
    list(islice(run, 20))
    found = store.rollback()
    assert found.records == 40
    assert store.policy.state() == before
    assert store.durable
    list(islice(play(store, 300, 9), 20))
    state = store.policy.state()
    crash(store)
    again = reopened(tmp_path)
    assert again.policy.state() == state
    assert {path.name for path in tmp_path.glob("*.rolled-back")} == {
        "journal-00000002.log.rolled-back",
        "snapshot-00000002.json.rolled-back",
    }
