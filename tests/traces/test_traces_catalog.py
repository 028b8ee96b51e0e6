"""The traces that come with Hinge."""

from importlib.resources import files
from pathlib import Path

import pytest

from hinge._checks import did_you_mean
from hinge.errors import HingeError, UnknownName
from hinge.traces import describe, load_trace, trace_names

ROOT = Path(__file__).parents[2]


def test_names_are_those_of_the_files() -> None:
    assert {"synthetic-cifar10", "synthetic-cifar100", "synthetic-imagenet"} <= set(trace_names())
    assert trace_names() == sorted(trace_names())


@pytest.mark.parametrize("name", trace_names())
def test_every_trace_loads_under_its_name_and_says_where_it_comes_from(name: str) -> None:
    trace, synthetic = load_trace(name), name.startswith("synthetic-")
    assert trace.name == name
    assert describe(name) == trace.about
    recorded = {"local", "remote", "date", "script"}
    images, others = recorded | {"images"}, recorded | {"samples", "licence"}
    needed = [{"kind", "script"}] if synthetic else [images, others]
    assert sum(keys <= trace.about.keys() for keys in needed) == 1
    figures: tuple[float | None, ...] = (trace.agreement, trace.local_accuracy, trace.remote_accuracy)
    if "truth" in trace.about:  # the remote's answer was taken for it
        assert figures[1:] == (None, None)
        figures = (trace.agreement, trace.agreement, 1.0)
    said = [trace.about[key] for key in ("agreement", "local accuracy", "remote accuracy")]
    assert said == [f"{figure:.1%}" if synthetic else f"{figure:.2%}" for figure in figures]
    assert synthetic or all((ROOT / script).is_file() for script in trace.about["script"].split(", "))


@pytest.mark.parametrize("name", trace_names())
def test_every_trace_is_small(name: str) -> None:
    assert len((files("hinge.traces") / "data" / f"{name}.npz").read_bytes()) <= 200_000


@pytest.mark.parametrize("call", [load_trace, describe])
def test_an_unknown_name_says_what_was_meant(call: object) -> None:
    assert callable(call)
    with pytest.raises(UnknownName) as caught:
        call("synthetic-cifr10")
    assert str(caught.value) == "no trace is called 'synthetic-cifr10'; did you mean 'synthetic-cifar10'?"
    assert isinstance(caught.value, HingeError)


@pytest.mark.parametrize("name", ["../data/synthetic-cifar10", "synthetic-cifar10.npz", "", "/etc/passwd"])
def test_a_name_is_never_a_path(name: str) -> None:
    with pytest.raises(UnknownName, match="no trace is called"):
        load_trace(name)


def test_an_odd_name_lists_what_there_is() -> None:
    assert did_you_mean("zzz", iter(["b", "a"])) == "; there are a, b"
