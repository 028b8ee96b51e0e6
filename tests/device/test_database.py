"""The files of a state: read while a device writes, through power losses and damage; older forms open, newer do not."""

import json
import random
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from hinge import Gate, InvalidState, Isotonic
from hinge.device.database import read
from hinge.device.store import SqliteStore
from tests.device.disks import image, lay, torn
from tests.device.streams import BINS, POLICIES, peer, play, text

FOLDERS = sorted(path.name for path in (Path(__file__).parent / "folders").iterdir())


def isotonic() -> Gate:
    return Gate(offload_cost=0.5)


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_reader_sees_whole_states_while_a_device_writes_and_syncs(tmp_path: Path) -> None:
    ended = Event()
    with SqliteStore(tmp_path, isotonic(), seconds=None) as store:

        def work() -> None:
            while not ended.is_set():
                store.learn(store.decide(0), agreed=False)
                store.sync()
                ended.wait(0.002)

        worker = Thread(target=work)
        worker.start()
        try:
            seen = [read(tmp_path) for _ in range(100)]
        finally:
            ended.set()
            worker.join(10)
        assert store.problem is None
    assert not [saved.notes for saved in seen if saved.notes]
    learned = [saved.policy.learned for saved in seen]
    assert learned == sorted(learned)
    assert learned[-1] > learned[0]


def test_reading_writes_nothing(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, isotonic(), seconds=None) as store:
        store.learn(store.decide(0), agreed=False)
        before = image(tmp_path)
        assert read(tmp_path).policy.learned == 1
        assert image(tmp_path) == before
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    saved = read(tmp_path)
    assert (saved.policy.learned, saved.used_by) == (1, None)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_without_a_state_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidState, match="nowhere: cannot be read: No such file"):
        read(tmp_path / "nowhere")
    with pytest.raises(InvalidState, match="holds no state that can be used"):
        read(tmp_path)
    assert not list(tmp_path.iterdir())


# -- power loss -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isotonic learned", "budget"])
def test_after_a_power_loss_at_any_write_no_more_is_lost_than_was_not_synced(name: str, tmp_path: Path) -> None:
    policy = POLICIES[name]()
    store = SqliteStore(tmp_path / "run", Gate(policy), seconds=None)
    assert store.sync()
    states, safe, losses = [text(policy.state())], 0, 0
    before = image(store.folder)
    for number, _ in enumerate(play(store, 40), 1):
        states.append(text(store.policy.state()))
        if number in (31, 57):
            store.merge(peer(store.policy, number))
            states.append(text(store.policy.state()))
        synced = number % 9 == 0 and store.sync()
        after = image(store.folder)
        for files in torn(before, after, step=509):
            losses += 1
            saved = read(lay(tmp_path / "laid", files))
            assert not saved.notes
            assert states.index(text(saved.policy.state())) >= safe, (number, losses)
        safe, before = (len(states) - 1, after) if synced else (safe, after)
    store.close()
    assert losses > 500


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], list[str], int]:
    """The files of a store that was closed, the states that it was in, and which of them is in the backup."""
    folder = tmp_path_factory.mktemp("kept")
    gate, states = Gate(Isotonic(BINS)), list[str]()
    with SqliteStore(folder, gate, seconds=None) as store:
        for number, _ in enumerate(play(store, 30)):
            states.append(text(store.policy.state()))
            if number == 12:
                store.merge(peer(store.policy, 1))
                states.append(text(store.policy.state()))
                backup, backed_up = (folder / "backup.db").read_bytes(), len(states) - 1
    return {**image(folder), "backup.db": backup}, states, backed_up


def damages(data: bytes) -> Iterator[bytes]:
    chance = random.Random(5)
    for position in chance.sample(range(len(data)), min(len(data), 1_500)):
        yield data[:position] + bytes([data[position] ^ (1 << position % 8)]) + data[position + 1 :]
    for length in range(0, len(data), 53):
        yield data[:length]
        yield data[:length] + bytes(len(data) - length)
    yield data + b"more"
    yield data[:-100] + data[:100]


@pytest.mark.slow
def test_damage_anywhere_in_the_database_gives_the_state_or_the_one_in_the_backup(
    kept: tuple[dict[str, bytes], list[str], int], tmp_path: Path
) -> None:
    files, states, backed_up = kept
    lost = 0
    for number, damaged in enumerate(damages(files["state.db"])):
        folder = lay(tmp_path / "laid", {**files, "state.db": damaged})
        saved = read(folder)
        at = states.index(text(saved.policy.state()))
        assert at >= backed_up
        assert at == len(states) - 1 or "state.db is damaged" in str(saved.notes)
        lost += at < len(states) - 1
        if number % 20 == 0:
            with SqliteStore(folder, Gate(Isotonic(BINS)), seconds=None) as store:
                assert text(store.policy.state()) == states[at]
                assert store.notes == saved.notes
                assert store.problem is None
                assert not store.notes or (folder / "state.db.damaged").read_bytes() == damaged
            assert not read(folder).notes
    assert lost > 100


