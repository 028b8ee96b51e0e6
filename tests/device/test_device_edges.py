"""A device where things go wrong that nobody planned: odd labels, odd prices, odd remotes, and callers who leave."""

import asyncio
import copy
import gc
import json
import os
import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from hinge import AsyncDevice, Breaker, Classification, Device, Gate, MeasuredCost, OpenInference
from hinge.costs import FixedCost
from hinge.device.store import Store, read
from hinge.errors import RemoteLate, RemoteUnreachable
from hinge.oip.tensors import TensorSpec
from hinge.policies import Probation
from hinge.policies.policy import Decision, Explanation
from hinge.remotes import Deadline, Reply
from hinge.remotes.adapters import FunctionRemote, InThreads
from tests.device.worlds import KINDS, LOCAL, Scripted, measured, policy, true_label
from tests.faults.hanging import full_port
from tests.support.loopback import OipServer

patient = partial(Device, deadline_s=30)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=["threads", "event loop"])


class Broken(Probation):
    """A policy of one's own, with a bug in one of its methods."""

    bug = ""

    def _may_fail(self, method: str) -> None:
        if method == self.bug:
            raise ZeroDivisionError("my bug")

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        self._may_fail("decide")
        return super().decide(bin, cost)

    def learn(self, *news: Any, **more: Any) -> int:
        self._may_fail("learn")
        return super().learn(*news, **more)

    def forget(self, decision: Decision) -> None:
        self._may_fail("forget")
        super().forget(decision)

    def explain(self, bin: int) -> Explanation:
        self._may_fail("explain")
        return super().explain(bin)

    @property
    def warning(self) -> str | None:
        self._may_fail("warning")
        return super().warning


# -- a policy's errors are its own ------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("bug", ["learn", "warning", "explain"])
def test_a_policy_that_fails_after_the_answer_does_not_cost_it(bug: str, kind: Any, caplog: Any) -> None:
    broken = Broken(bins=16, offload_cost=0.5)
    broken.bug = bug
    with kind(LOCAL, Scripted(), broken) as device:
        answer = device.infer(0)
        status = device.status
        told = answer.reason if bug == "explain" else str(status.alarm_reasons)
    assert (answer.source, answer.fault, status.fell_back) == ("remote", None, {})
    assert ("policy cannot say why: " if bug == "explain" else f"Broken.{bug} raised ") + "ZeroDivisionError" in told
    if bug != "explain":
        assert status.alarms == {"the policy failed": 1}
        assert caplog.messages == [f"the policy failed: Broken.{bug} raised ZeroDivisionError: my bug"]


@each_kind
def test_a_policy_that_cannot_decide_leaves_the_local_answer(kind: Any, caplog: Any) -> None:
    remote, broken = Scripted(), Broken(bins=16, offload_cost=0.5)
    broken.bug = "decide"
    with kind(LOCAL, remote, broken) as device:
        answers = [device.infer(0), *device.infer_many([1, 2])]
        status = device.status
        broken.bug = ""
        assert device.infer(3).source == "remote"
    fault = "Broken.decide raised ZeroDivisionError: my bug"
    assert [answer.source for answer in answers] == ["local"] * 3
    assert answers[0].reason == f"The policy failed: {fault}; the local answer stands."
    assert answers[1].fault == "Broken.decide_many raised ZeroDivisionError: my bug"
    assert (answers[0].label, answers[0].offloaded, answers[0].cost) == (LOCAL.answer(0)[0], False, 0.0)
    assert (status.samples, status.fell_back, status.last_fault) == (3, {"policy": 3}, None)
    assert caplog.messages == [f"the policy failed: {fault}"]
    assert remote.asked == [[3]]


@each_kind
def test_a_policy_that_cannot_forget_does_not_cost_the_answer(kind: Any) -> None:
    broken = Broken(bins=16, offload_cost=0.5)
    broken.bug = "forget"
    with kind(LOCAL, Scripted(rest=RemoteUnreachable("away")), broken) as device:
        answer = device.infer(0)
        assert (answer.source, answer.fault) == ("local", "away")
        assert device.status.alarm_reasons["the policy failed"] == "Broken.forget raised ZeroDivisionError: my bug"


