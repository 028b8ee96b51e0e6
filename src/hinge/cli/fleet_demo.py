"""The command `fleet demo`: twenty devices share what they learn over a broker in this process; some of them lie."""

import asyncio
import logging
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Event, Thread
from typing import Any, Self

import numpy as np
from amqtt.broker import Broker as Amqtt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from hinge.bins import UniformBins
from hinge.cli import console
from hinge.cli.demo import RecordedSample, rows
from hinge.cli.device import StopSignals
from hinge.cli.device_view import Display, LiveView
from hinge.device.device import Device
from hinge.errors import HingeError
from hinge.fleet import Verdict
from hinge.fleet.broker import Broker
from hinge.fleet.member import Fleet
from hinge.ledger import Ledger
from hinge.models import Recorded
from hinge.policies import Sentinel
from hinge.policies.policy import Evidence
from hinge.simulation.fleet import Lie, tell
from hinge.simulation.sources import ConstantPrice, InOrder
from hinge.traces import load_trace

FLEET, OFFLOAD_COST, BINS = "demo", 0.5, 16
HONEST, TRACE = 17, "imagenet-mobilenet"
LATER = {  # who joins midway: what it is, its lie and its trace
    "liar-1": ("says local always agrees", Lie.OVER, TRACE),
    "liar-2": ("says local never agrees", Lie.UNDER, TRACE),
    "stranger": ("honest, other models", Lie.HONEST, "cifar100-resnet50"),
}
MIDWAY = 0.3  # of the samples of the honest devices
_SLOWEST_S = 0.7  # between the first two samples: most is learned then. 3 000 take 38 s
_LOOK_S, _TICK_S, _DRAWN_S, _LINE_S, _WAIT_S = 0.2, 0.02, 0.25, 3.0, 20.0
_EVENTS, _AROUND = 4, 7  # lines of the view: of events, and of everything but devices and events


# -- the broker -------------------------------------------------------------------------------------------------------


@contextmanager
def embedded_broker() -> Iterator[str]:
    """The address of an MQTT broker on a free port, in a thread of this process while the block runs."""
    for name in ("amqtt", "transitions"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # it warns of every client that leaves
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*probe.getsockname())
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    settings = {"listeners": {"default": {"type": "tcp", "bind": address}}, "plugins": plugins}

    async def start() -> Any:
        broker = Amqtt(settings)
        await broker.start()
        return broker

    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="hinge-broker", daemon=True)
    thread.start()
    broker = asyncio.run_coroutine_threadsafe(start(), loop).result(_WAIT_S)
    try:
        yield f"mqtt://{address}"
    finally:
        asyncio.run_coroutine_threadsafe(broker.shutdown(), loop).result(_WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_WAIT_S)
        loop.close()


class Traffic:
    """Counts what is published, in a thread."""

    def __init__(self, url: str) -> None:
        self._sizes = dict[tuple[str, bytes], int]()  # each once, as amqtt says some things twice
        self._ended = Event()
        self._thread = Thread(target=self._listen, args=[Broker("Traffic", url, mqtt="3.1.1")], daemon=True)

    def __str__(self) -> str:
        return f"{self.messages} messages, {self.size / 1000:.1f} kB"

    @property
    def messages(self) -> int:
        return len(self._sizes)

    @property
    def size(self) -> int:
        """How many bytes they had, with their topics."""
        return sum(self._sizes.copy().values())

    def _listen(self, broker: Broker) -> None:
        def take(topic: str, payload: bytes, retained: bool) -> None:
            self._sizes[topic, payload] = len(topic) + len(payload)

        with broker.connect("traffic", f"hinge/1/{FLEET}/#", ("none", b""), 2**16, take) as connection:
            while not self._ended.is_set():
                connection.turn(_LOOK_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_WAIT_S)


# -- the devices ------------------------------------------------------------------------------------------------------


class Liar(Sentinel):
    """Decides as others do, and tells something else than it has seen."""

    lie = Lie.OVER

    def own_evidence(self) -> Evidence:
        told = super().own_evidence()
        tell(self.lie, 0, 1.0 - OFFLOAD_COST, *(told[column] for column in ("offloads", "agreements") * 2))
        return told


