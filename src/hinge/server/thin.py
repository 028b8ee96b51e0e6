"""Thin devices at the server: their reports come with inferences, and the tables that it learns go out over MQTT.

A report is in the parameters of an inference (`hinge.oip.messages.RequestParameters`). What cannot be one is dropped
and counted; the inference is answered in any case. A thread of its own connects to the broker, finds out whom to trust,
and publishes each table that has changed. Without a broker the server learns on, and devices go on with the tables that
they have, until those end.

*The counter* of a table is the number of offloads learned from, which the state folder keeps; and larger than any that
the broker still has, unless that leaves no later one: then ours takes its place, for devices that start anew.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hinge._checks import shown, whole
from hinge.device.metrics import families
from hinge.device.store import MemoryStore, SqliteStore
from hinge.errors import HingeError, InvalidMessage, InvalidState, InvalidValue, RemoteInvalid
from hinge.fleet.broker import Broker, BrokerFailed, Connection, Link
from hinge.fleet.messages import (
    LAST_TABLE,
    MOST_BINS,
    MOST_TABLES,
    TABLE,
    Dropped,
    Table,
    build_table,
    checked_name,
    parse_table,
    table_topic,
)
from hinge.fleet.pooling import pool
from hinge.fleet.thin import Kind
from hinge.gate import Gate
from hinge.oip.messages import RequestParameters
from hinge.policies import Sentinel
from hinge.remotes.open_inference import Signature
from hinge.server.models import Tensors
from hinge.server.observability import EventLog

MOST_KINDS = 32
EVERY_S = 0.1  # between two looks at what has changed
LISTEN_S = 1.0  # for what the broker has retained, before anything is published
CLOSE_S = 2.0
JUDGING = 0.05  # the share of a thread's time, at most
MORE = 1.2  # reports, by this factor, before devices are judged again

THIN_METRICS = {
    "hinge_thin_online": "1 while there is a connection to the broker",
    "hinge_thin_devices{kind}": "thin devices that have reported",
    "hinge_thin_trusted{kind}": "those of them whose reports count",
    "hinge_thin_reports_total{kind}": "offloads that were reported",
    "hinge_thin_alarms_total{kind}": "how often what was learned was dropped, as agreement had changed",
    "hinge_thin_tables_total{kind}": "tables that were published",
    "hinge_thin_dropped_total{reason}": "reports that were not counted",
    "hinge_thin_failures_total{kind}": "how often there was no connection to the broker",
}
THIN_REASONS = {
    "incomplete": "no device, bin or local answer",
    "name": "a kind or device whose name cannot stand in a topic",
    "bin": "a bin that the table does not have",
    "answer": "a local answer that the model cannot give, or not one sample",
    "model": "another model than that of the kind's first report",
    "crowd": "a kind or device beyond the most that are kept",
    "state": "a kind whose state cannot be opened",
}


class _NotCounted(InvalidMessage):
    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(f"{THIN_REASONS[reason]}: {problem}")
        self.reason = reason


@dataclass
class _Line:
    """A kind, where it is kept, and what the broker has of it."""

    kind: Kind
    store: MemoryStore
    model: str = ""  # of its first report
    reports: int = 0
    judged: int = 0  # reports when devices were judged the last time
    tables: int = 0
    told: tuple[int, ...] | None = None  # the licences that the broker has
    published: list[bytes] = field(default_factory=list)  # the last tables, which come back to us

    def table(self) -> tuple[tuple[int, ...], int]:
        return self.store.locked(lambda policy: (self.kind.licences, policy.learned))

    def judge(self) -> None:
        """Find out whom to trust; nobody waits meanwhile."""
        self.judged = self.reports
        verdicts = pool(*self.store.locked(lambda _: self.kind.told())).verdicts
        self.store.apply(lambda _: self.kind.trust(verdicts))


class ThinFleet(Collector):
    """Learns for the thin devices of a fleet, given to a `Server` as `thin=`.

    >>> ThinFleet("mqtt://127.0.0.1:9", name="cams", offload_cost=0.5)
    ThinFleet('cams', the broker at 127.0.0.1:9)

    `url`, `password` and `tls` are as for `Fleet`. All kinds have the same `bins` and `offload_cost`. What is
    learned is kept in the folder `state`, one for each kind.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        offload_cost: float,
        bins: int = 16,
        state: Path | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = checked_name("ThinFleet", "name", name)
        broker = Broker("ThinFleet", url, password, tls)
        self._link = Link(self.name, broker, "devices go on with the tables that they have", self._write)
        self._bins, self._cost = whole("ThinFleet", "bins", bins, 1, MOST_BINS), offload_cost
        self._policy()  # says what is wrong with the cost
        self._state = state
        self._lines: dict[str, _Line] = {}
        self._opener: ThreadPoolExecutor | None = None
        self._counters: dict[str, int] = {}  # the largest of each kind's tables
        self._log = EventLog("warning")
        self._ended, self._thread = Event(), Thread()
        self._judge_after = 0.0
        self._dropped = dict.fromkeys(THIN_REASONS, 0)

    def __repr__(self) -> str:
        return f"ThinFleet({self.name!r}, {self._link.broker})"

    def start(self, log: EventLog) -> None:
        """Go on from what the folder holds, and connect; the `Server` calls this."""
        self._log = log
        self._ended.clear()
        self._opener = ThreadPoolExecutor(1, "hinge-thin-open")  # one thread: no kind is opened twice
        try:
            self._open_kept()
        except BaseException:
            self.close()
            raise
        self._thread = Thread(target=self._run, name="hinge-thin", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Publish what was not published yet, and keep what was learned."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(2 * CLOSE_S)
        if self._opener is not None:
            self._opener.shutdown()
        while self._lines:
            self._lines.popitem()[1].store.close()

    # -- in the event loop --------------------------------------------------------------------------------------------

    async def report(self, model: str, said: RequestParameters, outputs: Tensors) -> None:
        """Learn from what came with an inference, whose outputs these are; what cannot be learned is counted."""
        try:
            await self._take(model, said, outputs)
        except _NotCounted as drop:
            self._dropped[drop.reason] += 1
            self._link.warn(drop.reason, f"a report is not counted: {drop}")

    async def _take(self, model: str, said: RequestParameters, outputs: Tensors) -> None:
        kind, device, bin, local = said.hinge_kind, said.hinge_device, said.hinge_bin, said.hinge_local
        if kind is None or device is None or bin is None or local is None:
            raise _NotCounted("incomplete", f"a report for {shown(kind)}")
        if bin >= self._bins:
            raise _NotCounted("bin", f"{bin} of {shown(device)}, and there are {self._bins}")
        agreed = local == _answer(outputs, local)
        line = await self._line(kind, device)
        if line.model not in ("", model):
            raise _NotCounted("model", f"{shown(device)} of {shown(kind)} asked {model!r}, and not {line.model!r}")
        try:
            line.store.apply(lambda _: line.kind.learn(device, bin, agreed, said.hinge_accepted))
        except Dropped as drop:
            raise _NotCounted("crowd", str(drop)) from None
        line.model = model
        line.reports += 1

    async def _line(self, kind: str, device: str) -> _Line:
        """The kind of a report; a new one is opened in a thread, as that waits for the disk."""
        try:
            checked_name("ThinFleet", "kind", kind), checked_name("ThinFleet", "device", device)
        except InvalidValue as error:
            raise _NotCounted("name", str(error)) from None
        if (line := self._lines.get(kind)) is not None:
            return line
        try:
            return await asyncio.get_running_loop().run_in_executor(self._opener, self._open_new, kind)
        except _NotCounted:
            raise
        except (HingeError, OSError) as error:
            raise _NotCounted("state", str(error)) from None

    def _open_kept(self) -> None:
        """The kinds that the folder holds."""
        if self._state is not None:
            self._state.mkdir(parents=True, exist_ok=True)
            for folder in sorted(path for path in self._state.iterdir() if path.is_dir()):
                self._open(checked_name("ThinFleet", "kind", folder.name))

    def _open_new(self, kind: str) -> _Line:
        """A kind that was not known when its report came; make room for it."""
        if kind not in self._lines and len(self._lines) >= MOST_KINDS:
            raise _NotCounted("crowd", f"{shown(kind)}, and {MOST_KINDS} kinds are known")
        return self._lines.get(kind) or self._open(kind)

    def _open(self, kind: str) -> _Line:
        gate = Gate(self._policy())
        store = MemoryStore(gate) if self._state is None else SqliteStore(self._state / kind, gate, background=True)
        policy = store.policy
        if not isinstance(policy, Sentinel):
            raise InvalidState(f"{self._state}: holds another policy than Sentinel")
        line = self._lines[kind] = _Line(Kind(policy), store)
        return line

    def _policy(self) -> Sentinel:
        return Sentinel(self._bins, self._cost)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        topic, client = table_topic(self.name, "+"), f"hinge-{self.name}-{TABLE}-{secrets.token_hex(4)}"

        def connect() -> Connection:
            for line in tuple(self._lines.values()):
                line.told = None
            return self._link.broker.connect(client, topic, None, 2 * 4 * MOST_BINS, self._heard)

        self._link.keep(self._ended, connect, self._publish, self._ended.wait)

    def _publish(self, connection: Connection) -> None:
        """Publish what changes, until the server is closed."""
        connection.turn(LISTEN_S)
        while not self._ended.is_set():
            connection.turn(EVERY_S)
            self._judge()
            self._say(connection)
        self._say(connection)
        connection.settle(CLOSE_S)

    def _say(self, connection: Connection) -> None:
        for kind, line in tuple(self._lines.items()):
            licences, learned = line.table()
            if licences == line.told or (line.told is None and not any(licences)):
                continue
            self._counters[kind] = counter = min(max(learned, self._counters.get(kind, 0) + 1), LAST_TABLE)
            message = build_table(Table(counter, licences))
            line.published = [*line.published[-16:], message]
            connection.publish(table_topic(self.name, kind), message)
            line.told, line.tables = licences, line.tables + 1

    def _judge(self) -> None:
        """Find out whom to trust, where much was told since the last time."""
        for line in tuple(self._lines.values()):
            began = time.monotonic()
            if line.kind.devices > 1 and line.reports > MORE * line.judged and began > self._judge_after:
                line.judge()
                now = time.monotonic()
                self._judge_after = now + (now - began) / JUDGING

    def _heard(self, topic: str, payload: bytes, retained: bool) -> None:
        """A table that the broker has, of us or of an earlier life."""
        kind = topic.rpartition("/")[2]
        line = self._lines.get(kind)
        try:
            table = parse_table(payload, self._bins)
        except Dropped:
            if line is not None:
                line.told = None  # what stands there is none of ours
            return
        if line is not None and not retained and payload in line.published:
            return
        if table.counter > MOST_TABLES:
            if line is not None:
                line.told = ()  # no table: ours takes its place, whatever it says
            what = f"{shown(topic)}, {table.counter}: who took that table takes no other until started anew"
            self._link.failed(BrokerFailed("muted", what))
            return
        if kind in self._counters or len(self._counters) < MOST_KINDS:
            self._counters[kind] = max(self._counters.get(kind, 0), table.counter)
        if line is None:
            return
        if retained:
            line.told = table.licences
        else:
            line.told = None
            self._link.warn("taken", f"another server publishes tables for {shown(topic)}")

    def _write(self, fleet: str, problem: str) -> None:
        self._log.write("warning", "thin devices", fleet=fleet, problem=problem)

    # -- for Prometheus -----------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        lines = dict(self._lines)
        figures = {
            "hinge_thin_online": self._link.online,
            "hinge_thin_devices{kind}": {name: line.kind.devices for name, line in lines.items()},
            "hinge_thin_trusted{kind}": {name: len(line.kind.trusted) for name, line in lines.items()},
            "hinge_thin_reports_total{kind}": {name: line.reports for name, line in lines.items()},
            "hinge_thin_alarms_total{kind}": {
                name: sum(line.kind.policy.alarms.values()) for name, line in lines.items()
            },
            "hinge_thin_tables_total{kind}": {name: line.tables for name, line in lines.items()},
            "hinge_thin_dropped_total{reason}": dict(self._dropped),
            "hinge_thin_failures_total{kind}": dict(self._link.failures),
        }
        return families(THIN_METRICS, figures)


def _answer(outputs: Tensors, local: int | str) -> Any:
    """The model's answer to the one sample, if the local one could be it."""
    name = next(iter(outputs))
    try:
        [answer] = Signature((), name).labels(outputs, 1)
    except RemoteInvalid as error:
        raise _NotCounted("answer", str(error)) from None
    scored = outputs[name].dtype.kind == "f"
    if type(local) is not type(answer) or (scored and not 0 <= int(local) < max(outputs[name].size, 2)):
        raise _NotCounted("answer", shown(local))
    return answer
