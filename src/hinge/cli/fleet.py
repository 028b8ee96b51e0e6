"""The command `fleet`, a hub that watches a fleet and speaks for a region of it, and `fleet demo`."""

import logging
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hinge.cli import console, options
from hinge.cli.options import Certificates, UsageError, option
from hinge.errors import HingeError
from hinge.remotes.http import read_token

if TYPE_CHECKING:
    from hinge.fleet.hub import Hub

WAIT_S = 30.0  # for the retained messages
LOOK_S = 0.25

fleet_command = typer.Typer(rich_markup_mode=None)


@fleet_command.callback(invoke_without_command=True)
@options.grouped
def hub(
    *,
    ctx: typer.Context,
    broker: str | None = option(
        "The MQTT broker of the fleet: mqtt://[USER@]HOST[:PORT], or mqtts:// with --ca, --cert and --key. "
        "The password is in HINGE_FLEET_PASSWORD, or a file."
    ),
    name: str = option("The fleet, as devices have it in --fleet-name.", default=options.FLEET),
    region: str | None = option(
        "Watch this region of the fleet, and publish what its devices have pooled for the others."
    ),
    password_file: Path | None = option("A file with the password of the user that --broker names."),
    certificates: Certificates,
    port: int = option(
        "The port of the page and the metrics on 127.0.0.1; 0: any that is free.", default=8090, min=0, max=65_535
    ),
    json: bool = option("Print what is known of the fleet as one JSON object, and end.", default=False),
) -> None:
    """The hub of a fleet: who is there, what each has learned, who is like whom, and who is not believed and why.

    Example: hinge fleet --broker mqtt://edge --name cams
    """
    if ctx.invoked_subcommand is not None:
        return
    from hinge.fleet.hub import Hub

    if broker is None:
        raise UsageError("there must be a --broker to ask, such as mqtt://edge; see 'hinge fleet --help'")
    tls = certificates.context() if broker.startswith("mqtts:") else None
    password = read_token(password_file, "HINGE_FLEET_PASSWORD")
    if json and region is not None:
        name, region = f"{name}.{region}", None  # who looks for a moment does not speak
    hub = Hub(broker, name, region, password=password, tls=tls)
    with console.interruptible():
        if json:
            console.print_json(_gathered(hub))
        else:
            _watch(hub, port)


@fleet_command.command("demo")
@options.grouped
def demo_command(
    samples: int = option("Samples for each device; 3 000 take 40 s.", default=3_000, min=20),
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


def _gathered(hub: "Hub") -> dict[str, Any]:
    """What the hub knows once all that is retained has come; raises what keeps it from that."""
    from msgspec import to_builtins

    logging.getLogger("hinge").addHandler(logging.NullHandler())  # what it would warn of is told otherwise
    end = time.monotonic() + WAIT_S
    with hub:
        while not hub.gather(LOOK_S):
            if hub.view.problem is not None:
                raise HingeError(hub.view.problem)
            if time.monotonic() > end:
                raise HingeError(f"the messages of fleet {hub.fleet} did not come within {WAIT_S:g} s")
        return {"hinge": 1, **to_builtins(hub.view)}


def _watch(hub: "Hub", port: int) -> None:
    """Show the fleet, in the terminal and on a page, until a signal comes."""
    from hinge.cli.device import StopSignals
    from hinge.cli.device_view import Display, LiveView
    from hinge.cli.fleet_view import FleetTable, HubServer

    try:
        server = HubServer(hub, port)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"--port {port}") from error
    with ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        stack.enter_context(server)
        console.note(f"The page of fleet {hub.fleet} is at {server.url}/, its metrics at {server.url}/metrics")
        live = console.out.is_terminal
        stack.enter_context(LiveView(FleetTable(hub, server.url)) if live else Display())
        stack.enter_context(hub)
        for _ in signals.until_stopped(iter(lambda: time.sleep(LOOK_S), True)):
            pass
