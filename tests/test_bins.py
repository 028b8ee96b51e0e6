"""Bins: the formula in exact fractions, one against many, and no bin for what is no confidence."""

import json
import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hinge.bins
from hinge.bins import EdgeBins, FittedBins, UniformBins, restore_bins
from hinge.errors import InvalidState, InvalidType

confidences = st.floats(0, 1)
several = st.lists(confidences, max_size=30)
edge_lists = st.lists(st.floats(0, 1, exclude_min=True), unique=True, max_size=20).map(sorted)
FIXED: list[UniformBins | EdgeBins] = [UniformBins(16), EdgeBins([0.25, 0.5, 0.9])]
KINDS: list[UniformBins | EdgeBins | FittedBins] = [*FIXED, FittedBins()]
each_kind = pytest.mark.parametrize("bins", KINDS, ids=lambda bins: type(bins).__name__)


def test_the_example_of_the_interface() -> None:
    assert UniformBins(16).bin(0.731) == 11
    assert UniformBins(16).bins == 16


@given(count=st.sampled_from([1, 2, 4, 16, 256, 1024]), confidence=confidences)
def test_uniform_is_the_exact_formula_for_powers_of_two(count: int, confidence: float) -> None:
    assert UniformBins(count).bin(confidence) == min(math.floor(count * Fraction(confidence)), count - 1)


@given(count=st.integers(1, 5000), confidence=confidences)
def test_uniform_is_the_formula_up_to_the_rounding_of_one_product(count: int, confidence: float) -> None:
    exact = count * Fraction(confidence)
    near = [exact * (1 + slack) for slack in (-Fraction(1, 2**52), Fraction(1, 2**52))]
    low, high = (min(math.floor(product), count - 1) for product in near)
    assert low <= UniformBins(count).bin(confidence) <= high


def test_uniform_at_the_edges() -> None:
    uniform = UniformBins(4)
    for bin, edge in enumerate(uniform.edges, start=1):
        assert uniform.bin(edge) == bin
        assert uniform.bin(math.nextafter(edge, 0)) == bin - 1
    assert [uniform.bin(end) for end in (0, 0.0, -0.0, 5e-324)] == [0, 0, 0, 0]
    assert [uniform.bin(end) for end in (1, 1.0, math.nextafter(1, 0))] == [3, 3, 3]
    assert UniformBins(1).bin(1.0) == 0
    assert UniformBins(1).edges == ()


@given(count=st.integers(1, 3000), many=several)
def test_uniform_one_equals_many(count: int, many: list[float]) -> None:
    uniform = UniformBins(count)
    bins = uniform.bin_many(many)
    assert bins.dtype == np.int64
    assert bins.tolist() == [uniform.bin(confidence) for confidence in many]


@given(edges=edge_lists, many=several)
def test_between_edges_one_equals_many_equals_counting(edges: list[float], many: list[float]) -> None:
    between = EdgeBins(edges)
    # The edges and their neighbours are where one and many could part.
    near = [math.nextafter(edge, towards) for edge in edges for towards in (0, edge, 1)]
    bins = between.bin_many(many + near)
    assert bins.dtype == np.int64
    assert bins.tolist() == [between.bin(confidence) for confidence in many + near]
    assert bins.tolist() == [sum(edge <= confidence for edge in edges) for confidence in many + near]
    assert between.bins == len(edges) + 1


def test_an_edge_belongs_to_the_bin_above() -> None:
    between = EdgeBins([0.5, 1.0])
    assert between.bin(0.5) == 1
    assert between.bin(math.nextafter(0.5, 0)) == 0
    assert between.bin(math.nextafter(1, 0)) == 1
    assert between.bin(1) == 2
    assert EdgeBins([]).bin(0.7) == 0


