"""A device under attack: hostile replies, forks, cancellations, and a system that has nothing left."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hinge import AsyncDevice, Breaker, Device, FixedCost, Gate, OpenInference
from hinge.device import async_device
from hinge.errors import RemoteInvalid
from hinge.oip.messages import parse_request
from hinge.oip.tensors import TensorSpec
from hinge.policies import AlwaysRemote
from hinge.remotes import Deadline, Reply
from tests.device.worlds import KINDS, LOCAL, InLoop, policy, true_label
from tests.faults.counts import either
from tests.faults.setting import each_kind, tireless
from tests.support.loopback import Http, OipServer

pytestmark = pytest.mark.server
LATE_S = 1.0  # over the deadline: far more than any machine needs, and less than what is waited for takes
SCORES = TensorSpec("scores", "FP32", (-1, 3))
SAMPLE = np.zeros(3, np.float32)
Record = Callable[[str, object], None]  # pytest's record_property: figures for docs/attacks.md


def always(kind: Any, remote: Any, **options: Any) -> Any:
    """A device that offloads everything."""
    terms = {"price": FixedCost(0.5), "breaker": tireless(), **options}
    return kind(lambda _: [0.0, 0.1], remote, AlwaysRemote(bins=16), **terms)


class Lying(OipServer):
    """Answers inferences with what `lie` makes of the honest response."""

    def __init__(self, lie: Callable[[Http], bytes], **options: Any) -> None:
        super().__init__(lambda _: {"scores": np.eye(3, dtype=np.float32)[:1]}, outputs=[SCORES], **options)
        self._lie = lie

    async def _serve(self, connection: Any) -> None:
        while (request := await connection.read()) is not None:
            response = self._respond(request)
            await connection.send(self._lie(response) if request.start.startswith("POST") else response.raw)


# -- M1: replies that are dear to read --------------------------------------------------------------------------------


def padded(response: Http) -> bytes:
    """The same, with 8 MiB of numbers that nobody asked for."""
    extra = b',{"name":"more","shape":[1000000],"datatype":"FP64","data":[' + b"0.1234567," * 838_860 + b"0]}]}"
    body = response.body.removesuffix(b"]}") + extra
    return response._replace(body=body, headers={**response.headers, "content-length": str(len(body))}).raw


@each_kind
def test_m1_a_reply_far_larger_than_the_answer_is_refused_unread_and_in_time(
    kind: Any, record_property: Record
) -> None:
    with Lying(padded) as server, always(kind, OpenInference(server.url, "remote"), deadline_s=0.2) as device:
        device.infer(SAMPLE)  # the metadata
        took, answers = list[float](), list[Any]()
        for _ in range(3):
            began = time.monotonic()
            answers.append(device.infer(SAMPLE))
            took.append(time.monotonic() - began)
        record_property("seconds at a deadline of 0.2", round(max(took), 2))
        assert max(took) < 0.2 + LATE_S / 4
        assert {answer.source for answer in answers} == {"local"}
        answer = answers[-1]
        assert isinstance(answer.failure, RemoteInvalid)
        assert "longer than" in str(answer.fault)


# -- M3: cancellation -------------------------------------------------------------------------------------------------


async def quick(sample: Any) -> int:
    await asyncio.sleep(0)
    return 1


def cancellable(remote: Any, **options: Any) -> AsyncDevice:
    gate = Gate(AlwaysRemote(bins=16))
    return AsyncDevice(lambda _: [0.0, 0.1], remote, gate, price=FixedCost(0.5), breaker=tireless(), **options)


@pytest.mark.parametrize("remote", [quick, lambda _: 1], ids=["coroutine", "function"])
def test_m3_a_cancelled_loop_of_offloads_ends(remote: Any, record_property: Record) -> None:
    async def main() -> int:
        survivors = 0
        async with cancellable(remote) as device:
            for turn in range(100):

                async def forever() -> None:
                    while True:
                        await device.infer(1.0)

                task = asyncio.create_task(forever())
                for _ in range(turn % 13):
                    await asyncio.sleep(0)
                task.cancel()
                done, _ = await asyncio.wait([task], timeout=0.5)
                survivors += not done
                while not task.done():  # or this program would never end
                    task.cancel()
                    await asyncio.wait([task], timeout=0.01)
            assert device.breaker.counts.under_way == 0
            assert device.policy.state()["pending"] == []
        return survivors

    survivors = asyncio.run(main())
    record_property("of 100 cancelled loops went on", survivors)
    assert survivors == 0


def test_m3_a_task_group_with_an_error_ends_its_offloads() -> None:
    async def main() -> None:
        async with cancellable(quick, in_flight=1) as device:

            async def forever() -> None:
                while True:
                    await device.infer(1.0)

            async def fails() -> None:
                await asyncio.sleep(0.02)
                raise LookupError

            async def together() -> None:
                async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                    for _ in range(4):
                        group.create_task(forever())
                    group.create_task(fails())

            for _ in range(10):
                with pytest.raises(ExceptionGroup):
                    await together()

    asyncio.run(main())


def test_m3_an_event_loop_shuts_down_amid_offloads() -> None:
    async def main() -> None:
        device = cancellable(quick, in_flight=2)

        async def forever() -> None:
            while True:
                await device.infer(1.0)

        tasks = [asyncio.create_task(forever()) for _ in range(8)]
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in tasks)

    for _ in range(10):
        began = time.monotonic()
        asyncio.run(main())  # cancels what still runs, and waits for it
        assert time.monotonic() - began < 5


# -- R12, D2: remotes and local models that take their time -----------------------------------------------------------


class Sleeping:
    """A user's remote that heeds no deadline."""

    def ask(self, samples: Any, deadline: Deadline) -> Reply:
        time.sleep(1.5)
        return Reply([0] * len(samples))

    def close(self) -> None:
        """Nothing is kept open."""