class Member:
    """A device of the fleet, and its twin that is alone, on the same samples."""

    def __init__(self, name: str, about: str, lie: Lie, trace: str, order: np.random.Generator, samples: int) -> None:
        self.name, self.about = name, about
        self._policy = (Liar if lie else Sentinel)(BINS, OFFLOAD_COST)
        if isinstance(self._policy, Liar):
            self._policy.lie = lie
        self._twin, self._trace, self._record = Sentinel(BINS, OFFLOAD_COST), load_trace(trace), _record(trace)
        self._order = order.integers(0, len(self._trace), samples).tolist()
        self.paid, self.alone = Ledger(), Ledger()
        self.device: Device | None = None
        self.heard_by = self.believed_by = 0  # honest devices
        self.noted = ""  # the verdict that was said last

    @property
    def verdict(self) -> str:
        """In a sentence, once it is unanimous."""
        if self.heard_by < HONEST or 0 < self.believed_by < HONEST:
            return ""
        return f"{self.name} is believed by {'everybody' if self.believed_by else 'nobody'}"

    def join(self, url: str) -> None:
        fleet = Fleet(url, FLEET, self.name, mqtt="3.1.1", every_s=_LOOK_S)
        remote = self._trace.remote.tolist().__getitem__
        self.device = Device(Recorded(self._trace), remote, self._policy, fleet=fleet, deadline_s=_WAIT_S)

    def answer(self, until: int) -> None:
        """Answer samples up to this number, and let the twin decide about them, too."""
        if self.device is None:
            return
        for number in self._order[self.paid.samples : until]:
            row = self._record[number]
            row.add_to(self.paid, self.device.infer(number).source == "remote")
            row.replay(self._twin, self.alone)

    def as_dict(self) -> dict[str, Any]:
        figures: dict[str, Any] = {"device": self.name, "about": self.about, "samples": self.paid.samples}
        for name in ("offloads", "regret", "cost"):
            figures |= {name: getattr(self.paid, name), f"{name}_alone": getattr(self.alone, name)}
        return {**figures, "heard_by": self.heard_by, "believed_by": self.believed_by}

    def cells(self) -> tuple[str, ...]:
        if self.device is None:
            return self.name, "", "", "", "", "joins later"
        believed = f"{self.believed_by} of {self.heard_by}" if self.heard_by else "–"
        paid, alone = f"{self.paid.regret:.1f}", f"{self.alone.regret:.1f}"
        return self.name, str(self.paid.offloads), paid, alone, believed, self.about


@cache
def _record(trace: str) -> list[RecordedSample]:
    """What each row of a trace costs, accepted and offloaded."""
    recorded = InOrder(load_trace(trace), UniformBins(BINS), ConstantPrice(OFFLOAD_COST))
    return list(rows(recorded, len(recorded.trace)))


# -- what is seen of them ---------------------------------------------------------------------------------------------


class Show:
    """The fleet at work: its figures, what happened when, and a view of both."""

    def __init__(self, samples: int, seed: int, traffic: Traffic) -> None:
        chance = np.random.default_rng(seed)
        cameras = [f"camera-{number}" for number in range(1, HONEST + 1)]
        self.honest = [Member(name, "", Lie.HONEST, TRACE, chance, samples) for name in cameras]
        self.later = [Member(name, *about, chance, samples) for name, about in LATER.items()]
        self.samples, self.seed, self.traffic = samples, seed, traffic
        self.done, self.seconds = 0, 0.0  # samples of each honest device, and the time
        self.events: list[tuple[float, str]] = []

    @property
    def present(self) -> list[Member]:
        return [each for each in (*self.honest, *self.later) if each.device is not None]

    def look(self) -> None:
        """Ask every honest device whom it believes."""
        statuses = [each.device.status.fleet for each in self.honest if each.device is not None]
        verdicts = [status.verdicts for status in statuses if status is not None]
        for each in self.present:
            found = [said[each.name] for said in verdicts if each.name in said]
            each.heard_by, each.believed_by = len(found), found.count(Verdict.KIN)
            if each in self.later and each.verdict not in ("", each.noted):
                each.noted = each.verdict
                self.note(each.verdict)

    def note(self, event: str) -> None:
        self.events.append((round(self.seconds, 1), event))

    def each(self, figure: str) -> tuple[float, float]:
        """A sum of an honest device on average, and that of its twin."""
        sums = [(getattr(member.paid, figure), getattr(member.alone, figure)) for member in self.honest]
        paid, alone = np.mean(sums, axis=0).tolist()
        return paid, alone

    def sentences(self) -> Iterator[str]:
        """What came of it, to be quoted."""
        paid, alone = self.each("regret")
        yield (
            f"{HONEST} honest devices shared what {self.done} samples each had taught them: each paid {paid:.1f} more "
            f"than the best rule, instead of {alone:.1f} alone, where a mistake costs 1 and an offload {OFFLOAD_COST}."
        )
        for each in self.later:
            if each.device is not None:
                yield f"{each.name} ({each.about}) is believed by {each.believed_by} of {HONEST}."
        yield f"In all, {self.traffic} were published."

    def as_dict(self) -> dict[str, Any]:
        return {
            "samples": self.done,
            "complete": self.done == self.samples,
            "seconds": self.seconds,
            "seed": self.seed,
            "offload_cost": OFFLOAD_COST,
            "messages": self.traffic.messages,
            "bytes": self.traffic.size,
            "devices": [each.as_dict() for each in self.present],
            "events": [{"second": second, "event": event} for second, event in self.events],
            "summary": " ".join(self.sentences()),
        }

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"hinge fleet demo: {self.done} of {self.samples} samples each; {self.traffic}", style="bold")
        table = console.table("device", "offloads", "regret", "alone", "believed by", right=True)
        table.add_column("", no_wrap=True)
        room = terminal.size.height - len(self.later) - _EVENTS - _AROUND
        shown = self.honest if room >= HONEST else self.honest[: max(1, room - 1)]
        for each in shown:
            table.add_row(*each.cells(), style="green")
        if len(shown) < HONEST:
            table.add_row(f"{HONEST - len(shown)} more", style="green")
        (paid, alone), (offloads, _) = self.each("regret"), self.each("offloads")
        table.add_row("on average", f"{offloads:.0f}", f"{paid:.1f}", f"{alone:.1f}", style="bold green")
        for each in self.later:
            table.add_row(*each.cells(), style="red" if each.device else "dim")
        yield table
        for second, event in self.events[-_EVENTS:]:
            yield Text(f"{second:5.1f} s  {event}", style="yellow")


