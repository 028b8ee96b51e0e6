"""R1 where the system has nothing left: no thread, no descriptor, no time for an import; and under Ctrl-C."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from hinge import AsyncDevice, Device, FixedCost, Gate, OpenInference
from hinge.oip.tensors import TensorSpec
from hinge.policies import AlwaysRemote
from hinge.remotes import Deadline, Reply
from tests.device.worlds import LOCAL, InLoop, policy, true_label
from tests.faults.counts import either
from tests.faults.setting import always, tireless
from tests.support.loopback import OipServer


def numbered(delay_s: float) -> OipServer:
    """A server whose label is the sample itself."""

    def answer(inputs: dict[str, Any]) -> dict[str, Any]:
        time.sleep(delay_s)
        return {"label": inputs["sample"].astype(np.int64)}

    spec = TensorSpec("sample", "INT64", (-1, 1))
    return OipServer(answer, inputs=[spec], outputs=[TensorSpec("label", "INT64", (-1, 1))])


def _cannot_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_no_thread_can_start_all_are_answered_and_no_permit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_event_loop_answers_where_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_remote_that_was_out_of_reach_for_want_of_descriptors_is_reached_again() -> None:
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


def test_the_first_offload_imports_nothing() -> None:
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


def test_ctrl_c_loses_no_permits() -> None:
    """Interrupted again and again while it waits for its remote, a device still has room for as many requests."""
    out = run_program(
        f"INTERRUPTS = {either(150, 3000)}\n"
        + """
import os, signal, threading, time
from hinge import Breaker, Device, FixedCost
from hinge.policies import AlwaysRemote
breaker = Breaker(failures=10**9, interval_s=3600)
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


def test_hung_lookups_share_one_thread_and_keep_no_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
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
        device = always(AsyncDevice, remote, deadline_s=0.03, in_flight=4)
        for _ in range(5):
            answers = await asyncio.gather(*(device.infer(1.0) for _ in range(4)))
            assert {answer.fault for answer in answers} == {"no answer in time"}
        assert started() == ["hinge-lookup"]
        await device.close()

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 5
    device = always(Device, OpenInference("http://slower.invalid:1", "remote"), deadline_s=0.03)
    assert [device.infer(1.0).fault for _ in range(6)] == ["no answer in time"] * 6
    assert started() == ["hinge-lookup"] * 2
    device.close()
    over.set()
    end = time.monotonic() + 20
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.01)
