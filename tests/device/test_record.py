"""Recording: the trace is what the models say, and an interrupted recording goes on, unless something changed."""

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge import Classification, Device, Gate, OnnxModel, Trace, fashion, max_softmax, read_trace, record
from hinge.errors import (
    InvalidModel,
    InvalidTrace,
    RemoteError,
    RemoteFailed,
    RemoteRefused,
    RemoteUnreachable,
    UnknownName,
)
from hinge.remotes import Deadline, Reply

IMAGES, LABELS = (values[:100] for values in fashion.labelled_images())
LOCAL, REMOTE = OnnxModel(fashion.local_model()), OnnxModel(fashion.remote_model())


@cache
def expected() -> Trace:
    """The same by hand, sample by sample."""
    scores = [LOCAL(image) for image in IMAGES]
    return Trace(
        confidence=[max_softmax(row) for row in scores],
        local=[int(np.argmax(row)) for row in scores],
        remote=[int(np.argmax(REMOTE(image))) for image in IMAGES],
        label=LABELS,
    )


def assert_same(one: Trace, other: Trace) -> None:
    assert one.columns.keys() == other.columns.keys()
    for name, column in one.columns.items():
        if name == "confidence":
            np.testing.assert_allclose(column, other.confidence, atol=1e-6)
        else:
            np.testing.assert_array_equal(column, other.columns[name])


class Scripted:
    """A remote that answers as the large model does, but fails by a script: an error for each call, None for none."""

    def __init__(self, *script: BaseException | None) -> None:
        self.script, self.calls = list(script), list[int]()

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        self.calls.append(len(samples))
        error = self.script.pop(0) if self.script else None
        if error is not None:
            raise error
        return Reply(REMOTE.many(samples).argmax(axis=1).tolist())

    def close(self) -> None:
        pass


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    return slept


# -- what is recorded -------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("batch", [1, 32, 1000])
def test_the_trace_is_what_the_models_say(batch: int) -> None:
    assert_same(record(LOCAL, REMOTE, IMAGES, LABELS, batch=batch), expected())


def test_a_device_records_with_its_models_and_learns_nothing() -> None:
    with Device(LOCAL, Scripted(), Gate(offload_cost=0.5), task=Classification(fashion.CLASSES)) as device:
        trace = device.record(IMAGES, LABELS)
        assert device.status.samples == 0
    assert trace.label is not None
    by_hand, names = expected(), np.array(fashion.CLASSES)
    assert trace.label.tolist() == names[LABELS].tolist()
    assert trace.local.tolist() == names[by_hand.local].tolist()
    assert trace.remote.tolist() == names[by_hand.remote].tolist()


def test_a_device_names_its_models_in_the_trace() -> None:
    with Device(LOCAL, REMOTE, Gate(offload_cost=0.5)) as device:
        about = device.record(IMAGES[:3]).about
    assert (about["local"], about["remote"]) == (str(fashion.local_model()), str(fashion.remote_model()))


@pytest.mark.parametrize("name", ["log.npz", "log.csv", "log.parquet"])
def test_the_file_holds_the_trace_and_nothing_is_left_beside_it(name: str, tmp_path: Path) -> None:
    trace = record(LOCAL, REMOTE, IMAGES, LABELS, out=tmp_path / name)
    assert_same(read_trace(tmp_path / name), trace)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_remote_that_knows_its_cost() -> None:
    class Priced(Scripted):
        def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
            return super().ask(samples, deadline)._replace(cost=len(samples) / 100)

    trace = record(LOCAL, Priced(), IMAGES[:70], batch=40)
    assert trace.cost is not None
    assert trace.cost.tolist() == [0.4] * 40 + [0.3] * 30


def test_progress_is_told() -> None:
    told: list[int] = []
    record(LOCAL, REMOTE, IMAGES, batch=40, progress=told.append)
    assert told == [0, 40, 80, 100]


# -- what is refused --------------------------------------------------------------------------------------------------


