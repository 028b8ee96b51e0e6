import json
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hinge.errors import InvalidMessage
from hinge.oip.json import MAX_DEPTH, read_json, shown

NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
)


def depth_of(value: object) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(depth_of, parts), default=0)


def nested(depth: int, inside: object) -> object:
    for _ in range(depth):
        inside = [inside]
    return inside


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.booleans(), st.integers(0, 60))
def test_json_is_read_as_python_reads_it_unless_it_is_too_deep(
    value: dict[str, Any], ascii_only: bool, deeper: int
) -> None:
    value["deep"] = nested(deeper, value.get("deep"))
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8")
    if depth_of(value) <= MAX_DEPTH:
        assert read_json(text) == value
    else:
        with pytest.raises(InvalidMessage, match="deep"):
            read_json(text)


@given(text=st.text('[]{}",:\\au0', max_size=60))
@example('["\\\\"[[')
def test_what_python_cannot_read_is_refused_and_nothing_else(text: str) -> None:
    try:
        pairs: Any = json.loads(text, object_pairs_hook=lambda pairs: pairs)
        valid = text.strip().startswith("{") and len(dict(pairs)) == len(pairs)
    except ValueError:
        valid = False
    if not valid:
        with pytest.raises(InvalidMessage):
            read_json(text.encode())


@pytest.mark.parametrize("inside", ["[" * 99, "[" * 10**5, '"' + "[" * 99, "\\" + "{" * 99, '\\"' + "[" * 99 + "\\\\"])
def test_brackets_in_text_are_not_depth(inside: str) -> None:
    assert read_json(json.dumps({inside: [inside]}).encode()) == {inside: [inside]}


def test_the_depth_holds_across_the_parts_that_are_looked_at_together() -> None:
    flat = [["a,b", 0]] * 10_000
    assert read_json(json.dumps({"flat": flat, "deep": nested(30, flat)}).encode())["flat"] == flat
    with pytest.raises(InvalidMessage, match="deep"):
        read_json(json.dumps({"flat": flat, "deep": nested(MAX_DEPTH, 0)}).encode())


def test_deep_json_is_refused_wherever_it_is_read() -> None:
    def below(frames: int) -> None:
        if frames:
            return below(frames - 1)
        with pytest.raises(InvalidMessage):
            read_json(b"[" * 10**5)
        return None

    below(sys.getrecursionlimit() // 2)


@given(value=st.text() | st.integers() | st.floats() | st.none() | st.lists(st.text()))
def test_little_is_shown(value: object) -> None:
    assert len(shown(value)) <= 36
