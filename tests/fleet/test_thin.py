"""Thin devices: a table ends by itself, every sample is counted once, and liars are found."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge import Sentinel
from hinge.fleet.messages import Dropped, Table, build_table
from hinge.fleet.thin import Kind, ThinDevice

BINS = 4
AGREEMENT = (0.05, 0.3, 0.9, 0.99)


def message(counter: int, *licences: int) -> bytes:
    return build_table(Table(counter, licences))


def play(
    kind: Kind,
    devices: dict[str, ThinDevice],
    samples: int,
    says: Callable[[str, bool], bool] = lambda _, agreed: agreed,
    seed: int = 0,
) -> dict[str, int]:
    """Let devices decide in turn, each with the table at once; returns how many samples each has offloaded."""
    chance, offloads = random.Random(seed), dict.fromkeys(devices, 0)
    counter = max(device.counter for device in devices.values())
    for _ in range(samples):
        for name, device in devices.items():
            bin = chance.randrange(BINS)
            agreed = chance.random() < AGREEMENT[bin]
            if device.decide(bin):
                kind.learn(name, bin, says(name, agreed), device.accepted)
                offloads[name], counter = offloads[name] + 1, counter + 1
                if len(devices) > 1 and counter % 30 == 0:
                    kind.judge()
                for each in devices.values():
                    each.take(message(counter, *kind.licences))
    return offloads


# -- the device -------------------------------------------------------------------------------------------------------


@given(licence=st.integers(0, 400))
def test_a_table_that_is_never_renewed_ends_by_itself(licence: int) -> None:
    device = ThinDevice(1)
    device.take(message(1, licence))
    accepted = offloads = 0
    while offloads < 17:
        offload = device.decide(0)
        offloads, accepted = offloads + offload, accepted + (not offload)
    assert licence <= accepted <= 2 * licence
    assert all(device.decide(0) for _ in range(10))


def test_nothing_but_a_later_table_is_taken() -> None:
    device = ThinDevice(2)
    assert device.take(message(7, 3, 5))
    for other in (message(7, 9, 9), message(6, 9, 9), message(8, 9), message(8, 9, 9)[:-1], b""):
        assert not device.take(other)
    assert (device.counter, device.left) == (7, [3, 5])
    assert device.take(message(8, 9, 9))


def test_a_licence_goes_on_from_the_last_audit() -> None:
    device = ThinDevice(1)
    device.take(message(1, 10))
    assert not any(device.decide(0) for _ in range(4))
    device.take(message(2, 30))  # longer: 26 are left
    assert not any(device.decide(0) for _ in range(26))
    assert device.decide(0)
    assert device.accepted == 30
    device.take(message(3, 30))
    assert not any(device.decide(0) for _ in range(15))
    device.take(message(4, 5))  # shorter: 5 more, and no more
    assert [device.decide(0) for _ in range(6)] == [False] * 5 + [True]
    assert device.accepted == 20


def test_a_bin_that_the_table_does_not_have_is_offloaded() -> None:
    device = ThinDevice(2)
    device.take(message(1, 5, 5))
    assert device.decide(2)
    assert device.decide(255)
    assert device.accepted == 0


# -- the kind ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [0.2, 0.5, 0.8])
def test_every_sample_is_counted_once(cost: float) -> None:
    kind, device = Kind(Sentinel(BINS, cost)), ThinDevice(BINS)
    offloads = play(kind, {"kitchen": device}, 3000)["kitchen"]
    running = sum(device.granted) - sum(device.left)  # accepted since the last offload of their bin
    assert kind.policy.time + running == 3000
    assert kind.policy.learned == offloads
    assert sum(kind.policy.own_evidence()["offloads"]) == offloads


def test_it_offloads_about_as_often_as_a_device_that_learns() -> None:
    thin = learning = 0
    for seed in range(6):
        thin += play(Kind(Sentinel(BINS, 0.5)), {"kitchen": ThinDevice(BINS)}, 1500, seed=seed)["kitchen"]
        policy, chance = Sentinel(BINS, 0.5), random.Random(seed)
        for _ in range(1500):
            bin = chance.randrange(BINS)
            agreed = chance.random() < AGREEMENT[bin]
            decision = policy.decide(bin)
            if decision.offload:
                policy.learn(decision, agreed)
        learning += policy.learned
    assert 0.97 < thin / learning < 1.03


@pytest.mark.medium
def test_audits_of_many_devices_are_those_of_one() -> None:
    """Each device counts down its own licences, and for all samples together audits are no more frequent."""
    one = play(Kind(Sentinel(BINS, 0.5)), {"0": ThinDevice(BINS)}, 2400)
    many = play(Kind(Sentinel(BINS, 0.5)), {f"{k}": ThinDevice(BINS) for k in range(6)}, 400)
    assert sum(many.values()) < 1.1 * sum(one.values())


def test_without_a_count_the_licence_is_taken_to_be_used_up() -> None:
    kind = Kind(Sentinel(BINS, 0.5))
    for _ in range(5):
        kind.learn("kitchen", 3, True)
    licence = kind.licences[3]
    time = kind.policy.time
    kind.learn("kitchen", 3, True)
    assert licence > 0
    assert kind.policy.time == time + licence + 1


def test_more_than_was_ever_licensed_is_not_counted() -> None:
    kind = Kind(Sentinel(BINS, 0.5))
    for _ in range(3):
        kind.learn("kitchen", 3, True, 0)
    licence, time = kind.licences[3], kind.policy.time
    kind.learn("kitchen", 3, True, 65_535)
    assert kind.policy.time == time + licence + 1


@pytest.mark.parametrize("lie", ["always agrees", "never agrees", "the contrary"])
def test_liars_are_found_and_what_they_told_is_taken_back(lie: str) -> None:
    kind, devices = Kind(Sentinel(BINS, 0.5)), {f"{k}": ThinDevice(BINS) for k in range(8)}

    def says(device: str, agreed: bool) -> bool:
        return agreed if device != "0" else {"always agrees": True, "never agrees": False}.get(lie, not agreed)

    play(kind, devices, 250, says)
    kind.judge()
    assert kind.devices == 8
    assert "0" not in kind.trusted
    assert len(kind.trusted) >= 6
    settled, told = kind.told()
    expected = [sum(told[device][0][bin] for device in kind.trusted) + settled[0][bin] for bin in range(BINS)]
    assert kind.policy.own_evidence()["offloads"] == pytest.approx(expected)
    assert kind.licences[0] == kind.licences[1] == 0
    assert min(kind.licences[2:]) > 0


def test_two_that_contradict_each_other_license_nothing() -> None:
    kind = Kind(Sentinel(BINS, 0.5))
    for _ in range(40):
        kind.learn("honest", 3, False, 0)
        kind.learn("liar", 3, True, 0)
    kind.judge()
    assert kind.trusted == set()
    assert kind.licences == (0,) * BINS


def test_an_alarm_drops_what_was_told() -> None:
    kind = Kind(Sentinel(BINS, 0.5))
    for _ in range(30):
        kind.learn("kitchen", 3, True)
    while not kind.policy.alarms["agreement"]:
        kind.learn("kitchen", 3, False)
    assert kind.told() == (([0.0] * BINS, [0.0] * BINS), {"kitchen": ([0.0] * BINS, [0.0] * BINS)})
    assert kind.licences == (0,) * BINS


@pytest.mark.medium
def test_a_restart_loses_nothing() -> None:
    kind, devices = Kind(Sentinel(BINS, 0.5)), {f"{k}": ThinDevice(BINS) for k in range(4)}
    play(kind, devices, 400)
    again = Kind(Sentinel.restore(kind.policy.state()))
    assert again.licences == kind.licences
    assert again.told()[0] == tuple(kind.policy.own_evidence()[name] for name in ("offloads", "agreements"))
    play(again, devices, 400)
    assert again.policy.learned > kind.policy.learned


def test_devices_are_limited() -> None:
    kind = Kind(Sentinel(BINS, 0.5), most=2)
    kind.learn("a", 0, True)
    kind.learn("b", 0, True)
    with pytest.raises(Dropped) as dropped:
        kind.learn("c", 0, True)
    assert dropped.value.reason == "crowd"
    assert kind.devices == 2


def test_an_offload_that_costs_a_wrong_answer_is_never_asked_for() -> None:
    kind = Kind(Sentinel(BINS, 1.0))
    assert kind.licences == (65_535,) * BINS
