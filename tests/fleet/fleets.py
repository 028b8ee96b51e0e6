"""Devices for the tests of fleets, and somebody who listens."""

import json
from pathlib import Path
from threading import Event, Thread
from typing import Any

from hinge import Device, Fleet, Sentinel
from hinge.fleet.broker import Broker
from hinge.fleet.messages import Evidence, Presence, parse_evidence, parse_presence

BINS = 4


def scores(sample: float) -> list[float]:
    """Two classes; the first bins are never right, the upper ones always."""
    return [0.0, sample]


def member(url: str, device: str, state: Path | None = None, deadline_s: float = 30, **settings: Any) -> Device:
    """A device in the fleet `cams`, whose remote says 1 to all that is above 1."""
    fleet = Fleet(url, "cams", device, **{"mqtt": "3.1.1", "every_s": 0.05, **settings})
    policy = Sentinel(BINS, 0.5)
    return Device(scores, lambda sample: int(sample > 1), policy, state=state, fleet=fleet, deadline_s=deadline_s)


def teach(device: Device, offloads: int, sample: float = 0.1) -> None:
    """Let the device learn from so many offloads of samples that it never gets right, and so goes on to offload."""
    before = device.policy.learned
    while device.policy.learned < before + offloads:
        device.infer(sample)


def say(url: str, *messages: tuple[str, bytes], **settings: Any) -> None:
    """Publish as somebody who may publish anything."""
    broker = Broker("Anybody", url, **{"mqtt": "5", **settings})
    with broker.connect("anybody", "none", None, 4096, lambda *_: None) as connection:
        for topic, payload in messages:
            connection.publish(topic, payload)
        connection.settle(10)


class Listener:
    """Everything that is published in the fleet `cams`, in a thread."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.evidence: dict[str, list[Evidence]] = {}
        self.status: dict[str, list[Presence]] = {}
        self.messages: list[tuple[str, bytes]] = []
        self._ended = Event()
        self._broker = Broker("Listener", url, **{"mqtt": "3.1.1", **settings})
        self._thread = Thread(target=self._listen, daemon=True)

    def _listen(self) -> None:
        with self._broker.connect("listener", "#", ("listener/will", b""), 2**20, self._take) as connection:
            while not self._ended.is_set():
                connection.turn(0.05)

    def _take(self, topic: str, payload: bytes, retained: bool) -> None:
        self.messages.append((topic, payload))
        if topic.endswith("/evidence") and payload[:1] == b"{":
            said = parse_evidence(topic, payload, "cams", json.loads(payload)["gate"], BINS)
            known = self.evidence.setdefault(said.device, [])
            known += [said] if said not in known else []  # amqtt says some things twice
        elif topic.endswith("/status"):
            presence = parse_presence(topic, payload, "cams")
            self.status.setdefault(presence.device, []).append(presence)

    def __enter__(self) -> "Listener":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)
