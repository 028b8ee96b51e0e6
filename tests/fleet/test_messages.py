"""What a message says is read back, and what no honest device can say is dropped, with a reason."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge import ClassBins, Gate, Isotonic, Sentinel, UniformBins, margin, on_budget
from hinge.fleet.messages import (
    REASONS,
    Dropped,
    Presence,
    Statement,
    Table,
    build_evidence,
    build_presence,
    build_table,
    identity,
    longest,
    parse_evidence,
    parse_presence,
    parse_table,
)
from hinge.policies.policy import MOST_SAMPLES
from hinge.policies.shared_budget import ACCOUNTS

TOPIC, GATE = "hinge/1/cams/hall/evidence", "0123456789abcdef"


def fields(**changed: Any) -> dict[str, Any]:
    honest = {"hinge": 1, "device": "hall", "gate": GATE, "counter": 70, "samples": 60}
    return {**honest, "offloads": [5, 30.5], "agreements": [0, 30.5], **changed}


def reason(payload: bytes, topic: str = TOPIC, bins: int = 2) -> str:
    with pytest.raises(Dropped) as dropped:
        parse_evidence(topic, payload, "cams", GATE, bins)
    assert "\x1b" not in str(dropped.value)
    assert len(str(dropped.value)) < 400
    return dropped.value.reason


counts = st.integers(0, 10**9) | st.floats(0, 1e6)


@given(st.lists(st.tuples(counts, st.floats(0, 1)), min_size=1, max_size=40), st.integers(0, 2**53))
def test_evidence_is_read_back(bins: list[tuple[float, float]], counter: int) -> None:
    offloads = [count for count, _ in bins]
    agreements = [share * count for count, share in bins]
    samples = int(sum(offloads)) + 1
    payload = build_evidence("hall", GATE, counter, samples, offloads, agreements)
    found = parse_evidence(TOPIC, payload, "cams", GATE, len(bins))
    assert (found.device, found.counter, found.samples) == ("hall", counter, samples)
    assert found.offloads == pytest.approx(offloads, abs=1e-6)
    assert found.agreements == pytest.approx(agreements, abs=1e-6)


@pytest.mark.parametrize("count", [2**53 / 16, 123456789.123456])
def test_evidence_of_16_bins_is_at_most_1_kib(count: float) -> None:
    payload = build_evidence("d" * 64, GATE, 2**53, 2**53, [count] * 16, [count / 3] * 16)
    assert len(payload) <= 1024
    assert len(payload) <= longest(16)
    assert parse_evidence(f"hinge/1/cams/{'d' * 64}/evidence", payload, "cams", GATE, 16).offloads[0] == count


def test_people_can_read_it() -> None:
    payload = build_evidence("hall", GATE, 70, 60, [5.0, 30.5], [0.0, 30.5])
    assert json.loads(payload) == fields()


HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "another device's": ("source", lambda: json.dumps(fields(device="kitchen")).encode()),
    "another gate's": ("gate", lambda: json.dumps(fields(gate="f" * 16)).encode()),
    "fewer bins": ("gate", lambda: json.dumps(fields(offloads=[5], agreements=[0])).encode()),
    "uneven": ("gate", lambda: json.dumps(fields(agreements=[0])).encode()),
    "agreements above offloads": ("counts", lambda: json.dumps(fields(agreements=[6, 0])).encode()),
    "more offloads than samples": ("counts", lambda: json.dumps(fields(samples=30)).encode()),
    "a newer version": ("version", lambda: json.dumps(fields(hinge=2)).encode()),
    "a newer version in another form": ("version", lambda: b'{"hinge": 2, "sketch": "AAAA"}'),
    "NaN": ("format", lambda: json.dumps(fields(offloads=[float("nan"), 1])).encode()),
    "infinity": ("format", lambda: json.dumps(fields(offloads=[float("inf"), 1])).encode()),
    "1e999": ("format", lambda: json.dumps(fields()).replace("30.5", "1e999").encode()),
    "negative": ("format", lambda: json.dumps(fields(offloads=[-1, 1])).encode()),
    "huge": ("format", lambda: json.dumps(fields(offloads=[1e300, 1])).encode()),
    "a huge counter": ("format", lambda: json.dumps(fields(counter=2**53 + 1)).encode()),
    "a counter of many digits": ("format", lambda: json.dumps(fields()).replace("70", "7" * 300).encode()),
    "a gate of control characters": ("format", lambda: json.dumps(fields(gate="\x1b[2J" * 4)).encode()),
    "a long name": ("format", lambda: json.dumps(fields(device="x" * 65)).encode()),
    "a gate with a new line": ("format", lambda: json.dumps(fields(gate=f"{GATE}\n")).encode()),
    "text": ("format", lambda: b"hello"),
    "nothing": ("format", lambda: b""),
    "no UTF-8": ("format", lambda: b'{"device": "\xff\xfe"}'),
    "a list": ("format", lambda: b"[1]"),
    "a missing field": ("format", lambda: b'{"hinge": 1}'),
    "nested": ("format", lambda: b"[" * 500),
    "too long": ("size", lambda: b"[" * 10_000_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_honest_device_says_is_dropped(name: str) -> None:
    expected, make = HOSTILE[name]
    assert reason(make()) == expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("hinge/2/cams/hall/evidence", "version"),
        ("hinge/1/doors/hall/evidence", "topic"),
        ("hinge/1/cams/hall/status", "topic"),
        ("hinge/1/cams/table/evidence", "topic"),
        ("hinge/1/cams/../evidence", "topic"),
        ("hinge/1/cams//evidence", "topic"),
        ("hinge/1/cams/\x1b[2J/evidence", "topic"),
        ("hinge/1/cams/hall/evidence/more", "topic"),
        ("x/" * 100_000, "topic"),
        ("", "topic"),
    ],
)
def test_topics_that_no_device_has(topic: str, expected: str) -> None:
    assert reason(json.dumps(fields()).encode(), topic) == expected


def test_every_reason_is_explained_and_occurs() -> None:
    occurring = {expected for expected, _ in HOSTILE.values()} | {"topic"}
    assert occurring == REASONS.keys() - {"older", "crowd"}  # those are of `Peers`


def test_fields_to_come_are_ignored() -> None:
    payload = json.dumps(fields(colour="blue")).encode()
    assert parse_evidence(TOPIC, payload, "cams", GATE, 2).samples == 60


def test_the_identity_is_that_of_what_evidence_means() -> None:
    gate = Gate(Sentinel(bins=8, offload_cost=0.5))
    same = [Gate(Sentinel(bins=8, offload_cost=0.2)), Gate(on_budget(Sentinel(bins=8, offload_cost=0.5), 0.1))]
    other = [
        Gate(Sentinel(bins=4, offload_cost=0.5)),
        Gate(Sentinel(bins=8, offload_cost=0.5), confidence=margin),
        Gate(Sentinel(bins=8, offload_cost=0.5), bins=ClassBins(UniformBins(4), ["a", "b"])),
        Gate(Sentinel(bins=8, offload_cost=0.5, stakes=[0.5] * 8)),
        Gate(Isotonic(bins=8, offload_cost=0.5)),
    ]
    assert {identity(each) for each in same} == {identity(gate)}
    assert len({identity(each) for each in [gate, *other]} | {identity(gate, "resnet")}) == len(other) + 2


def test_a_status_is_read_back() -> None:
    presence = Presence(1, "hall", True, 90, 12, 0.75, 0.5)
    assert parse_presence("hinge/1/cams/hall/status", build_presence(presence), "cams") == presence
    with pytest.raises(Dropped, match="another device"):
        parse_presence("hinge/1/cams/kitchen/status", build_presence(presence), "cams")


def test_a_table_of_16_bins_is_at_most_100_bytes() -> None:
    table = Table(7, (0, 1, 2**16 - 1, *range(13)))
    payload = build_table(table)
    assert len(payload) <= 100
    assert parse_table(payload, 16) == table
    assert build_table(Table(7, (2**40,))) == build_table(Table(7, (2**16 - 1,)))


def test_a_table_is_refused_where_one_bit_is_wrong() -> None:
    payload = build_table(Table(7, (3, 5)))
    for position in range(8 * len(payload)):
        damaged = bytearray(payload)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(Dropped):
            parse_table(bytes(damaged), 2)
    for other in (payload[:-1], payload + b"\0", b""):
        with pytest.raises(Dropped):
            parse_table(other, 2)


# -- accounts ---------------------------------------------------------------------------------------------------------


def with_statement(said: Statement, samples: int = 90) -> bytes:
    return build_evidence("hall", GATE, samples, samples, [9.0], [1.0], said)


def test_a_statement_goes_with_the_evidence_in_less_than_a_kibibyte() -> None:
    granted = {f"{number:015x}": MOST_SAMPLES for number in range(1, ACCOUNTS + 1)}
    said = Statement("f" * 15, MOST_SAMPLES, 90, granted)
    assert parse_evidence(TOPIC, with_statement(said), "cams", GATE, 1).budget == said
    name, most = "h" * 64, [1e15 + 0.5] * 16
    assert len(build_evidence(name, GATE, MOST_SAMPLES, MOST_SAMPLES, most, most, said)) <= longest(16)
    usual = build_evidence("kitchen", GATE, 10**6, 10**6, [12_345.0] * 16, [12_340.0] * 16, said)
    assert len(usual) <= 1024


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Statement("f" * 15, 0, 91, {}), "counts"),
        (Statement("F" * 15, 0, 0, {}), "format"),
        (Statement("f" * 15, -1, 0, {}), "format"),
        (Statement("0" * 15, 0, 0, {}), "format"),
        (Statement("f" * 15 + "\n", 0, 0, {}), "format"),
        (Statement("f" * 15, 0, 0, {"1" * 15: -1}), "format"),
        (Statement("f" * 15, 0, 0, {f"{number:015x}": 1 for number in range(1, ACCOUNTS + 2)}), "format"),
    ],
)
def test_a_statement_that_cannot_be_is_dropped(said: Statement, why: str) -> None:
    assert reason(with_statement(said), bins=1) == why
