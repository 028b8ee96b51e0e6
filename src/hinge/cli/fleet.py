"""The command `fleet demo`."""

from importlib.util import find_spec
from typing import Annotated

import typer

from hinge.cli import options

command = typer.Typer(rich_markup_mode=None)


@command.callback()
def _fleet() -> None:
    """Devices that learn from each other over an MQTT broker."""


@command.command("demo")
def demo_command(
    samples: Annotated[int, typer.Option(min=20, help="Samples for each device; 3 000 take 40 s.")] = 3_000,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Watch twenty devices share what they learn, while two of them lie.

    The broker runs in this process; the devices are real ones that talk MQTT, on recorded answers of two models. Two
    that lie, and one with other models, join midway. Every device is compared with itself alone on the same samples.

    Example: hinge fleet demo
    """
    missing = [package for name, package in _NEEDED.items() if find_spec(name) is None]
    if missing:
        raise ImportError(f"the demo needs {', '.join(missing)}: pip install 'hinge-gate[cli,fleet,broker]'")
    from hinge.cli.fleet_demo import run

    run(samples, seed, json)


_NEEDED = {"paho": "paho-mqtt", "amqtt": "amqtt"}
