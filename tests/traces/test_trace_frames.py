"""Traces from data frames: pandas, polars, and anything that has columns."""

from importlib import import_module
from typing import Any

import pytest

from hinge.confidence import margin
from hinge.errors import InvalidTrace
from hinge.traces import Trace

pandas: Any = import_module("pandas")  # its types come in a package of their own, which we do not need
polars: Any = import_module("polars")
arrow: Any = import_module("pyarrow")

COLUMNS: dict[str, Any] = {
    "confidence": [0.9, 0.4, 0.7],
    "local": ["cat", "dog", "cat"],
    "remote": ["cat", "cat", "cat"],
    "label": ["cat", "cat", "dog"],
    "cost": [0.5, 0.25, 0.0],
}
LOGITS: dict[str, list[Any]] = {
    "local_logits": [[2.0, 1.0, 0.0], [0.0, 0.1, 0.0]],
    "remote_logits": [[5.0, 1.0, 0.0], [0.0, 0.1, 8.0]],
    "label": [0, 1],
}


every_frame = pytest.mark.parametrize(
    "frame", [dict, pandas.DataFrame, polars.DataFrame, arrow.table], ids=["dict", "pandas", "polars", "arrow"]
)


@every_frame
def test_takes_the_columns(frame: Any) -> None:
    assert Trace.from_frame(frame(COLUMNS), name="log") == Trace(**COLUMNS, name="log")


@every_frame
def test_takes_integers(frame: Any) -> None:
    columns = {"remote": [1, 2], "local": [1, 3], "confidence": [0, 1]}
    assert Trace.from_frame(frame(columns)) == Trace([0.0, 1.0], [1, 3], [1, 2])


@every_frame
def test_takes_logits(frame: Any) -> None:
    expected = Trace.from_scores(LOGITS["local_logits"], LOGITS["remote_logits"], LOGITS["label"], margin)
    assert Trace.from_frame(frame(LOGITS), measure=margin) == expected
    assert Trace.from_frame(frame({"labels" if k == "label" else k: v for k, v in LOGITS.items()}), measure=margin)


def test_takes_categories() -> None:
    answers = ["local", "remote", "label"]
    expected = Trace(**COLUMNS)
    assert Trace.from_frame(pandas.DataFrame(COLUMNS).astype(dict.fromkeys(answers, "category"))) == expected
    cast = polars.col(answers).cast(polars.Categorical)
    assert Trace.from_frame(polars.DataFrame(COLUMNS).with_columns(cast)) == expected


def test_takes_logits_in_an_array_column() -> None:
    two = [polars.Series(name, LOGITS[name], dtype=polars.Array(polars.Float64, 3)) for name in list(LOGITS)[:2]]
    assert Trace.from_frame(polars.DataFrame(two)).local.tolist() == [0, 1]


def test_an_index_changes_nothing() -> None:
    frame = pandas.DataFrame(COLUMNS, index=[7, 5, 3])
    assert Trace.from_frame(frame) == Trace(**COLUMNS)


@every_frame
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lable": ["a"] * 3, "label": None}, "Trace.from_frame: unknown column 'lable'; did you mean 'label'?"),
        (
            {"remote": None},
            "Trace.from_frame: column 'remote' is missing; needed are confidence, local, remote, found are confidence, "
            "local, label, cost",
        ),
        ({"cost": [0.5, 0.25, 1.5]}, "Trace: cost in row 2 must be from 0 to 1, got 1.5"),
    ],
)
def test_refuses(frame: Any, changes: dict[str, Any], message: str) -> None:
    columns = {name: values for name, values in {**COLUMNS, **changes}.items() if values is not None}
    with pytest.raises(InvalidTrace) as caught:
        Trace.from_frame(frame(columns))
    assert str(caught.value) == message


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
@pytest.mark.parametrize("column", ["confidence", "local", "cost"])
def test_names_the_row_of_a_missing_value(frame: Any, column: str) -> None:
    values = [*COLUMNS[column][:2], None]
    with pytest.raises(InvalidTrace, match=f"^Trace: {column} in row 2 (must be .*, got (nan|None)|is missing)$"):
        Trace.from_frame(frame({**COLUMNS, column: values}))


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_names_the_row_of_a_missing_integer(frame: Any) -> None:
    with pytest.raises(InvalidTrace, match=r"^Trace: local in row 1 is missing$"):
        Trace.from_frame(frame({"confidence": [0.5, 0.5], "local": [1, None], "remote": [1, 1]}))


def test_a_column_comes_once() -> None:
    twice = pandas.DataFrame([[0.5, 1, 1, 2]], columns=["confidence", "local", "remote", "local"])
    with pytest.raises(InvalidTrace, match=r"^Trace\.from_frame: Duplicate column names found: "):
        Trace.from_frame(twice)