# -- one sample's trouble is not the others' --------------------------------------------------------------------------


@each_kind
def test_a_sample_that_the_remote_cannot_take_is_asked_for_once_and_harms_no_other(kind: Any) -> None:
    asked = list[int]()

    def remote(sample: int) -> Any:
        asked.append(sample)
        if sample == 20:
            raise ValueError("bad picture")
        return true_label(sample)

    with kind(LOCAL, remote, policy(), shadow="remote") as device:
        answers = [device.infer(sample) for sample in range(70)]
    assert [answer.source for answer in answers] == ["remote"] * 20 + ["local"] + ["remote"] * 49
    assert asked == list(range(70))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_sample_does_not_open_the_breaker(status: int) -> None:
    class Picky(OipServer):
        def _infer(self, request: Any) -> Any:
            answer = super()._infer(request)
            return answer._replace(start=answer.start.replace("200", str(status))) if self.inferences > 3 else answer

    spec = TensorSpec("scores", "FP32", (-1, 10))
    with Picky(lambda _: {"scores": np.eye(10, dtype=np.float32)[:1]}, outputs=[spec]) as server:
        remote = OpenInference(server.url, "remote")
        with patient(lambda _: [0.0, 0.1], remote, policy()) as device:
            answers = [device.infer(np.zeros(4, np.float32)) for _ in range(12)]
            assert [answer.source for answer in answers[:4]] == ["remote"] * 3 + ["local"]
            assert f"HTTP {status}" in str(answers[-1].fault)
            assert device.status.breaker == "closed"
        assert server.inferences == 12  # each sample once


@each_kind
def test_more_callers_than_may_ask_at_once_wait_for_their_turn(kind: Any) -> None:
    def remote(sample: int) -> Any:
        time.sleep(0.002)
        return true_label(sample)

    with kind(LOCAL, remote, policy(), in_flight=2, shadow="remote") as device:
        if isinstance(device, Device):
            with ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(device.infer, range(100)))
        else:
            answers = device._loop.run_until_complete(_gathered(device._device, range(100)))
        assert {answer.source for answer in answers} == {"remote"}
        assert not device.status.fell_back


async def _gathered(device: AsyncDevice, samples: Any) -> Any:
    return await asyncio.gather(*(device.infer(sample) for sample in samples))


def test_who_gets_no_turn_falls_back_at_the_deadline() -> None:
    hold, begun = Event(), Barrier(2, timeout=10)

    def remote(sample: int) -> Any:
        begun.wait()
        hold.wait(10)
        return true_label(sample)

    class Slow(Scripted):
        keeps_deadline = True  # which is not so: it is asked inline, and holds its place

        def ask(self, samples: Any, deadline: Deadline) -> Reply:
            return Reply([remote(samples[0])])

    with patient(LOCAL, Slow(), policy(), in_flight=1, deadline_s=0.05) as device:
        first = Thread(target=device.infer, args=(0,))
        first.start()
        begun.wait()
        answer = device.infer(1)
        hold.set()
        first.join(10)
        status = device.status
    assert answer.fault == "no request slot was free by the deadline (in_flight)"
    assert not answer.offloaded
    assert status.fell_back["queue"] == 1
    assert status.last_fault != answer.fault, "it is not the remote's"


@pytest.mark.medium
@each_kind
def test_a_burst_does_not_open_the_breaker_of_a_remote_that_answers(kind: Any) -> None:
    """A second wave of requests begins when the first is answered, with too little time for as much again."""
    with kind(LOCAL, _pausing(kind, 0.9), policy(), shadow="remote", deadline_s=1.5) as device:
        if isinstance(device, Device):
            with ThreadPoolExecutor(24) as pool:
                answers = list(pool.map(device.infer, range(24)))
        else:
            answers = device._loop.run_until_complete(_gathered(device._device, range(24)))
        status = device.status
    assert {answer.source for answer in answers} == {"remote", "local"}
    assert set(status.fell_back) <= {"late", "queue"}  # who gets a slot at the last moment is late
    assert (status.breaker, status.attempts.failed, status.alarms) == ("closed", 0, {})


