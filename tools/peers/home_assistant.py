"""Home Assistant, with nothing but its MQTT integration, which finds devices on a broker by itself."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.peers.environments import Environment, PeerUnavailable
from tools.peers.process import free_ports, started, workspace

ENVIRONMENT = Environment("home_assistant", "2024.3.3", python_below=(3, 13))


class HomeAssistant:
    """One that is running."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def states(self) -> dict[str, dict[str, Any]]:
        """The latest state of each entity, with its attributes."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines(True) if line.endswith("\n")]
        return {found["entity"]: found for found in map(json.loads, (each for each in lines if each[0] == "{"))}


@contextmanager
def home_assistant(mqtt_port: int) -> Iterator[HomeAssistant]:
    """Run it while the block runs, on a broker on this machine."""
    ENVIRONMENT.prepare()
    with workspace("home-assistant") as folder:
        command = [ENVIRONMENT.python, "-m", "tools.peers.served.home_assistant", folder, mqtt_port, *free_ports(1)]
        log = folder / "log.txt"
        with started([str(part) for part in command], folder, log) as process:
            yield HomeAssistant(log)
            if process.poll() is not None:
                raise PeerUnavailable(f"Home Assistant ended with status {process.returncode}:\n{log.read_text()}")