def test_labels_of_two_kinds_end_it_in_the_first_batch() -> None:
    remote = Scripted()
    asked: list[int] = []

    def names(sample: Any) -> str:
        asked.append(1)
        return "cat"

    with pytest.raises(InvalidTrace, match="in samples 0 to 9: Trace: remote holds text where local holds integers"):
        record(LOCAL, names, IMAGES, batch=10)
    assert len(asked) == 10
    with pytest.raises(InvalidTrace, match="label in row 3 must be an integer as in row 0, got 'cat'"):
        record(LOCAL, remote, IMAGES, [1, 2, 3, "cat", *LABELS[4:]])
    with pytest.raises(InvalidTrace, match="sample 5: truth must be a possible answer, got an unknown label, 10"):
        record(LOCAL, remote, IMAGES, [*LABELS[:5], *[10] * 95], task=Classification(fashion.CLASSES))
    with pytest.raises(InvalidTrace, match="record: sample 3: truth must be the number of a class, got -1: leave"):
        record(LOCAL, remote, IMAGES, [*LABELS[:3], *[-1] * 97])
    assert remote.calls == [32]  # the others were found before the remote was asked


def test_files_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    remote = Scripted()
    with pytest.raises(UnknownName, match=r"no format of traces ends in '.txt'"):
        record(LOCAL, remote, IMAGES, out=tmp_path / "log.txt")
    (tmp_path / "log.npz").write_text("mine")
    with pytest.raises(FileExistsError, match="remove it, or name another"):
        record(LOCAL, remote, IMAGES, out=tmp_path / "log.npz")
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        record(LOCAL, remote, IMAGES, out=tmp_path / "nowhere" / "log.npz")
    assert remote.calls == []


def test_no_samples() -> None:
    with pytest.raises(InvalidTrace, match="at least one sample"):
        record(LOCAL, REMOTE, [])
    with pytest.raises(ValueError, match="record: truth must have one label per sample, got fewer labels than samples"):
        record(LOCAL, REMOTE, IMAGES, LABELS[:50])
    with pytest.raises(ValueError, match="got more labels than samples"):
        record(LOCAL, REMOTE, IMAGES[:50], LABELS)


def test_what_is_wrong_is_named_with_its_samples_and_its_model() -> None:
    def late(sample: int) -> Any:
        return 1 if sample < 4 else "dog"

    class Unsure:
        def answer(self, sample: Any) -> tuple[Any, float]:
            return None, 0.5

        def answer_many(self, samples: Sequence[Any]) -> list[tuple[Any, float]]:
            return [self.answer(sample) for sample in samples]

    async def coroutine(sample: Any) -> int:
        return 1

    remote = Scripted()
    with pytest.raises(InvalidTrace, match="record: in samples 2 to 3: "):
        record(lambda _: [0.0, 1.0], late, [1, 2, 3, 4, 5, 6], batch=2)
    with pytest.raises(InvalidModel, match=r"record: sample 3: the local model: .* got nan in class 1"):
        record(lambda sample: [0.0, sample], lambda _: 1, [1.0, 2.0, 3.0, np.nan], batch=2)
    with pytest.raises(InvalidModel, match=r"record: sample 0: Unsure.answer: no label, but None"):
        record(Unsure(), remote, IMAGES)
    assert remote.calls == []
    with pytest.raises(TypeError, match="record: remote must be a remote or a function from sample to label, got 5"):
        record(LOCAL, 5, IMAGES)
    with pytest.raises(TypeError, match="got a coroutine function, which AsyncDevice takes"):
        record(LOCAL, coroutine, IMAGES)


def test_what_a_model_knows_is_not_written_down() -> None:
    def ask(token: str, sample: Any) -> int:
        return 1

    trace = record(lambda _: [0.0, 1.0], partial(ask, "secret"), [1, 2])
    assert "secret" not in str(trace.about)
    assert trace.about["remote"] == "partial"


# -- what can hardly be so --------------------------------------------------------------------------------------------


def test_classes_in_another_order_are_said_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    trace = record(LOCAL, lambda image: (int(REMOTE(image).argmax()) + 1) % 10, IMAGES, LABELS)
    promised, agreed = trace.confidence.sum(), trace.agreed.sum()
    assert [message for message in caplog.messages if "probabilities" not in message] == [
        f"local agrees with remote {agreed} times in 100 samples, though its confidences promised {promised:.0f}: "
        "are the classes the same on both sides, in the same order (Classification([...]), --labels), and the "
        "samples as each expects?"
    ]


def test_labels_in_another_order_are_said_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    trace = record(LOCAL, REMOTE, IMAGES, LABELS + 1)
    assert trace.local_right is not None
    tens = int((LABELS == 9).sum())
    numbered = "as the classes are?"
    assert [message for message in caplog.messages if numbered in message] == [
        f"local is right {trace.local_right.sum()} times in 100 samples, though its confidences promised "
        f"{trace.confidence.sum():.0f}: are the true labels numbered, or named, {numbered}",
        *[f"the label 10, of {tens} samples, is one that neither model ever gives: are labels numbered, or named, "
          f"{numbered}"] * (tens >= 10),
    ]  # fmt: skip  # several to a line