@each_kind
def test_a_burst_opens_the_breaker_of_a_remote_that_does_not_answer(kind: Any) -> None:
    with kind(LOCAL, _pausing(kind, 0.5), policy(), shadow="remote", deadline_s=0.1, in_flight=5) as device:
        if isinstance(device, Device):
            with ThreadPoolExecutor(24) as pool:
                list(pool.map(device.infer, range(24)))
        else:
            device._loop.run_until_complete(_gathered(device._device, range(24)))
        status = device.status
    assert (status.breaker, status.attempts.failed) == ("open", 5)
    assert status.last_fault == "no answer in time"


def _pausing(kind: Any, seconds: float) -> Any:
    def pause(sample: int) -> Any:
        time.sleep(seconds)
        return true_label(sample)

    async def pause_async(sample: int) -> Any:
        await asyncio.sleep(seconds)
        return true_label(sample)

    return pause if kind is KINDS[0] else pause_async


def test_callers_in_a_hurry_do_not_take_the_remote_from_others() -> None:
    async def main() -> None:
        hold = asyncio.Event()

        async def remote(sample: int) -> Any:
            await hold.wait()
            return true_label(sample)

        async with AsyncDevice(LOCAL, remote, policy(), shadow="remote", deadline_s=30) as device:
            for sample in range(10):
                answer = await device.infer(sample, Deadline.after(0.005))
                assert answer.fault == "no answer in time"
            assert device.status.breaker == "closed"
            hold.set()
            assert (await device.infer(10)).source == "remote"

    asyncio.run(main())


@pytest.mark.medium
def test_a_slow_server_tells_what_it_is_piece_by_piece() -> None:
    """Each response takes more than half of the deadline: what is known is kept from one offload to the next."""
    spec = TensorSpec("scores", "FP32", (-1, 3))

    class Slow(OipServer):
        def _respond(self, request: Any) -> Any:
            time.sleep(0.12)
            return super()._respond(request)

    with Slow(lambda _: {"scores": np.ones((1, 3), np.float32)}, outputs=[spec]) as server:
        device = Device(lambda _: [0.0, 0.1], OpenInference(server.url, "remote"), policy(), deadline_s=0.2)
        faults = [device.infer(np.zeros(3)).fault for _ in range(8)]
        device.close()
    assert faults[-1] is None


# -- callers who leave ------------------------------------------------------------------------------------------------


def test_a_cancelled_batch_leaves_nothing_waiting() -> None:
    async def main() -> Any:
        async def slow(sample: int) -> Any:
            await asyncio.sleep(30)

        async with AsyncDevice(LOCAL, slow, policy(), batch=1, in_flight=2, deadline_s=20) as device:
            task = asyncio.create_task(device.infer_many(range(20), together=True))
            one = asyncio.create_task(device.infer(3))
            await asyncio.sleep(0.05)
            task.cancel()
            one.cancel()
            await asyncio.gather(task, one, return_exceptions=True)
            return device.policy.state()["pending"], device.status.dropped, device.breaker.counts.under_way

    assert asyncio.run(main()) == ([], 21, 0)


def test_an_interrupted_batch_leaves_nothing_waiting() -> None:
    class Interrupting(Scripted):
        keeps_deadline = True  # so that it is asked in the thread of the caller

        def ask(self, samples: Any, deadline: Any) -> Reply:
            raise KeyboardInterrupt

    device = patient(LOCAL, Interrupting(), policy(), batch=1, in_flight=2)
    with pytest.raises(KeyboardInterrupt):
        device.infer_many(range(20), together=True)
    device.close()
    assert device.policy.state()["pending"] == []