def test_numpy_and_whole_numbers_are_confidences() -> None:
    for bins in KINDS:
        for confidence in (np.float64(0.5), np.float32(0.5), np.float16(0.5), Fraction(1, 2)):
            assert bins.bin(confidence) == bins.bin(0.5)  # type: ignore[arg-type]  # wider than its type
        assert bins.bin_many(np.array([0, 1])).tolist() == [bins.bin(0), bins.bin(1)]
        assert bins.bin_many(np.array([0.731], dtype=np.float32)).tolist() == [bins.bin(np.float32(0.731))]  # type: ignore[arg-type]  # wider than its type
        assert bins.bin_many([Fraction(1, 2), 0.25]).tolist() == [bins.bin(0.5), bins.bin(0.25)]  # type: ignore[arg-type]  # exact numbers too
        assert bins.bin_many([]).tolist() == []


@each_kind
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -1e-300, math.nextafter(1, 2), 2, -1, pytest.param(10**400, id="huge")]
)
def test_no_bin_outside_0_to_1(bins: UniformBins | EdgeBins | FittedBins, value: float) -> None:
    owner = type(bins).__name__
    with pytest.raises(ValueError, match="confidence") as caught:
        bins.bin(value)
    assert str(caught.value) == f"{owner}: confidence must be from 0 to 1, got {value!r}"
    for many in ([0.1, 0.2, value, math.nan], np.array([0.1, 0.2, value, 3.0])):
        with pytest.raises(ValueError, match="confidence") as caught:
            bins.bin_many(many)
        shown = repr(np.array([0.1, value]).tolist()[1])  # as numpy holds it: 2 beside 0.1 is 2.0
        assert str(caught.value) == f"{owner}: confidence at position 2 must be from 0 to 1, got {shown}"


@each_kind
@pytest.mark.parametrize("value", ["0.5", None, True, [0.5], 0.5j, np.str_("0.5"), np.bool_(True), np.array([0.5, 1])])
def test_no_bin_for_what_is_no_number(bins: UniformBins | EdgeBins | FittedBins, value: Any) -> None:
    owner = type(bins).__name__
    with pytest.raises(TypeError) as caught:
        bins.bin(value)
    assert str(caught.value) == f"{owner}: confidence must be a number, got {value!r}"
    if isinstance(value, bool | np.bool_):  # beside numbers, numpy takes it for 1.0
        return
    with pytest.raises(TypeError) as caught:
        bins.bin_many([0.25, value])
    assert str(caught.value) == f"{owner}: confidence at position 1 must be a number, got {value!r}"


@each_kind
def test_arrays_of_no_numbers_name_the_first(bins: UniformBins | EdgeBins | FittedBins) -> None:
    for array in (np.array(["0.5"]), np.array([True]), np.array([None])):
        with pytest.raises(TypeError, match="confidence at position 0 must be a number, got ") as caught:
            bins.bin_many(array)
        assert str(caught.value).endswith(repr(array[0]))