def test_a_label_that_neither_model_gives_is_said_if_it_is_frequent(caplog: pytest.LogCaptureFixture) -> None:
    for often in (9, 10):
        record(LOCAL, REMOTE, IMAGES, [99] * often + LABELS[often:].tolist())
    [said] = [message for message in caplog.messages if "neither" in message]
    assert said.startswith("the label 99, of 10 samples, is one that neither model ever gives: ")


def test_what_fits_is_not_doubted(caplog: pytest.LogCaptureFixture) -> None:
    record(LOCAL, REMOTE, IMAGES, LABELS)
    assert not [message for message in caplog.messages if "?" in message]


# -- a remote that fails ----------------------------------------------------------------------------------------------


def test_a_remote_that_fails_is_asked_again(waits: list[float], caplog: pytest.LogCaptureFixture) -> None:
    remote = Scripted(None, RemoteError("HTTP 503"), ConnectionResetError("reset"), None)
    assert_same(record(LOCAL, remote, IMAGES, LABELS, batch=50), expected())
    assert (remote.calls, waits) == ([50] * 4, [1.0, 2.0])
    assert caplog.messages == [
        "Scripted: HTTP 503; asking again in 1 s",
        "Scripted: ConnectionResetError: reset; asking again in 2 s",
    ]


@pytest.mark.medium
@pytest.mark.parametrize(("error", "calls"), [(RemoteUnreachable("away"), 6), (RemoteRefused("bad sample"), 2)])
def test_what_was_recorded_before_a_failure_is_kept(
    error: RemoteFailed, calls: int, waits: list[float], tmp_path: Path
) -> None:
    remote = Scripted(None, *[error] * 5)
    with pytest.raises(type(error)) as raised:
        record(LOCAL, remote, IMAGES, LABELS, batch=50, out=tmp_path / "log.npz")
    part = tmp_path / "log.npz.part"
    assert raised.value.__notes__ == [f"50 samples are kept in {part}, and the same command goes on"]
    assert (len(remote.calls), len(waits)) == (calls, calls - 2)
    again = Scripted()
    assert_same(record(LOCAL, again, IMAGES, LABELS, batch=50, out=tmp_path / "log.npz"), expected())
    assert again.calls == [50, 50]  # to see that it is the same remote, and for the rest
    assert not part.exists()


# -- going on ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A recording that was interrupted after 60 samples."""
    with pytest.raises(KeyboardInterrupt):
        record(LOCAL, Scripted(None, None, KeyboardInterrupt()), IMAGES, LABELS, batch=30, out=tmp_path / "log.npz")
    return tmp_path / "log.npz"


@pytest.mark.medium
@pytest.mark.parametrize("batch", [1, 7, 60, 200])
def test_it_goes_on_with_any_batch(half: Path, batch: int) -> None:
    remote = Scripted()
    assert_same(record(LOCAL, remote, IMAGES, LABELS, batch=batch, out=half), expected())
    assert sum(remote.calls) == 40 + min(batch, 60)


@pytest.mark.medium
def test_it_goes_on_after_a_line_that_was_cut(half: Path) -> None:
    part = half.with_name("log.npz.part")
    part.write_bytes(part.read_bytes()[:-25])
    remote = Scripted()
    assert_same(record(LOCAL, remote, IMAGES, LABELS, batch=30, out=half), expected())
    assert sum(remote.calls) == 30 + 41