def test_what_was_learned_before_an_interruption_stays_learned() -> None:
    class Interrupting(Scripted):
        keeps_deadline = True

        def ask(self, samples: Any, deadline: Any) -> Reply:
            if len(self.asked) == 3:
                raise KeyboardInterrupt
            return super().ask(samples, deadline)

    remote = Interrupting()
    with patient(LOCAL, remote, policy(), batch=8, in_flight=1) as device:
        with pytest.raises(KeyboardInterrupt):
            device.infer_many(range(500))
        assert (device.policy.learned, device.policy.state()["pending"]) == (24, [])
        assert [len(part) for part in remote.asked] == [8, 8, 8]


def test_closing_lets_go_of_the_folder_whatever_happens(tmp_path: Path) -> None:
    class Stubborn(Scripted):
        def close(self) -> None:
            raise OSError("cannot close")

    device = patient(LOCAL, Stubborn(), policy(), state=tmp_path)
    with pytest.raises(OSError, match="cannot close"):
        device.close()
    Store(tmp_path, Gate(policy())).close()


def test_a_closed_device_says_so() -> None:
    device = Device(LOCAL, Scripted(), policy())
    device.close()
    with pytest.raises(RuntimeError, match="Device: it is closed"):
        device.infer(0)
    with pytest.raises(RuntimeError, match="Device: it is closed"):
        device.infer_many([0])


async def _infer(device: Any, samples: list[int] | int) -> Any:
    found = device.infer_many(samples) if isinstance(samples, list) else device.infer(samples)
    return found if isinstance(device, Device) else await found


async def _close(device: Any) -> None:
    closed = device.close()
    if closed is not None:
        await closed


async def _is_refused_in_a_child(device: Any) -> bool:
    """Whether a forked child is told where to make the device; it closes it, and drops it."""
    child = os.fork()
    if child == 0:
        try:
            for samples in (0, [0, 1]):
                with pytest.raises(RuntimeError, match="another process; make it in the worker, after the fork"):
                    await _infer(device, samples)
            await _close(device)
            del device
            gc.collect()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("kind", [Device, AsyncDevice])
def test_a_device_of_another_process_says_so_and_its_own_goes_on(kind: Any, tmp_path: Path) -> None:
    async def main() -> None:
        device = kind(LOCAL, true_label, policy(), state=tmp_path, deadline_s=30)
        await _infer(device, list(range(20)))
        assert await _is_refused_in_a_child(device)
        await _infer(device, list(range(20, 60)))
        learned, problem = device.policy.learned, device.status.not_durable
        assert (learned > 10, problem) == (True, None)
        await _close(device)
        assert read(tmp_path).policy.learned == learned

    asyncio.run(main())


def test_a_closed_device_of_an_event_loop_says_so() -> None:
    async def main() -> None:
        device = AsyncDevice(LOCAL, Scripted(), policy())
        await device.close()
        with pytest.raises(RuntimeError, match="Device: it is closed"):
            await device.infer(0)
        with pytest.raises(RuntimeError, match="Device: it is closed"):
            await device.infer_many([0])

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_device_may_move_to_another_event_loop() -> None:
    """A loop that is over can close its connections no more; that is left to the collector, which complains."""
    _moved()
    gc.collect()


def _moved() -> None:
    spec = TensorSpec("scores", "FP32", (-1, 3))
    with OipServer(lambda _: {"scores": np.ones((1, 3), np.float32)}, outputs=[spec]) as server:
        remote = OpenInference(server.url, "remote")
        device = AsyncDevice(lambda _: [0.0, 0.1], remote, policy(), deadline_s=20, shadow="remote")
        for _ in range(3):
            assert asyncio.run(device.infer(np.zeros(3))).source == "remote"
        assert device.breaker.counts.failed == 0
        asyncio.run(device.close())


# -- odd labels, remotes and prices -----------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("label", [None, float("nan"), [], {"cat"}, np.float32("nan")], ids=repr)
def test_what_is_no_label_is_no_answer(kind: Any, label: Any) -> None:
    with kind(LOCAL, lambda _: label, policy()) as device:
        answer = device.infer(0)
        assert answer.source == "local"
        assert "no label, but" in str(answer.fault)
        assert device.policy.learned == 0