class Stubborn:
    """The same for an event loop: it heeds no cancellation either."""

    async def ask_async(self, samples: Any, deadline: Deadline) -> Reply:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return Reply([0] * len(samples))

    async def close_async(self) -> None:
        """Nothing is kept open."""


@pytest.mark.parametrize(
    ("kind", "remote"),
    [(KINDS[0], Sleeping()), (KINDS[1], Sleeping()), (KINDS[1], Stubborn())],
    ids=["threads", "event loop", "a coroutine that heeds no cancellation"],
)
def test_r12_the_deadline_holds_for_a_users_remote_that_does_not_keep_it(kind: Any, remote: Any) -> None:
    with always(kind, remote, deadline_s=0.1) as device:
        began = time.monotonic()
        answer = device.infer(1.0)
        assert time.monotonic() - began < 1.0
        assert (answer.source, answer.fault) == ("local", "no answer in time")
        began = time.monotonic()
        assert {answer.source for answer in device.infer_many([1.0] * 3)} == {"local"}
        assert time.monotonic() - began < 1.0


def test_r12_a_slow_local_model_delays_no_other_answer() -> None:
    def slow(sample: float) -> list[float]:
        time.sleep(0.05)
        return [0.0, sample]

    async def healthy(sample: float) -> int:
        await asyncio.sleep(0.005)
        return 1

    async def main() -> None:
        gate = Gate(AlwaysRemote(bins=16))
        late, over = list[float](), asyncio.Event()

        async def tick() -> None:
            while not over.is_set():
                began = time.monotonic()
                await asyncio.sleep(0.005)
                late.append(time.monotonic() - began - 0.005)

        async with AsyncDevice(slow, healthy, gate, price=FixedCost(0.5), deadline_s=0.2) as device:
            ticking = asyncio.create_task(tick())
            for _ in range(3):
                answers = await asyncio.gather(*(device.infer(1.0) for _ in range(20)))
                assert {answer.source for answer in answers} == {"remote"}
            over.set()
            await ticking
            assert device.status.breaker == "closed"
        assert sorted(late)[len(late) // 2] < 0.04, "the event loop ran beside the local model"

    asyncio.run(main())


def test_r12_a_quick_local_model_runs_in_the_event_loop() -> None:
    threads = set[int]()

    def local(sample: float) -> list[float]:
        threads.add(threading.get_ident())
        return [0.0, sample]

    with InLoop(local, lambda _: 1, policy(), deadline_s=30) as device:
        for _ in range(50):
            device.infer(3.0)
        threads.clear()
        device.infer(3.0)
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize(("took_s", "here"), [(0.0015, True), (0.0025, False)])
def test_r12_a_local_model_of_up_to_two_milliseconds_is_not_handed_over(
    took_s: float, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, clock = set[int](), itertools.count(0.0, took_s)
    monkeypatch.setattr(async_device, "time", SimpleNamespace(perf_counter=lambda: next(clock)))

    def local(sample: float) -> list[float]:
        threads.add(threading.get_ident())
        return [0.0, sample]

    with InLoop(local, lambda _: 1, policy(), deadline_s=30) as device:
        device.infer(3.0)  # the first is timed in a worker thread
        threads.clear()
        device.infer(3.0)
    assert (threads == {threading.get_ident()}) == here


# -- M5: what a remote writes to the operator -------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("start", ["HTTP/1.1 500 \x1b]0;owned\x07\x1b[2J", "HTTP/1.1 \x1b[2J" + "x" * 60_000])
def test_m5_a_status_line_reaches_nobody_raw_or_at_length(
    kind: Any, start: str, caplog: pytest.LogCaptureFixture, record_property: Record
) -> None:
    with Lying(lambda response: response._replace(start=start).raw) as server:
        breaker = Breaker(failures=2, interval_s=60)
        remote = OpenInference(server.url, "remote")
        with always(kind, remote, deadline_s=10, breaker=breaker) as device:
            answers = [device.infer(SAMPLE) for _ in range(6)]
            shown = [str(answer.as_dict()) + answer.reason + repr(answer) for answer in answers]
            shown += [str(device.status), *(record.message for record in caplog.records)]
    record_property("raw texts shown", sum(not text.isprintable() for text in shown))
    record_property("longest fault", max(len(str(answer.fault)) for answer in answers))
    assert {answer.source for answer in answers} == {"local"}
    assert all(text.isprintable() for text in shown)
    assert max(len(str(answer.fault)) for answer in answers) < 400


@each_kind
@pytest.mark.parametrize("label", ["\x1b]0;owned\x07", "cat\n", "x" * 60_000, "\u202egnp.exe"], ids=range(4))
def test_m5_a_label_that_is_no_plain_text_is_no_answer(kind: Any, label: str) -> None:
    with always(kind, lambda _: label, deadline_s=10) as device:
        answer = device.infer(1.0)
        assert answer.source == "local"
        assert str(answer.fault).isprintable()
        assert len(str(answer.fault)) < 400
        assert device.policy.learned == 0


@each_kind
def test_m5_an_exception_of_a_remote_is_escaped_and_cut(kind: Any) -> None:
    def fails(_: Any) -> int:
        raise ValueError("\x1b[2J" + "x" * 60_000)

    with always(kind, fails, deadline_s=10) as device:
        fault = str(device.infer(1.0).fault)
        assert fault.startswith("ValueError: \\x1b[2Jx")
        assert len(fault) < 400


# -- M6: interim responses --------------------------------------------------------------------------------------------


@contextmanager
def flooding(flood: bytes) -> Iterator[str]:
    """A server that describes a model, and then floods whoever asks it."""

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(2**16):
                    if not data.startswith(b"POST"):
                        path = data.split(b" ")[1].decode().rstrip("/")
                        connection.sendall(pages[path])
                        continue
                    while not over.is_set():
                        connection.sendall(flood)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with OipServer(lambda _: {"scores": np.eye(3, dtype=np.float32)[:1]}, outputs=[SCORES]) as honest:
        gets = {page: Http(f"GET {page} HTTP/1.1", {}, b"") for page in ("/v2", "/v2/models/remote")}
        pages = {page: honest._respond(request).raw for page, request in gets.items()}
    over, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))
    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(10)