# -- the run ----------------------------------------------------------------------------------------------------------


def run(samples: int, seed: int, json: bool) -> None:
    """Run the demo, and print what came of it."""
    signals = StopSignals()
    with console.interruptible(), embedded_broker() as url, Traffic(url) as traffic:
        show = Show(samples, seed, traffic)
        try:
            with console.status(f"starting {HONEST} devices"):
                _start(show.honest, url)
            watched = console.out.is_terminal and not json
            with LiveView(show) if watched else Display(), signals:
                _play(show, url, signals, lines=not json and not watched)
        finally:
            with ThreadPoolExecutor(len(show.present) or 1) as threads:  # each waits for the broker
                list(threads.map(Device.close, [each.device for each in show.present if each.device is not None]))
    if json:
        console.print_json(show.as_dict())
    elif show.done:
        for sentence in show.sentences():
            console.say(sentence)
    if signals.stopped_by is not None:
        console.end_interrupted(code=128 + signals.stopped_by)


def _start(members: Sequence[Member], url: str) -> None:
    for each in members:
        each.join(url)
    end = time.monotonic() + _WAIT_S
    while not all(each.device and (found := each.device.status.fleet) and found.online for each in members):
        if time.monotonic() > end:
            raise HingeError(f"the devices did not reach the broker at {url} in {_WAIT_S:.0f} s")
        time.sleep(_TICK_S)


def _play(show: Show, url: str, signals: StopSignals, lines: bool) -> None:
    """Let every device answer the samples that are due, and the others join midway."""
    looked = said = 0.0
    told, midway = 0, 0
    for due in signals.until_stopped(_due(show)):
        for each in show.honest:
            each.answer(due)
        show.done = due
        if due >= MIDWAY * show.samples and not midway:
            midway = due
            for each in show.later:
                each.join(url)
            show.note("two liars join, and a device with other models")
        for each in show.later:
            each.answer(due - midway)
        if show.seconds - looked > _DRAWN_S or due == show.samples:
            looked = show.seconds
            show.look()
        if lines and show.seconds - said > _LINE_S:
            said = show.seconds
            paid, alone = show.each("regret")
            line = f"{due} of {show.samples} samples, regret {paid:.1f} per device, alone {alone:.1f}"
            console.note(f"{line}; {show.traffic}")
        for second, event in show.events[told:] if lines else ():
            console.note(f"{second:.1f} s: {event}")
        told = len(show.events)


def _due(show: Show) -> Iterator[int]:
    """How many samples each device should have answered by now; fewer on a busy machine, where messages are late."""
    began, clock, due = time.monotonic(), 0.0, 0
    while due < show.samples:
        time.sleep(_TICK_S)
        before, show.seconds = show.seconds, time.monotonic() - began
        clock += min(show.seconds - before, 5 * _TICK_S)
        due = min(show.samples, int((clock / _SLOWEST_S) ** 2))
        yield due
