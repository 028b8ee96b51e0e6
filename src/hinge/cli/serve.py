"""The command `serve`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hinge.cli import options
from hinge.cli.device_models import Certificates
from hinge.cli.options import UsageError
from hinge.remotes.http import read_token

WATCH_S = 2.0


@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, and whom it lets in."""

    host: Annotated[str, typer.Option(help="The address to serve at.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes any that is free.")] = 8080
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that clients must show; or set HINGE_TOKEN.")
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help="The server's certificate, for TLS.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None
    client_ca: Annotated[Path | None, typer.Option(help="Who signs clients' certificates, for mutual TLS.")] = None
    insecure: Annotated[bool, typer.Option("--insecure", help="Let others in without token or certificate.")] = False
    drain_s: Annotated[float, typer.Option(help="Seconds to finish requests in when told to end.")] = 10.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="The least severe events that are logged.")
    ] = "info"

    def settings(self) -> dict[str, Any]:
        """What a `Server` and a `Gateway` take."""
        from hinge.server import Tls
        from hinge.server.server import MIN_TOKEN

        cert, key = self.tls_cert, self.tls_key
        if (cert is None) != (key is None):
            raise UsageError("--tls-cert and --tls-key go together")
        if self.client_ca is not None and cert is None:
            raise UsageError("--client-ca needs --tls-cert and --tls-key")
        return {
            **{name: getattr(self, name) for name in ("host", "port", "insecure", "drain_s", "log_level")},
            "token": read_token(self.token_file, least=MIN_TOKEN),
            "tls": Tls(cert, key, self.client_ca) if cert and key else None,
        }


@options.grouped
def command(
    *,
    models: Annotated[
        list[str] | None,
        typer.Argument(help="ONNX models: PATH, NAME=PATH, or one that comes with Hinge: 'fashion', 'fashion-local'."),
    ] = None,
    serving: ServerOptions,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Rows that a model is given at once; 1: join no requests.")
    ] = 64,
    threads: Annotated[int | None, typer.Option(min=0, help="Threads of one run of a model; 0: one per core.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Load a model again when its file changes.")] = False,
    fleet: Annotated[
        str | None,
        typer.Option(
            help="Learn for thin devices, and send them tables by this MQTT broker: mqtt://[USER@]HOST[:PORT], or "
            "mqtts:// with --fleet-ca, --fleet-cert and --fleet-key. The password: HINGE_FLEET_PASSWORD, or a file."
        ),
    ] = None,
    fleet_name: options.FleetName = "fleet",
    fleet_password_file: options.FleetPasswordFile = None,
    fleet_ca: Annotated[Path | None, typer.Option(help="Who signs the broker's certificate.")] = None,
    fleet_cert: Annotated[Path | None, typer.Option(help="The certificate to show the broker.")] = None,
    fleet_key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None,
    offload_cost: Annotated[
        float, typer.Option(min=0, max=1, help="Thin devices: what an offload costs, where a wrong answer costs 1.")
    ] = 0.5,
    bins: Annotated[int, typer.Option(min=1, max=255, help="Thin devices: how many bins they have.")] = 16,
    state: Annotated[
        Path | None, typer.Option(help="Thin devices: the folder in which what is learned for them survives.")
    ] = None,
    config: options.Config = None,
) -> None:
    """The models are ONNX files; the protocol is the Open Inference Protocol.

    Example: hinge serve fashion --port 8080
    """
    from hinge.server import Limits, Server

    if not models:
        raise UsageError("there must be a model to serve, such as 'fashion'; see 'hinge serve --help'")
    if fleet is None:
        if any((fleet_password_file, fleet_ca, fleet_cert, fleet_key, state)):
            raise UsageError("--state and what begins with --fleet- need --fleet, the address of an MQTT broker")
        thin = None
    else:
        from hinge.server.thin import ThinFleet

        password = read_token(fleet_password_file, "HINGE_FLEET_PASSWORD")
        tls = Certificates(fleet_ca, fleet_cert, fleet_key).context() if fleet.startswith("mqtts:") else None
        cost = offload_cost
        thin = ThinFleet(fleet, fleet_name, offload_cost=cost, bins=bins, state=state, password=password, tls=tls)
    server = Server(
        models,
        limits=Limits(batch=max_batch),
        threads=threads,
        watch_s=WATCH_S if watch else None,
        **serving.settings(),
        thin=thin,
    )
    names = ", ".join(place.name for place in server.places)
    server.run(lambda url: print(f"Serving {names} at {url}\nThe live page is at {reachable(url)}/", flush=True))


def reachable(url: str) -> str:
    """The address to type into a browser, where a server listens at all addresses of this machine.

    >>> reachable("http://0.0.0.0:8080")
    'http://localhost:8080'
    """
    return url.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:")
