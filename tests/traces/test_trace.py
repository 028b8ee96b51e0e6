"""What a trace is, what it refuses, and how one is made from logits."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.bins import FittedBins, UniformBins
from hinge.confidence import margin, max_softmax
from hinge.errors import HingeError, InvalidTrace
from hinge.traces import Trace

ALIKE = "number the classes in all, or name them in all"


def small(**columns: Any) -> Trace:
    return Trace(**{"confidence": [0.9, 0.4, 0.7], "local": [3, 1, 2], "remote": [3, 2, 2], **columns})


def test_columns_keep_their_values_as_float64_and_int64() -> None:
    trace = small(label=np.array([3, 2, 0], np.uint8), cost=np.array([0.5, 0.25, 0], np.float32))
    assert {name: values.dtype.name for name, values in trace.columns.items()} == {
        "confidence": "float64",
        "local": "int64",
        "remote": "int64",
        "label": "int64",
        "cost": "float64",
    }
    assert trace.label is not None
    assert trace.label.tolist() == [3, 2, 0]
    assert len(trace) == 3


@pytest.mark.parametrize(
    "texts",
    [
        ["cat", "dog", "fox"],
        np.array(["cat", "dog", "fox"]),
        np.array(["cat", "dog", "fox"], dtype=">U9"),
        np.array(["cat", "dog", "fox"], dtype=object),
    ],
)
def test_text_is_kept_in_the_least_width(texts: Any) -> None:
    trace = small(local=texts, remote=["fox", "dog", "cat"])
    assert trace.local.dtype == np.dtype("U3")
    assert trace.agreed.tolist() == [False, True, False]


def test_sums_up() -> None:
    trace = small(label=[3, 2, 0], cost=[0.5, 0.25, 0])
    assert trace.agreed.tolist() == [True, False, True]
    assert trace.agreement == pytest.approx(2 / 3)
    assert trace.local_right is not None
    assert trace.remote_right is not None
    assert trace.local_right.tolist() == [True, False, False]
    assert trace.remote_right.tolist() == [True, True, False]
    assert trace.local_accuracy == pytest.approx(1 / 3)
    assert trace.remote_accuracy == pytest.approx(2 / 3)
    assert trace.mean_offload_cost == 0.25


def test_what_was_not_recorded_is_none() -> None:
    trace = small()
    assert (trace.label, trace.cost, trace.local_right, trace.remote_right) == (None, None, None, None)
    assert (trace.local_accuracy, trace.remote_accuracy, trace.mean_offload_cost) == (None, None, None)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 40))
def test_bins_are_those_of_the_confidences(confidences: list[float], count: int) -> None:
    trace = Trace(confidences, [0] * len(confidences), [0] * len(confidences))
    for bins in (UniformBins(count), FittedBins()):
        assert trace.bins_by(bins).dtype == np.int64
        assert trace.bins_by(bins).tolist() == [bins.bin(confidence) for confidence in confidences]


def test_cannot_be_changed() -> None:
    given_array = np.array([0.9, 0.4, 0.7])
    trace = small(confidence=given_array, about={"date": "today"})
    given_array[0] = 0.1
    assert trace.confidence[0] == 0.9
    for values in trace.columns.values():
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0
    with pytest.raises(FrozenInstanceError):
        trace.name = "other"  # type: ignore[misc]  # wrong on purpose
    with pytest.raises(TypeError):
        trace.about["date"] = "tomorrow"  # type: ignore[index]  # wrong on purpose


def test_pickles_and_copies_stay_equal_and_read_only() -> None:
    trace = small(label=[0, 1, 2], name="log", about={"date": "today"})
    for other in (pickle.loads(pickle.dumps(trace)), copy.deepcopy(trace)):
        assert other == trace
        assert not other.confidence.flags.writeable


def test_equal_means_the_same_columns_name_and_provenance() -> None:
    trace = small(name="log", about={"date": "today"})
    assert trace == small(name="log", about={"date": "today"})
    assert trace != small(name="other", about=trace.about)
    assert trace != small(name="log")
    assert trace != small(name="log", about=trace.about, cost=np.zeros(3))
    assert trace != small(name="log", about=trace.about, confidence=np.array([0.9, 0.4, 0.8]))
    assert trace != "log"


def test_repr_tells_what_it_is() -> None:
    assert repr(small(name="log")) == "<Trace 'log': 3 samples, confidence, local, remote, agreement 0.667>"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"confidence": [0.9, 1.5, 2]}, "Trace: confidence in row 1 must be from 0 to 1, got 1.5"),
        ({"confidence": [0.9, -1e-9, 2]}, "Trace: confidence in row 1 must be from 0 to 1, got -1e-09"),
        ({"confidence": [0.9, 0.1, np.nan]}, "Trace: confidence in row 2 must be from 0 to 1, got nan"),
        ({"confidence": [0.9, 0.1, np.inf]}, "Trace: confidence in row 2 must be from 0 to 1, got inf"),
        ({"confidence": [0.9, "0.5", 1]}, "Trace: confidence in row 1 must be a number, got '0.5'"),
        ({"confidence": [0.9, None, 1]}, "Trace: confidence in row 1 must be a number, got None"),
        ({"confidence": [True, False, True]}, "Trace: confidence in row 0 must be a number, got True"),
        ({"confidence": 0.5}, "Trace: confidence must have one value per row, got shape ()"),
        ({"confidence": [[0.5, 0.5]]}, "Trace: confidence must have one value per row, got shape (1, 2)"),
        ({"confidence": [[0.5], [0.5, 1]]}, "Trace: confidence must have one value per row, got [[0.5], [0.5, 1]]"),
        ({"confidence": [0.5]}, "Trace: local has 3 rows where confidence has 1"),
        ({"cost": [0, 0, 2]}, "Trace: cost in row 2 must be from 0 to 1, got 2.0"),
        ({"cost": [0, 0]}, "Trace: cost has 2 rows where confidence has 3"),
        ({"remote": [1]}, "Trace: remote has 1 rows where confidence has 3"),
        ({"label": [1, 2, 3, 4]}, "Trace: label has 4 rows where confidence has 3"),
        ({"local": [1, "cat", 2]}, "Trace: local in row 1 must be an integer as in row 0, got 'cat'"),
        ({"local": ["cat", 1, 2]}, "Trace: local in row 1 must be text as in row 0, got 1"),
        ({"local": ["cat", None, "dog"]}, "Trace: local in row 1 is missing"),
        ({"local": [None, 1, 2]}, "Trace: local in row 0 is missing"),
        ({"local": np.array([1.0, 2.5, 3.0])}, "Trace: local in row 1 must be an integer or text, got 2.5"),
        ({"local": np.array([1.0, 2.0, np.nan])}, "Trace: local in row 2 is missing"),
        ({"local": [1.0, 2.0, 3.5]}, "Trace: local in row 2 must be an integer or text, got 3.5"),
        ({"local": [True, False, True]}, "Trace: local in row 0 must be an integer or text, got True"),
        ({"local": np.array([True] * 3)}, "Trace: local in row 0 must be an integer or text, got True"),
        ({"local": np.array([b"cat"] * 3)}, "Trace: local in row 0 must be an integer or text, got b'cat'"),
        ({"local": [1, 2, 2**63]}, "Trace: local in row 2 must be an integer or text, got 9.22..."),
        ({"local": [1, -(2**70), 3]}, f"Trace: local in row 1 must fit into 64 bits, got {-(2**70)}"),
        ({"local": np.array([1, 2, 2**63], np.uint64)}, f"Trace: local in row 2 must fit into 64 bits, got {2**63}"),
        ({"local": ["cat", "", "dog"]}, "Trace: local in row 1 is missing"),
        ({"local": ["a", "b", "c" * 257]}, "Trace: local in row 2 is longer than 256 characters, got 'ccccccccc..."),
        ({"local": ["a", "b\0", "c"]}, r"Trace: local in row 1 is not Unicode text, got 'b\x00'"),
        ({"local": ["a", "\ud800", "c"]}, r"Trace: local in row 1 is not Unicode text, got '\ud800'"),
        ({"remote": ["a", "b", "c"]}, f"Trace: remote holds text where local holds integers: {ALIKE}"),
        ({"label": ["a", "b", "c"]}, f"Trace: label holds text where local holds integers: {ALIKE}"),
        ({"confidence": [], "local": [], "remote": []}, "Trace: there must be at least one sample"),
        (
            {"confidence": [], "local": np.array([], str), "remote": np.array([], object)},
            "Trace: there must be at least one sample",
        ),
    ],
)
def test_refuses(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        small(**columns)
    assert str(caught.value).startswith(message.removesuffix("..."))
    assert "..." in message or str(caught.value) == message
    assert isinstance(caught.value, HingeError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": 3}, "Trace: name must be text, got 3"),
        ({"about": "today"}, "Trace: about must be a mapping of text to text, got 'today'"),
        ({"about": {"year": 2026}}, "Trace: about must be a mapping of text to text, got 'year': 2026"),
    ],
)
def test_name_and_provenance_are_text(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        small(**arguments)
    assert str(caught.value) == message


LOCAL = np.array([[2.0, 1.0, 0.0], [0.0, 0.1, 0.0], [3.0, 0.0, 3.5]])
REMOTE = np.array([[5.0, 1.0, 0.0], [0.0, 0.1, 8.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize("measure", [max_softmax, margin])
def test_from_scores(measure: Any) -> None:
    trace = Trace.from_scores(LOCAL, REMOTE, [0, 1, 2], measure=measure, cost=[0.1, 0.2, 0.3], name="saved")
    assert trace.confidence.tolist() == measure(LOCAL).tolist()
    assert trace.local.tolist() == [0, 1, 2]
    assert trace.remote.tolist() == [0, 2, 2]
    assert trace.local_accuracy == 1
    assert trace.mean_offload_cost == pytest.approx(0.2)
    assert trace.name == "saved"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"remote_logits": REMOTE[:2]}, "Trace: remote has 2 rows where confidence has 3"),
        ({"remote_logits": [[0.0, 1.0]] * 3}, "Trace: remote has scores of 2 classes, and local of 3"),
        (
            {"remote_logits": [[0.0, 1.0, np.nan], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]},
            "Trace: remote_logits in row 0 must be 3 finite numbers, got [0.0, 1.0, nan]",
        ),
        ({"local_logits": [0.0, 1.0]}, "Trace: local_logits in row 0 must be 2 finite numbers, got 0.0"),
        ({"local_logits": [[0.0], [1.0]]}, "Trace: local_logits in row 0 must be 2 finite numbers, got [0.0]"),
        ({"local_logits": [["a", "b"]]}, "Trace: local_logits in row 0 must be 2 finite numbers, got ['a', 'b']"),
        ({"local_logits": [[0.0, 1.0], [1.0]]}, "Trace: local_logits in row 1 must be 2 finite numbers, got [1.0]"),
        ({"local_logits": [[0.0, 1.0], None]}, "Trace: local_logits in row 1 must be 2 finite numbers, got None"),
        ({"labels": [0, 1, 3]}, "Trace: label in row 2 must be a class from 0 to 2, got 3"),
        ({"labels": [0, -1, 3]}, "Trace: label in row 1 must be a class from 0 to 2, got -1"),
        ({"labels": ["a", "b", "c"]}, "Trace: label in row 0 must be a class from 0 to 2, got 'a'"),
        ({"labels": [0, 1]}, "Trace: label has 2 rows where confidence has 3"),
    ],
)
def test_from_scores_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        Trace.from_scores(**{"local_logits": LOCAL, "remote_logits": REMOTE, **changes})
    assert str(caught.value) == message


def test_a_measure_is_callable() -> None:
    with pytest.raises(TypeError, match="measure must be a confidence measure, got 'margin'"):
        Trace.from_scores(LOCAL, REMOTE, measure="margin")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("local", [[1.0, 2.0], np.array([1.0, 2.0])])
def test_floats_that_are_whole_numbers_are_these(local: Any) -> None:
    trace = Trace([0.5, 0.6], local, np.array([1, 3]), label=np.array([1.0, -3.0], np.float32))
    assert trace.label is not None
    assert [column.tolist() for column in (trace.local, trace.label)] == [[1, 2], [1, -3]]
    assert trace.agreed.tolist() == [True, False]


# -- labels that are missing in rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [["a", None, "b", ""], [1, None, 2, float("nan")]], ids=["text", "integers"])
def test_accuracies_are_those_of_the_rows_that_have_a_label(label: list[Any]) -> None:
    local, remote = ([label[0]] * 4, [label[0], label[0], label[2], label[2]])
    trace = Trace([0.9, 0.8, 0.7, 0.6], local, remote, label=label)
    assert trace.label is not None
    assert trace.label.tolist() == [label[0], None, label[2], None]
    assert (trace.labelled, trace.labelled_rows.tolist()) == (2, [True, False, True, False])
    assert (trace.local_accuracy, trace.remote_accuracy) == (0.5, 1.0)
    assert set(trace.columns) == {"confidence", "local", "remote", "label"}
    assert trace == pickle.loads(pickle.dumps(trace))
    assert trace != Trace([0.9, 0.8, 0.7, 0.6], local, remote, label=[label[0], None, None, None])


def test_labels_that_are_all_missing_are_none() -> None:
    trace = Trace([0.9, 0.8], [1, 2], [1, 1], label=[None, None])
    assert trace == Trace([0.9, 0.8], [1, 2], [1, 1])
    assert (trace.labelled, trace.local_accuracy) == (0, None)
    rights = Trace([0.9, 0.8], agreed=[0.5, 0.5], local_right=[None, 0.5], remote_right=[0.25, None])
    assert (rights.labelled, rights.local_right, rights.remote_right) == (0, None, None)  # never of the same row


def test_how_far_answers_are_right_may_be_missing() -> None:
    trace = Trace([0.9, 0.8, 0.7], agreed=[0.5] * 3, local_right=[0.5, None, 0.25], remote_right=[1.0, 0.5, 0.75])
    assert (trace.labelled, trace.local_accuracy, trace.remote_accuracy) == (2, 0.375, 0.875)
    assert trace == pickle.loads(pickle.dumps(trace))


def test_what_a_label_cannot_be_is_named_with_its_row_where_others_are_missing() -> None:
    with pytest.raises(InvalidTrace, match="label in row 2 must be an integer as in row 0, got 'cat'"):
        Trace([0.5] * 3, [1, 2, 3], [1, 2, 3], label=[1, None, "cat"])
    with pytest.raises(InvalidTrace, match="label holds text where local holds integers"):
        Trace([0.5] * 3, [1, 2, 3], [1, 2, 3], label=["one", None, "three"])


def test_scores_may_have_labels_for_some_rows() -> None:
    trace = Trace.from_scores([[2.0, 1.0], [0.0, 1.0]], [[3.0, 0.0], [3.0, 0.0]], np.array([1.0, np.nan]))
    assert (trace.labelled, trace.local_accuracy) == (1, 0.0)
    with pytest.raises(InvalidTrace, match="label in row 1 must be a class from 0 to 1, got 2"):
        Trace.from_scores([[2.0, 1.0], [0.0, 1.0]], [[3.0, 0.0], [3.0, 0.0]], [None, 2])