@each_kind
@pytest.mark.parametrize("status", [100, 103])
def test_m6_an_interim_response_is_not_the_final_one(kind: Any, status: int) -> None:
    interim = b"HTTP/1.1 %d -\r\nLink: </style>\r\n\r\n" % status
    lying = Lying(lambda response: interim + response.raw)
    with lying as server, always(kind, OpenInference(server.url, "remote"), deadline_s=10) as device:
        assert [device.infer(SAMPLE).source for _ in range(5)] == ["remote"] * 5


@each_kind
def test_m6_a_body_in_endless_tiny_chunks_is_left_in_time(kind: Any) -> None:
    head = b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = flooding(head + b"1\r\n0\r\n" * 20_000)
    with chunks as url, always(kind, OpenInference(url, "remote"), deadline_s=0.3, batch=1) as device:
        device.infer(SAMPLE)
        began = time.monotonic()
        assert {answer.source for answer in device.infer_many([SAMPLE] * 8)} == {"local"}
        assert time.monotonic() - began < 0.3 + LATE_S


# -- M11: answers that were sent before the question ------------------------------------------------------------------


@each_kind
def test_m11_an_answer_sent_in_advance_answers_nothing(kind: Any, record_property: Record) -> None:
    """Each response is followed by another, with the label 2 and an id that a counter would have next."""
    number = [1]

    def twice(response: Http) -> bytes:
        number[0] += 1
        guess = response.body.replace(b"1.0,0.0,0.0", b"0.0,0.0,1.0")
        guess = re.sub(rb'"id":"[^"]*"', b'"id":"%d"' % number[0], guess)
        return response.raw + Http(response.start, {"content-length": str(len(guess))}, guess).raw

    with Lying(twice) as server, always(kind, OpenInference(server.url, "remote"), deadline_s=10) as device:
        answers = [device.infer(SAMPLE) for _ in range(40)]
    record_property("of 40 answers were sent in advance", sum(answer.label == 2 for answer in answers))
    assert {(answer.label, answer.source) for answer in answers} == {(0, "remote")}


