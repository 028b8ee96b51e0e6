"""Devices on one budget, over real brokers: it holds at any time, and who needs offloads gets them from others."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hinge import HILCB, Device, FixedCost, Fleet, Gate, Sentinel
from hinge.device.store import SqliteStore
from hinge.fleet.member import Budget
from hinge.fleet.messages import Statement
from hinge.policies import SharedBudget
from hinge.policies.shared_budget import START
from tests.fleet.brokers import WAIT_S, Amqtt, Mosquitto, needs_mosquitto, wait_for
from tests.fleet.fleets import BINS, Listener, member, scores

pytestmark = pytest.mark.server

SHARE = 0.1
NOBODY = "mqtt://127.0.0.1:9"
HARD, EASY = 0.1, 3.0  # samples that local never gets right, and always


class Group:
    """Devices, what each of them sees, and what they have done together."""

    def __init__(self, devices: Sequence[Device], samples: Sequence[float]) -> None:
        self.devices, self.samples = devices, samples
        self.seen = self.offloads = 0

    def run(self, rounds: int) -> None:
        """One sample each, so many times; the share holds after every one."""
        for _ in range(rounds):
            for device, sample in zip(self.devices, self.samples, strict=True):
                self.offloads += device.infer(sample).offloaded
                self.seen += 1
                assert self.offloads <= SHARE * self.seen + START * len(self.devices)

    def run_until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < end, "ran in vain"
            self.run(20)
            time.sleep(0.02)


def offloaded(device: Device) -> float:
    """The share of its samples, but for what it had at the start."""
    assert isinstance(device.policy, SharedBudget)
    return (device.policy.offloaded - START) / max(1, device.policy.time)


def account(device: Device) -> Budget:
    fleet = device.status.fleet
    assert fleet is not None
    assert fleet.budget is not None
    return fleet.budget


def online(devices: Sequence[Device], wanted: bool = True) -> bool:
    return all(each.status.fleet is not None and each.status.fleet.online is wanted for each in devices)


@contextmanager
def relay(url: str) -> Iterator[tuple[str, threading.Event]]:
    """An address by which a broker is reached while the event is not set."""
    target = urlsplit(url).port
    cut, ended = threading.Event(), threading.Event()

    def pass_on(client: socket.socket) -> None:
        with ExitStack() as stack, suppress(OSError):
            stack.enter_context(client)
            broker = stack.enter_context(socket.create_connection(("127.0.0.1", target)))
            ready = stack.enter_context(selectors.DefaultSelector())
            ready.register(client, selectors.EVENT_READ, broker)
            ready.register(broker, selectors.EVENT_READ, client)
            while not (cut.is_set() or ended.is_set()):
                for key, _ in ready.select(0.05):
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]  # a socket, as just registered
                    if not data:
                        return
                    key.data.sendall(data)

    def serve() -> None:
        while not ended.is_set():
            try:
                client, _ = server.accept()
            except TimeoutError:
                continue
            if cut.is_set():
                client.close()
            else:
                threading.Thread(target=pass_on, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"mqtt://127.0.0.1:{server.getsockname()[1]}", cut
        finally:
            ended.set()
            thread.join(WAIT_S)


def members(stack: ExitStack, url: str, other_url: str, folder: Path) -> list[Device]:
    """Six devices, of which the first two have another way to the broker."""
    return [
        stack.enter_context(member(other_url if i < 2 else url, f"d{i}", folder / f"d{i}", budget=SHARE))
        for i in range(6)
    ]


def a_third_is_away_for_a_while(url: str, folder: Path) -> None:
    with ExitStack() as stack:
        other_url, cut = stack.enter_context(relay(url))
        devices = members(stack, url, other_url, folder)
        group = Group(devices, [HARD, EASY, HARD, EASY, EASY, EASY])
        wait_for(lambda: online(devices))
        group.run_until(lambda: min(offloaded(devices[0]), offloaded(devices[2])) > 1.4 * SHARE)
        cut.set()
        wait_for(lambda: online(devices[:2], False))
        group.run(600)
        group.run_until(lambda: offloaded(devices[2]) > 1.4 * SHARE)  # the others go on
        cut.clear()
        wait_for(lambda: online(devices))
        received = account(devices[0]).received
        group.run_until(lambda: account(devices[0]).received > received)
        assert offloaded(devices[1]) < SHARE / 2


def test_a_third_of_the_devices_is_away_for_a_while(tmp_path: Path) -> None:
    with Amqtt(tmp_path) as broker:
        a_third_is_away_for_a_while(broker.url, tmp_path)


@needs_mosquitto
@pytest.mark.server
def test_a_third_is_away_from_mosquitto_and_it_is_wiped(tmp_path: Path) -> None:
    with Mosquitto(tmp_path, "allow_anonymous true") as broker, ExitStack() as stack:
        a_third_is_away_for_a_while(broker.url, tmp_path)
        broker.kill()
        broker.wipe()
        broker.start()
        devices = members(stack, broker.url, broker.url, tmp_path)
        before = [each.policy.time for each in devices]
        spent = sum(each.policy.offloaded for each in devices if isinstance(each.policy, SharedBudget))
        group = Group(devices, [HARD, EASY] * 3)
        group.seen, group.offloads = sum(before), spent
        group.run_until(lambda: account(devices[4]).received > 0)


def test_messages_carry_the_account_and_the_status_the_price(tmp_path: Path) -> None:
    with Amqtt(tmp_path) as broker, Listener(broker.url) as heard:
        with member(broker.url, "kitchen", budget=SHARE) as kitchen, member(broker.url, "hall", budget=SHARE) as hall:
            group = Group([kitchen, hall], [HARD, EASY])
            wait_for(lambda: online(group.devices))
            group.run_until(lambda: account(kitchen).received > 0)
        wait_for(lambda: not heard.status["hall"][-1].online)
        said = heard.evidence["hall"][-1].budget
        assert isinstance(said, Statement)
        assert isinstance(kitchen.policy, SharedBudget)
        assert isinstance(hall.policy, SharedBudget)
        assert sum(said.granted.values()) == hall.policy.ceded >= kitchen.policy.received > 0
        price = min(1.0, 0.5 + hall.policy.price)
        assert heard.status["hall"][-1].price == pytest.approx(price, abs=1e-4)
        assert all(len(payload) <= 1024 for _, payload in heard.messages)


def test_alone_it_is_an_ordinary_budget() -> None:
    with member(NOBODY, "kitchen", budget=SHARE) as kitchen:
        group = Group([kitchen], [HARD])
        group.run(1000)
        assert group.offloads >= SHARE * 1000
        assert account(kitchen).received == 0


def test_what_was_ceded_and_spent_survives_a_restart(tmp_path: Path) -> None:
    with Amqtt(tmp_path) as broker:
        first, second = tmp_path / "kitchen", tmp_path / "hall"

        def pair(stack: ExitStack) -> tuple[Device, Device]:
            kitchen = stack.enter_context(member(broker.url, "kitchen", first, budget=SHARE))
            return kitchen, stack.enter_context(member(broker.url, "hall", second, budget=SHARE))

        with ExitStack() as stack:
            kitchen, hall = pair(stack)
            group = Group([kitchen, hall], [HARD, EASY])
            wait_for(lambda: online(group.devices))
            group.run_until(lambda: account(kitchen).received > 0)
            before = [account(each) for each in group.devices]
        with SqliteStore(second, seconds=None) as store:
            assert isinstance(store.policy, SharedBudget)
            assert store.policy.ceded >= before[1].ceded > 0
        with ExitStack() as stack:
            group.devices = pair(stack)
            after = [account(each) for each in group.devices]
            assert after[0].received >= before[0].received
            assert after[1].ceded >= before[1].ceded
            group.run(300)


def test_what_cannot_be_ceded_durably_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(Amqtt(tmp_path))
        heard = stack.enter_context(Listener(broker.url))
        kitchen = stack.enter_context(member(broker.url, "kitchen", tmp_path / "state", budget=SHARE))
        monkeypatch.setattr(SqliteStore, "sync", lambda _: False)
        group = Group([kitchen], [HARD])
        wait_for(lambda: online(group.devices))
        group.run(100)
        time.sleep(0.5)
        assert not heard.evidence
        monkeypatch.undo()
        wait_for(lambda: heard.evidence)


def test_a_budget_needs_a_policy_that_can_be_told_a_cost() -> None:
    for wrong, problem in ((-0.1, "budget must be"), (1.5, "budget must be")):
        with pytest.raises(ValueError, match=problem):
            Fleet(NOBODY, "cams", "kitchen", budget=wrong)
    with pytest.raises(TypeError, match="as 'sentinel' can"):
        Device(scores, lambda _: 0, HILCB(BINS, offload_cost=0.5), fleet=Fleet(NOBODY, "cams", "hall", budget=0.1))
    gate = Gate(Sentinel(BINS, 0.5))
    for _ in range(2):  # the gate, and what it has spent, may go on in another device
        with Device(scores, lambda _: 0, gate, fleet=Fleet(NOBODY, "cams", "hall", budget=0.1)) as device:
            device.infer(HARD)
    assert isinstance(gate.policy, SharedBudget)
    assert gate.policy.offloaded == 2
    learned = Fleet(NOBODY, "cams", "hall", budget=0.1)
    with Device(scores, lambda _: 0, Sentinel(BINS), price=FixedCost(0.5), fleet=learned) as device:
        assert device.infer(HARD).offloaded