@each_kind
@pytest.mark.parametrize("value", [0.5, None, "0.5", [[0.1, 0.2]]])
def test_many_must_be_a_row(bins: UniformBins | EdgeBins | FittedBins, value: Any) -> None:
    with pytest.raises(ValueError, match="confidences must be 1-D, got ") as caught:
        bins.bin_many(value)
    assert str(caught.value) == f"{type(bins).__name__}: confidences must be 1-D, got {value!r}"


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-3, ValueError), (2.0, TypeError), (True, TypeError), ("16", TypeError)]
)
def test_bins_must_be_a_whole_number(count: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        UniformBins(count)
    assert str(caught.value) == f"UniformBins: bins must be an integer >= 1, got {count!r}"


@pytest.mark.parametrize(
    ("edges", "error", "message"),
    [
        ([0.5, 0.5], ValueError, "edges must be strictly increasing, got 0.5 after 0.5"),
        ([0.5, 0.4], ValueError, "edges must be strictly increasing, got 0.4 after 0.5"),
        ([0.0, 0.5], ValueError, "edges must be > 0 and <= 1, got 0.0"),
        ([0.5, 1.1], ValueError, "edges must be > 0 and <= 1, got 1.1"),
        ([0.5, math.nan], ValueError, "edges[1] must be a finite number, got nan"),
        ([0.5, "1"], TypeError, "edges[1] must be a number, got '1'"),
        ("0.5", TypeError, "edges must be a sequence of numbers, got '0.5'"),
        (0.5, TypeError, "edges must be a sequence of numbers, got 0.5"),
    ],
)
def test_bad_edges_are_named(edges: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        EdgeBins(edges)
    assert str(caught.value) == f"EdgeBins: {message}"


@pytest.mark.parametrize("bins", FIXED, ids=repr)
def test_equal_bins_are_equal_and_print_as_they_are_made(bins: UniformBins | EdgeBins) -> None:
    again = eval(repr(bins), vars(hinge.bins))
    assert again == bins
    assert hash(again) == hash(bins)
    assert pickle.loads(pickle.dumps(bins)) == bins
    assert bins not in (UniformBins(3), EdgeBins([0.1]), 16)
    with pytest.raises(FrozenInstanceError):
        setattr(bins, fields(bins)[0].name, 4)


@given(edges=edge_lists)
def test_state_survives_json(edges: list[float]) -> None:
    for bins in (EdgeBins(edges), UniformBins(len(edges) + 1)):
        assert restore_bins(json.loads(json.dumps(bins.state()))) == bins


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "restore_bins: state must be a dict, got None"),
        ({}, "restore_bins: state must be of uniform, edges or fitted bins, got {}"),
        ({"kind": "x"}, "restore_bins: state must be of uniform, edges or fitted bins, got {'kind': 'x'}"),
        ({"kind": "uniform", "bins": 2.5}, "restore_bins: UniformBins: bins must be an integer >= 1, got 2.5"),
        ({"kind": "edges", "edges": [2]}, "restore_bins: EdgeBins: edges must be > 0 and <= 1, got 2.0"),
        ({"kind": "edges", "edges": 1}, "restore_bins: EdgeBins: edges must be a sequence of numbers, got 1"),
        (
            {"kind": "uniform", "bins": 4, "x": 1},
            "restore_bins: state must be of uniform, edges or fitted bins, got {'kind': 'uniform', 'bins': 4, 'x': 1}",
        ),
    ],
)
def test_damaged_state_is_refused(state: Any, message: str) -> None:
    with pytest.raises(InvalidState) as caught:
        restore_bins(state)
    assert str(caught.value) == message


WITHOUT_NUMPY = """
import sys, types
sys.modules["numpy"] = None
package = types.ModuleType("hinge")
package.__path__ = [sys.argv[1]]
sys.modules["hinge"] = package
from hinge.bins import EdgeBins, FittedBins, UniformBins, restore_bins
from hinge.costs import CostMatrix, MeasuredCost
assert UniformBins(16).bin(0.731) == 11
assert EdgeBins([0.5]).bin(0.5) == 1
assert FittedBins().bin(1.0) == 15
assert restore_bins(UniformBins(4).state()).bin(1) == 3
try:
    UniformBins(16).bin(2)
except ValueError as error:
    assert str(error) == "UniformBins: confidence must be from 0 to 1, got 2"
assert CostMatrix([[0, 4], [2, 0]]).wrong(1, 0) == 0.5
print(MeasuredCost(wrong_answer=100, per_ms=1, unit="ms").cost(latency_ms=25))
"""


def test_one_sample_needs_no_numpy() -> None:
    # The modules alone, as the package's other parts may need numpy.
    package = str(Path(hinge.bins.__file__).parent)
    ran = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY, package], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("0.25", "")


@pytest.mark.parametrize("edges", [np.array(0.5), 0.5, "0.5"])
def test_edges_that_are_no_sequence_are_refused(edges: Any) -> None:
    with pytest.raises(InvalidType, match="EdgeBins: edges must be a sequence of numbers, got"):
        EdgeBins(edges)