@each_kind
@pytest.mark.parametrize("sent", [-1, "x", None, float("nan")], ids=repr)
def test_a_reply_of_odd_bytes_is_named_and_not_the_price(kind: Any, sent: Any) -> None:
    with kind(LOCAL, Scripted(rest=Reply([true_label(0)], bytes=sent)), policy()) as device:
        answer = device.infer(0)
        assert str(answer.fault).startswith("the remote's Reply: bytes must be")
        assert (device.status.fell_back, device.status.alarms) == ({"invalid": 1}, {})


@each_kind
def test_numbers_of_numpy_are_numbers(kind: Any) -> None:
    with kind(lambda _: [0.0, 1.0], lambda _: np.int64(1), policy(), task=Classification(["cat", "dog"])) as device:
        answer = device.infer(0)
        assert (answer.label, answer.source) == ("dog", "remote")
    with kind(lambda _: [0.0, 1.0], lambda _: np.int64(1), policy()) as device:
        assert json.loads(json.dumps(device.infer(0).as_dict()))["label"] == 1


def test_objects_that_are_called_and_awaited_are_known_as_such() -> None:
    class Remote:
        async def __call__(self, sample: int) -> Any:
            return true_label(sample)

    with pytest.raises(TypeError, match="coroutine function"):
        Device(LOCAL, Remote(), policy())
    with KINDS[1](LOCAL, Remote(), policy()) as device:
        assert device.infer(7).label == true_label(7)


def test_an_event_loop_asks_a_remote_that_waits_in_a_thread() -> None:
    class Waiting:
        closed = False

        def ask(self, samples: Any, deadline: Deadline) -> Reply:
            return Reply([true_label(sample) for sample in samples])

        def close(self) -> None:
            self.closed = True

    remote = Waiting()
    with KINDS[1](LOCAL, remote, policy()) as device:
        assert device.infer(7).label == true_label(7)
    assert remote.closed