def test_m11_ids_are_random() -> None:
    ids = set[str]()

    class Noting(OipServer):
        def _infer(self, request: Any) -> Any:
            ids.update(re.findall(r'"id":"([^"]*)"', request.body.decode("latin-1")))
            return super()._infer(request)

    with Noting(lambda _: {"scores": np.eye(3, dtype=np.float32)[:1]}, outputs=[SCORES]) as server:
        for _ in range(2):  # two devices
            remote = OpenInference(server.url, "remote")
            for _ in range(20):
                remote.ask([SAMPLE], Deadline.after(10, now=time.monotonic()))
            remote.close()
    assert len(ids) == 40
    assert all(len(id) >= 16 for id in ids)


# -- M2: fork ---------------------------------------------------------------------------------------------------------


def start_child(work: Callable[[], bool]) -> int:
    """Fork a child that ends with status 0 if the work says True; returns its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return child


def ended_well(child: int, within_s: float = 20.0) -> bool:
    """Whether a child ends with status 0 in time; it is killed if it hangs."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def numbered(delay_s: float) -> OipServer:
    """A server whose label is the sample itself."""

    def answer(inputs: dict[str, Any]) -> dict[str, Any]:
        time.sleep(delay_s)
        return {"label": inputs["sample"].astype(np.int64)}

    spec = TensorSpec("sample", "INT64", (-1, 1))
    return OipServer(answer, inputs=[spec], outputs=[TensorSpec("label", "INT64", (-1, 1))])


def right(device: Device, samples: range) -> bool:
    answers = [device.infer(np.array([sample])) for sample in samples]
    pairs = zip(samples, answers, strict=True)
    return all(answer.source == "local" or answer.label == sample for sample, answer in pairs)


def test_m2_parent_and_child_get_their_own_answers(record_property: Record) -> None:
    """Each of them over connections of its own: on a shared one, who reads first gets the other's answer."""
    senders: dict[Any, set[bool]] = {}  # by connection: whether samples of a child, or of the parent, came over it

    class Noting(OipServer):
        async def _serve(self, connection: Any) -> None:
            while (request := await connection.read()) is not None:
                if request.start.startswith("POST"):
                    sample = parse_request(request.headers, request.body).inputs["sample"]
                    senders.setdefault(connection, set()).add(bool(sample.max() >= 10**6))
                    await asyncio.sleep(0.005)
                await connection.send(self._respond(request).raw)

    spec = TensorSpec("sample", "INT64", (-1, 1))
    honest = Noting(
        lambda inputs: {"label": inputs["sample"].astype(np.int64)},
        inputs=[spec],
        outputs=[TensorSpec("label", "INT64", (-1, 1))],
    )
    with honest as server, always(Device, OpenInference(server.url, "remote"), deadline_s=10) as device:
        assert right(device, range(5))
        outcomes = list[bool]()
        for turn in range(5):
            mine = range(1000 * turn, 1000 * turn + 15)
            theirs = range(10**6 + 1000 * turn, 10**6 + 1000 * turn + 15)
            child = start_child(lambda numbers=theirs: right(device, numbers))  # type: ignore[misc]  # a default binds the loop's value
            outcomes += [right(device, mine), ended_well(child)]
        shared = sum(len(kinds) > 1 for kinds in senders.values())
        record_property("connections used by parent and child", shared)
        record_property("fallbacks of 75", sum(device.status.fell_back.values()))
        assert all(outcomes)
        assert shared == 0
        assert device.status.answered_by_remote == 5 + 5 * 15
        assert sum(device.status.fell_back.values()) == 0


