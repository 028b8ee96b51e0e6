"""Networks that can be cut: a broker and each member in a network namespace of its own, with a link between them.

A namespace belongs to a thread, and to the threads and processes that it starts. So a member that is made `inside` one
stays there, though it is in the process of the tests.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

_NETWORK = 0x40000000  # CLONE_NEWNET of <sched.h>
_libc = ctypes.CDLL(None, use_errno=True)


def ip(*words: object, of: str = "ip", check: bool = True) -> None:
    subprocess.run([of, *map(str, words)], check=check, capture_output=True)


@cache
def why_not() -> str | None:
    """Why there can be no namespaces here."""
    if not (shutil.which("ip") and shutil.which("tc")):
        return "not installed: iproute2"
    try:
        with star(1) as (_, [link]):
            for fault in Link.FAULTS:
                link.fail(fault)
            return None
    except subprocess.CalledProcessError as error:
        return f"no network namespaces can be made here, which needs root: {error.stderr.decode().strip()}"


class Namespace:
    """A network of its own, with the loopback device alone at first."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "Namespace":
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "dev", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        ip("netns", "delete", self.name)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """This thread, and what it starts, is in the namespace while the block runs."""
        with open("/proc/thread-self/ns/net") as outside, open(f"/run/netns/{self.name}") as here:
            _enter(here.fileno())
            try:
                yield
            finally:
                _enter(outside.fileno())


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


class Link:
    """The connection of a member to the namespace of the broker, and what can go wrong with it."""

    FAULTS = ("cut", "deaf", "mute", "slow")

    def __init__(self, broker: Namespace, member: Namespace, number: int) -> None:
        self._broker, self.member, self._near = broker, member, f"m{number}"
        self.host = f"10.77.{number}.1"  # of the broker
        ip("-n", broker.name, "link", "add", self._near, "type", "veth", "peer", "name", "m", "netns", member.name)
        for name, device, last in ((broker.name, self._near, 1), (member.name, "m", 2)):
            ip("-n", name, "address", "add", f"10.77.{number}.{last}/24", "dev", device)
            ip("-n", name, "link", "set", "dev", device, "up")

    def fail(self, fault: str) -> None:
        """Cut; deaf: the member gets nothing; mute: nothing comes from it; slow: 1 kB a second, and seconds late."""
        if fault == "cut":
            ip("-n", self.member.name, "link", "set", "dev", "m", "down")
        if fault == "deaf":
            self._queue(self._broker.name, self._near, "blackhole")
        if fault == "mute":
            self._queue(self.member.name, "m", "blackhole")
        if fault == "slow":
            for name, device in ((self._broker.name, self._near), (self.member.name, "m")):
                self._queue(name, device, "tbf", "rate", "8kbit", "burst", "1540", "latency", "5s")

    def heal(self) -> None:
        ip("-n", self.member.name, "link", "set", "dev", "m", "up")
        for name, device in ((self._broker.name, self._near), (self.member.name, "m")):
            ip("-n", name, "qdisc", "delete", "dev", device, "root", of="tc", check=False)  # where there is one

    def _queue(self, name: str, device: str, *settings: str) -> None:
        ip("-n", name, "qdisc", "replace", "dev", device, "root", *settings, of="tc")


@contextmanager
def star(members: int) -> Iterator[tuple[Namespace, list[Link]]]:
    """A namespace for a broker, and links to those of so many members."""
    with ExitStack() as stack:
        names = [f"hinge-{os.getpid()}-{number}" for number in range(members + 1)]
        broker, *others = [stack.enter_context(Namespace(name)) for name in names]
        yield broker, [Link(broker, member, number) for number, member in enumerate(others, 1)]