@pytest.mark.medium
def test_a_recording_that_is_interrupted_twice(half: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        record(LOCAL, Scripted(None, None, KeyboardInterrupt()), IMAGES, LABELS, batch=20, out=half)
    assert "80 samples are kept" in raised.value.__notes__[0]
    assert_same(record(LOCAL, Scripted(), IMAGES, LABELS, out=half), expected())


@pytest.mark.medium
def test_other_samples_are_noticed(half: Path) -> None:
    changed = IMAGES.copy()
    changed[59, 3, 3] ^= 1
    with pytest.raises(InvalidTrace, match=r"log.npz.part: sample 59 was another when it was recorded; remove the fi"):
        record(LOCAL, Scripted(), changed, LABELS, out=half)
    with pytest.raises(InvalidTrace, match="sample 50 was another"):
        record(LOCAL, Scripted(), IMAGES[:50], LABELS[:50], out=half)
    with pytest.raises(InvalidTrace, match="sample 0 was another"):
        record(LOCAL, Scripted(), IMAGES, out=half)
    assert_same(record(LOCAL, Scripted(), IMAGES, LABELS, out=half), expected())  # what was kept is still there


def cold(image: Any) -> Any:
    return 0.5 * LOCAL(image)


def contrary(image: Any) -> int:
    return 9 - int(REMOTE(image).argmax())


@pytest.mark.medium
def test_another_model_is_noticed_by_its_file_or_its_answers(half: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="the local model was another"):
        record(REMOTE, Scripted(), IMAGES, LABELS, out=half)
    with pytest.raises(InvalidTrace, match="the remote model was another"):
        record(LOCAL, REMOTE, IMAGES, LABELS, out=half)
    cases: list[tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = [
        (cold, contrary, "local"), (lambda image: LOCAL(image), contrary, "remote")
    ]  # fmt: skip  # several to a line
    for local, remote, role in cases:
        part = half.with_name("log.npz.part")
        head, rest = part.read_text().split("\n", 1)
        about = {"local": local.__qualname__, "remote": remote.__qualname__}
        assert json.loads(head)["remote"] in ("Scripted", "contrary")
        part.write_text(json.dumps(about) + "\n" + rest)
        with pytest.raises(InvalidTrace, match=f"the {role} model gave another answer to sample 0"):
            record(local, remote, IMAGES, LABELS, out=half)


@pytest.mark.medium
def test_a_file_of_the_same_name_with_other_weights_beside_it_is_another_model(tmp_path: Path) -> None:
    shutil.copy(fashion.remote_model(), tmp_path / "remote.onnx")
    weights = tmp_path / "remote.onnx.data"
    weights.write_bytes(b"one")
    (tmp_path / "remote.onnx.d").mkdir()
    out, remote = tmp_path / "remote.onnx.npz", OnnxModel(tmp_path / "remote.onnx")

    def ends() -> Any:
        yield from IMAGES[:40]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(LOCAL, remote, ends(), out=out, batch=20)
    weights.write_bytes(b"two")
    with pytest.raises(InvalidTrace, match="the remote model was another"):
        record(LOCAL, remote, IMAGES, out=out)
    weights.write_bytes(b"one")
    assert len(record(LOCAL, remote, IMAGES, out=out)) == 100


@pytest.mark.medium
def test_a_recording_that_was_killed_in_its_first_line_starts_again(tmp_path: Path) -> None:
    out, part = tmp_path / "log.npz", tmp_path / "log.npz.part"
    part.write_text('{"loc')

    def ends() -> Any:
        yield from IMAGES[:40]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(LOCAL, REMOTE, ends(), out=out, batch=20)
    assert part.read_text().count("\n") == 41
    assert len(record(LOCAL, REMOTE, IMAGES, out=out)) == 100


def test_samples_without_a_digest_are_recorded_unless_there_is_a_file(tmp_path: Path) -> None:
    samples = [lambda: 1, lambda: 2]
    assert len(record(lambda _: [0.0, 1.0], lambda _: 1, samples)) == 2
    with pytest.raises(TypeError, match="record: with out, samples must be arrays, or like JSON, got <function"):
        record(lambda _: [0.0, 1.0], lambda _: 1, samples, out=tmp_path / "log.npz")


def test_a_file_that_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "log.npz.part").write_text("not JSON\n")
    with pytest.raises(InvalidTrace, match="is no recording"):
        record(LOCAL, REMOTE, IMAGES, out=tmp_path / "log.npz")
    assert (tmp_path / "log.npz.part").read_text() == "not JSON\n"


def test_samples_that_are_no_arrays(tmp_path: Path) -> None:
    samples: list[Any] = [{"x": [1.0]}, "text", [[1], [2, 3]], None]

    def ends() -> Any:
        yield from samples[:3]
        raise KeyboardInterrupt

    def local(sample: Any) -> list[float]:
        return [0.0, 1.0]

    with pytest.raises(KeyboardInterrupt):
        record(local, lambda _: 1, ends(), out=tmp_path / "log.npz", batch=1)
    assert len(record(local, lambda _: 1, samples, out=tmp_path / "log.npz", batch=1)) == 4