@pytest.mark.parametrize("many", [False, True], ids=["infer", "infer_many"])
def test_m2_a_child_of_a_busy_parent_answers(many: bool, record_property: Record) -> None:
    over = threading.Event()
    gate = Gate(AlwaysRemote(bins=16))

    def remote(sample: int) -> Any:
        time.sleep(0.002)  # so that all threads of the device are at work
        return true_label(sample)

    device = Device(LOCAL, remote, gate, price=FixedCost(0.5), batch=1, in_flight=8, deadline_s=10)

    def busy() -> None:
        while not over.is_set():
            device.infer_many(range(8)) if many else device.infer(3)

    def work() -> bool:
        answers = device.infer_many(range(16)) if many else [device.infer(sample) for sample in range(16)]
        return [answer.label for answer in answers] == [true_label(sample) for sample in range(16)]

    device.infer_many(range(16))
    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        hung = sum(not ended_well(start_child(work), 5.0) for _ in range(15))
        record_property("of 15 children did not answer", hung)
        assert hung == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()
        device.close()


# -- L3, L4, L5, L12, L13: a system that has nothing left -------------------------------------------------------------


def _cannot_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_l3_where_no_thread_can_start_all_are_answered_and_no_permit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inline:
        keeps_deadline = True

        def ask(self, samples: Any, deadline: Deadline) -> Reply:
            return Reply([true_label(sample) for sample in samples])

        def close(self) -> None:
            """Nothing is kept open."""

    gate = Gate(AlwaysRemote(bins=16))
    terms: dict[str, Any] = {"price": FixedCost(0.5), "batch": 1, "in_flight": 2}
    with Device(LOCAL, Inline(), gate, **terms) as device:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", _cannot_start)
            for _ in range(20):
                assert [answer.source for answer in device.infer_many(range(8))] == ["remote"] * 8
        assert [answer.source for answer in device.infer_many(range(8))] == ["remote"] * 8
    gate = Gate(AlwaysRemote(bins=16))
    with Device(LOCAL, true_label, gate, shadow="local", **terms) as device:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", _cannot_start)
            answers = [device.infer(sample) for sample in range(50)]
            assert {answer.source for answer in answers} == {"local"}
        assert device.status.dropped == 50
        for sample in range(8):  # as many as may wait
            device.infer(sample)
    assert device.status.answered_by_remote == 8


def test_l3_an_event_loop_answers_where_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with InLoop(LOCAL, true_label, policy(), deadline_s=10, breaker=tireless()) as device:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", _cannot_start)
            for _ in range(20):
                assert device.infer(3).source == "local"
        assert device.infer(3).source == "remote"


