"""Of each device the latest evidence counts, once, whatever the order in which messages come."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.fleet.messages import ROUND_S, Dropped, Peers, build_evidence

GATE = "0123456789abcdef"


def message(device: str, counter: int, offloads: int = 1) -> tuple[str, bytes]:
    return f"hinge/1/cams/{device}/evidence", build_evidence(device, GATE, counter, 1000, [offloads, 0], [offloads, 0])


def told(peers: Peers, *messages: tuple[str, bytes]) -> Peers:
    for topic, payload in messages:
        with suppress(Dropped):
            peers.take(topic, payload)
    assert peers.dropped["older"] == sum(peers.dropped.values())
    return peers


said = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8)), max_size=30)


@given(said, st.randoms())
def test_the_order_and_repetition_of_messages_do_not_matter(each: list[tuple[str, int]], chance: object) -> None:
    messages = [message(device, counter, offloads=7 * counter) for device, counter in each]
    again = [*messages, *messages[::2]]
    chance.shuffle(again)  # type: ignore[attr-defined]  # a random.Random, by Hypothesis
    one, other = told(Peers("cams", GATE, 2), *messages), told(Peers("cams", GATE, 2), *again)
    latest = {device: max(counter for name, counter in each if name == device) for device, _ in each}
    assert {peer.device: peer.counter for peer in one} == latest
    assert {peer.device: peer for peer in one} == {peer.device: peer for peer in other}
    assert [peer.offloads[0] for peer in one] == [7 * latest[peer.device] for peer in one]


def test_what_is_known_is_no_news_and_no_offence() -> None:
    peers = Peers("cams", GATE, 2)
    assert peers.take(*message("hall", 5)) is not None
    version = peers.version
    assert peers.take(*message("hall", 5)) is None
    assert peers.version == version
    assert sum(peers.dropped.values()) == 0


@pytest.mark.parametrize("counter", [4, 5])
def test_an_older_counter_and_other_evidence_at_the_same_are_dropped(counter: int) -> None:
    peers = Peers("cams", GATE, 2)
    peers.take(*message("hall", 5))
    with pytest.raises(Dropped, match="older"):
        peers.take(*message("hall", counter, offloads=900))
    assert peers["hall"].offloads == (1.0, 0.0)
    assert peers.dropped["older"] == 1


def test_no_more_devices_are_kept_than_there_may_be() -> None:
    peers = Peers("cams", GATE, 2, most=3)
    for number in range(3):
        peers.take(*message(f"d{number}", 1))
    with pytest.raises(Dropped) as dropped:
        peers.take(*message("late", 1))
    assert dropped.value.reason == "crowd"
    assert peers.take(*message("d0", 2)) is not None, "those that are known go on"
    assert len(peers) == 3


def heard(peers: Peers, *devices: str, retained: bool = True) -> None:
    for device in devices:
        with suppress(Dropped):
            peers.take(*message(device, 1), retained=retained)


def names(peers: Peers) -> set[str]:
    return {peer.device for peer in peers}


def test_names_that_are_nowhere_make_room_for_devices_that_are_on_the_broker() -> None:
    peers = Peers("cams", GATE, 2, most=3)
    peers.begin(0)
    heard(peers, "hall", "burst1", "burst2", retained=False)
    heard(peers, "kitchen", retained=False)
    assert peers.dropped["crowd"] == 1
    assert [peers.asks(now) for now in (ROUND_S - 1, ROUND_S)] == [False, True]
    heard(peers, "kitchen", "hall")
    assert names(peers) == {"hall", "burst1", "burst2"}, "nobody is left out before everybody could be heard"
    version = peers.version
    assert [peers.asks(now) for now in (2 * ROUND_S, 3 * ROUND_S)] == [False, True]
    heard(peers, "kitchen", "hall")
    assert names(peers) == {"kitchen", "hall", "burst2"}
    assert peers.version > version
    assert len(peers.sums()) == 3


def test_more_names_push_out_nobody_who_is_on_the_broker() -> None:
    """Neither by being retained, nor by coming first, nor by connections that end early."""
    peers = Peers("cams", GATE, 2, most=3)
    now = 0.0
    peers.begin(now)
    heard(peers, "a", "b", retained=False)
    heard(peers, "c")
    for round in range(20):
        for _ in range(3):  # connections on which nothing came, and one on which it does
            now += 1.0
            peers.begin(now)
        for number in range(9):
            heard(peers, f"liar{number}")
            heard(peers, f"burst{round}-{number}", retained=False)
        heard(peers, *"abc")
        assert names(peers) == {*"abc"}
        now += 3 * ROUND_S
        peers.asks(now)


def test_the_broker_is_asked_less_and_less_often_and_only_where_there_is_no_room() -> None:
    peers = Peers("cams", GATE, 2, most=1)
    peers.begin(0)
    heard(peers, "hall")
    asked = 0
    for second in range(0, 86_400, 10):
        heard(peers, "hall")
        asked += peers.asks(second)
    assert asked == 0
    for second in range(86_400, 2 * 86_400, 10):
        heard(peers, "late", "hall")
        asked += peers.asks(second)
    assert 5 <= asked <= 12


def test_an_empty_message_withdraws_what_its_device_said() -> None:
    peers = Peers("cams", GATE, 2)
    peers.take(*message("hall", 5))
    peers.take(*message("kitchen", 5))
    version = peers.version
    assert peers.take("hinge/1/cams/hall/evidence", b"") is None
    assert [peer.device for peer in peers] == ["kitchen"]
    assert peers.version > version
    with pytest.raises(Dropped):
        peers.take("hinge/2/cams/kitchen/evidence", b"")