@pytest.mark.slow
def test_damage_anywhere_in_the_log_costs_what_follows_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "run", Gate(Isotonic(BINS)), seconds=None)
    assert store.sync()
    states = [text(store.policy.state())]
    for _ in play(store, 12):
        states.append(text(store.policy.state()))
    files, lost = image(store.folder), 0
    for damaged in damages(files["state.db-wal"]):
        saved = read(lay(tmp_path / "laid", {**files, "state.db-wal": damaged}))
        lost += states.index(text(saved.policy.state())) < len(states) - 1
        assert not saved.notes
    store.close()
    assert lost > 100


def test_a_damaged_backup_matters_only_where_it_is_needed(
    kept: tuple[dict[str, bytes], list[str], int], tmp_path: Path
) -> None:
    files, states, _ = kept
    for damaged in (b"", b"{", files["backup.db"][:5_000], b"not a database" * 100):
        saved = read(lay(tmp_path / "laid", {**files, "backup.db": damaged}))
        assert (text(saved.policy.state()), saved.notes) == (states[-1], [])
        folder = lay(tmp_path / "laid", {"state.db": files["state.db"][:500], "backup.db": damaged})
        with pytest.raises(InvalidState, match=r"no state that can be used. state.db is .* backup.db is damaged:"):
            read(folder)


def test_if_nothing_is_whole_the_policy_starts_anew_and_the_database_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database" * 100)
    with pytest.raises(InvalidState, match=r"holds no state, and no gate was given\. state.db is damaged"):
        SqliteStore(tmp_path)
    with SqliteStore(tmp_path, isotonic(), seconds=None) as store:
        assert store.notes[-1] == "Nothing usable was found: the policy starts anew."
        assert (store.policy.learned, store.problem) == (0, None)
    assert (tmp_path / "state.db.damaged").read_bytes() == b"not a database" * 100


def test_a_missing_database_is_made_again_from_the_backup(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, isotonic(), seconds=None) as store:
        store.learn(store.decide(0), agreed=False)
    (tmp_path / "state.db").unlink()
    with SqliteStore(tmp_path, isotonic(), seconds=None) as store:
        assert (store.policy.learned, store.notes) == (1, ["state.db is missing."])
    assert not read(tmp_path).notes


# -- other versions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDERS)
def test_a_state_of_every_form_ever_written_opens_with_all_that_was_learned(name: str, tmp_path: Path) -> None:
    """`expected.json` is the policy's state when the folder was written, by the version that wrote it."""
    folder = tmp_path / "copy"
    shutil.copytree(Path(__file__).parent / "folders" / name, folder)
    expected = json.loads((folder / "expected.json").read_text())
    (folder / "expected.json").unlink()
    assert read(folder).policy.learned == expected["learned"]
    for _ in range(2):  # the second time in the present form
        with SqliteStore(folder, seconds=None) as store:
            state = json.loads(text(store.policy.state()))
            assert not store.notes
        for key in ("policy", "id", "parameters", "learned", "evidence", "merged", "pending"):
            assert state[key] == expected[key]
        assert (folder / "state.db").exists()
        assert not [*folder.glob("snapshot-*.json"), *folder.glob("journal-*.log")]


def edited(folder: Path, table: str, old: bytes, new: bytes, version: int = 1) -> bytes:
    """Change a row and its CRC, as another version might have written it; returns the database."""
    connection = sqlite3.connect(folder / "state.db")
    content = connection.execute(f"SELECT content FROM {table}").fetchone()[0]
    body = content.replace(old, new)
    assert body != content or version != 1
    values = (version, body, zlib.crc32(body, zlib.crc32(b"1 %d" % version)))
    connection.execute(f"UPDATE {table} SET format=?, content=?, crc=?", values)
    connection.commit()
    connection.close()
    return (folder / "state.db").read_bytes()


@pytest.mark.parametrize(
    ("table", "old", "new", "version", "says"),
    [
        ("progress", b"", b"", 2, "is of format 2; this Hinge reads up to 1"),
        ("generation", b'"hinge_gate":1', b'"hinge_gate":2', 1, "newer than this Hinge reads; it was left alone"),
        ("generation", b'"hinge_state":1', b'"hinge_state":9', 1, "newer than this Hinge reads; it was left alone"),
        ("generation", b'"sentinel"', b'"unheard-of"', 1, "no policy is called 'unheard-of'"),
    ],
)
def test_newer_forms_and_unknown_policies_are_refused_and_left_alone(
    table: str, old: bytes, new: bytes, version: int, says: str, tmp_path: Path
) -> None:
    with SqliteStore(tmp_path, isotonic(), seconds=None):
        pass
    before = edited(tmp_path, table, old, new, version)
    for opened in (SqliteStore, read):
        with pytest.raises(InvalidState, match=says):
            opened(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == before