def run_program(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_l4_a_remote_that_was_out_of_reach_for_want_of_descriptors_is_reached_again() -> None:
    with numbered(0) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        out = run_program(f"""
import os, resource, sys
import numpy as np
from hinge import Device, FixedCost, OpenInference
from hinge.policies import AlwaysRemote
device = Device(lambda _: [0.0, 0.1], OpenInference({url!r}, "remote"), AlwaysRemote(16), price=FixedCost(0.5),
                deadline_s=10)
print("encodings.idna" in sys.modules)  # a lookup needs it, and never tries again to load what it could not
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
print(device.infer(np.array([7])).source)
for each in held:
    os.close(each)
print([device.infer(np.array([number])).label for number in range(3)])
device.close()
""")
    assert out.splitlines() == ["True", "local", "[0, 1, 2]"]


def test_l5_the_first_offload_imports_nothing() -> None:
    with numbered(0) as server:
        out = run_program(f"""
import asyncio, sys
import numpy as np
from hinge import AsyncDevice, Device, FixedCost, OpenInference
from hinge.policies import AlwaysRemote
def made(kind):
    return kind(lambda _: [0.0, 0.1], OpenInference({server.url!r}, "remote"), AlwaysRemote(16),
                price=FixedCost(0.5), deadline_s=10)
async def main():
    device = made(AsyncDevice)
    before = set(sys.modules)
    assert (await device.infer(np.array([7]))).source == "remote"
    print(sorted(set(sys.modules) - before))
    await device.close()
asyncio.run(main())
device = made(Device)
before = set(sys.modules)
assert device.infer(np.array([7])).source == "remote"
print(sorted(set(sys.modules) - before))
device.close()
""")
    assert out.splitlines() == ["[]", "[]"]


def test_l12_ctrl_c_loses_no_permits() -> None:
    """Interrupted again and again while it waits for its remote, a device still has room for as many requests."""
    out = run_program(
        f"INTERRUPTS = {either(150, 3000)}\n"
        + """
import os, signal, threading, time
from hinge import Breaker, Device, FixedCost
from hinge.policies import AlwaysRemote
breaker = Breaker(failures=10**9, at_once=10**9, interval_s=3600)
device = Device(lambda _: [0.0, 0.1], lambda _: (time.sleep(0.002), 1)[1], AlwaysRemote(16), price=FixedCost(0.5),
                breaker=breaker, in_flight=4, deadline_s=5)
def ctrl_c(*_):
    if armed:  # and not where the program itself is not ready for it
        armed.clear()
        raise KeyboardInterrupt
def interrupt():
    for _ in range(INTERRUPTS):
        while not armed:
            time.sleep(0.0005)
        time.sleep(0.004)
        os.kill(os.getpid(), signal.SIGINT)
    over.append(True)
over, armed, interrupted = [], [], 0
signal.signal(signal.SIGINT, ctrl_c)
thread = threading.Thread(target=interrupt)
thread.start()
while not over:
    try:
        armed.append(True)
        while not over:
            device.infer(1.0)
    except KeyboardInterrupt:
        interrupted += 1
signal.signal(signal.SIGINT, signal.SIG_IGN)
thread.join()
began = time.monotonic()
answers = [answer for _ in range(5) for answer in device.infer_many([1.0] * 8)]
print(interrupted > 50, {answer.source for answer in answers}, time.monotonic() - began < 4)
device.close()
"""
    )
    assert out.splitlines() == ["True {'remote'} True"]


def test_l13_hung_lookups_share_one_thread_and_keep_no_event_loop(
    monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    answer, over = socket.getaddrinfo, threading.Event()

    def hangs(*arguments: Any, **options: Any) -> Any:
        if not options.get("flags"):
            over.wait(20)
        return answer(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    before = set(threading.enumerate())

    def started() -> list[str]:
        """The threads since then, without those of the local model: it has as many as it needs, up to a core each."""
        names = [thread.name for thread in threading.enumerate() if thread not in before]
        assert sum(name.startswith("hinge-local") for name in names) <= (os.cpu_count() or 1)
        return [name for name in names if not name.startswith("hinge-local")]

    async def main() -> None:
        remote = OpenInference("http://slow.invalid:1", "remote")
        device = cancellable(remote, deadline_s=0.03, in_flight=4)
        for _ in range(5):
            answers = await asyncio.gather(*(device.infer(1.0) for _ in range(4)))
            assert {answer.fault for answer in answers} == {"no answer in time"}
        record_property("threads for 20 hung lookups", len(set(threading.enumerate()) - before))
        assert started() == ["hinge-lookup"]
        await device.close()

    began = time.monotonic()
    asyncio.run(main())
    record_property("seconds until asyncio.run ended", round(time.monotonic() - began, 1))
    assert time.monotonic() - began < 5
    device = always(Device, OpenInference("http://slower.invalid:1", "remote"), deadline_s=0.03)
    assert [device.infer(1.0).fault for _ in range(6)] == ["no answer in time"] * 6
    assert started() == ["hinge-lookup"] * 2
    device.close()
    over.set()
    end = time.monotonic() + 20
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.01)