@each_kind
def test_a_price_that_fails_costs_no_answer(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def cost(self, **_: float) -> float:
            raise ValueError("no price")

    with kind(LOCAL, Scripted(), measured(), price=Broken()) as device:
        answers = device.infer_many(range(8))
        assert {(answer.source, answer.cost, answer.fault) for answer in answers} == {("remote", 0.0, None)}
        assert (device.policy.learned, device.policy.state()["pending"]) == (0, [])
        assert device.status.alarms == {"the price of an offload cannot be told": 1}
    assert caplog.messages == ["the price of an offload cannot be told: ValueError: no price"]
    with kind(LOCAL, Scripted(), policy(), price=Broken()) as device:  # which knows what an offload costs
        assert {(answer.source, answer.cost) for answer in device.infer_many(range(8))} == {("remote", 0.5)}
        assert device.policy.learned == 8


@each_kind
@pytest.mark.parametrize("cost", [1.5, "much", float("nan")])
def test_a_cost_that_cannot_be_is_the_remotes_fault(kind: Any, cost: Any) -> None:
    with kind(LOCAL, Scripted(rest=Reply([0], cost=cost)), policy()) as device:
        answer = device.infer(0)
        assert (answer.source, device.status.fell_back) == ("local", {"invalid": 1})
        assert "Reply: cost must be" in str(answer.fault)


@each_kind
@pytest.mark.parametrize(("reply", "shown"), [([1], "[1] (list)"), (None, "None (NoneType)"), ((1,), "(1,) (tuple)")])
def test_what_is_no_reply_is_named(kind: Any, reply: Any, shown: str) -> None:
    class Careless(Scripted):
        def ask(self, samples: Any, deadline: Any) -> Any:
            return reply

    with kind(LOCAL, Careless(), policy()) as device:
        assert device.infer(0).fault == f"the remote's ask must return a Reply([label, …]), got {shown}"
        assert device.status.fell_back == {"invalid": 1}


def test_a_coroutine_in_place_of_an_answer_is_named() -> None:
    async def later(sample: int) -> int:
        return 1

    class Later(Scripted):
        async def ask(self, samples: Any, deadline: Any) -> Any:  # type: ignore[override]  # wrong on purpose
            return Reply([1])

    with pytest.raises(TypeError, match=r"^Device: remote has a coroutine function as ask; AsyncDevice takes it"):
        Device(LOCAL, Later(), policy())
    with patient(LOCAL, lambda sample: later(sample), policy()) as device:
        assert device.infer(0).fault == (
            "no label, but a coroutine (AsyncDevice takes coroutine functions): a label is a text or a number"
        )


@each_kind
def test_what_asking_costs_is_booked_also_where_it_failed(kind: Any) -> None:
    late = RemoteLate("no answer in time")
    with kind(LOCAL, Scripted(rest=late), policy(), breaker=Breaker(failures=100, interval_s=60)) as device:
        answers = [device.infer(sample) for sample in range(10)]
        assert device.status.offload_cost == pytest.approx(sum(answer.cost for answer in answers)) == pytest.approx(5.0)


def test_a_request_that_was_made_twice_is_paid_twice() -> None:
    price = MeasuredCost(wrong_answer=10, per_call=1, unit="€")
    down = RemoteUnreachable("reset")
    with patient(LOCAL, Scripted([down, None]), measured(), price=price) as device:
        assert device.infer(0).cost == pytest.approx(0.2)
        assert device.infer(1).cost == pytest.approx(0.1)


def test_a_thread_that_cannot_start_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    called = InThreads(FunctionRemote(lambda sample: sample))
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", _cannot_start)
        for _ in range(3):
            with pytest.raises(RuntimeError):
                called.ask([1], Deadline(time.monotonic() + 5))
    assert called.ask([1], Deadline(time.monotonic() + 5)).labels == [1]


def _cannot_start(_: Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_answers_travel_without_their_device() -> None:
    with patient(LOCAL, Scripted(), policy(), price=FixedCost(0.5)) as device:
        answer = device.infer(0)
    for other in (copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
        assert other == answer._replace(explains=other.explains)
        assert other.reason == f"Confidence {answer.confidence:.4g}; the device that knows why is elsewhere."


# -- what goes over the network ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "two words", "secret\r\nX-Evil: 1", "secret\n", "sécret"])
def test_a_token_cannot_smuggle_in_a_header(token: str) -> None:
    with pytest.raises(ValueError, match="OpenInference: token must be printable ASCII without spaces"):
        OpenInference("http://edge:8080", "remote", token=token)


@pytest.mark.parametrize(
    "url", ["http://e/a b", "http://e/?x=1", "http://e/#f", "http://u:p@e", "http://e/ä", "http://e/\x7f"]
)
def test_a_url_is_a_server_and_a_path(url: str) -> None:
    with pytest.raises(ValueError, match="OpenInference: url must have no spaces, query, fragment, user or password"):
        OpenInference(url, "remote")


def test_samples_are_not_changed_on_their_way() -> None:
    spec = TensorSpec("sample", "INT8", (-1, 1))
    with OipServer(lambda _: {"scores": np.ones((1, 3), np.float32)}, inputs=[spec]) as server:
        with patient(lambda _: [0.0, 0.1], OpenInference(server.url, "remote"), policy()) as device:
            assert "the sample has values beyond that" in str(device.infer(np.array([300])).fault)
        assert server.inferences == 0


@pytest.mark.medium
@each_kind
def test_an_address_that_swallows_leaves_time_for_the_next(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TensorSpec("scores", "FP32", (-1, 3))
    answering = OipServer(lambda _: {"scores": np.ones((1, 3), np.float32)}, outputs=[spec])
    with full_port() as swallowing, answering as server:
        ports = [urlsplit(url).port for url in (swallowing, server.url)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]
        numeric = socket.getaddrinfo

        def look_up(host: str, *arguments: Any, **options: Any) -> Any:
            named = host == "two.addresses" and not options.get("flags")
            return found if named else numeric(host, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        remote = OpenInference("http://two.addresses:1", "remote")
        with kind(lambda _: [0.0, 0.1], remote, policy(), deadline_s=2) as device:
            assert device.infer(np.zeros(3, np.float32)).source == "remote"
