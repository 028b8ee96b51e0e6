"""The command `serve`, models behind the Open Inference Protocol, and the options that `gateway` shares with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from hinge.cli import options
from hinge.cli.options import flag, option
from hinge.cli.settings import UsageError
from hinge.remotes.address import read_token


@Parameter(name="*", group="The server")
@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, and whom it lets in."""

    host: Annotated[str, option("The address to serve at.")] = "127.0.0.1"
    port: Annotated[int, option("The port; 0 takes any that is free.", 0, 65_535)] = 8080
    token_file: Annotated[Path | None, option("A file with the token that clients must show; or set HINGE_TOKEN.")] = (
        None
    )
    tls_cert: Annotated[Path | None, option("The server's certificate, for TLS.")] = None
    tls_key: Annotated[Path | None, option("The key of that certificate.")] = None
    client_ca: Annotated[Path | None, option("Who signs clients' certificates, for mutual TLS.")] = None
    insecure: Annotated[bool, flag("Let others in without token or certificate.")] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], option("The least severe events that are logged.")
    ] = "info"

    def settings(self) -> dict[str, Any]:
        """Return what a `Server` and a `Gateway` take."""
        from hinge.server import Tls
        from hinge.server.server import MIN_TOKEN

        cert, key = self.tls_cert, self.tls_key
        if (cert is None) != (key is None):
            raise UsageError("--tls-cert and --tls-key go together")
        if self.client_ca is not None and cert is None:
            raise UsageError("--client-ca needs --tls-cert and --tls-key")
        return {
            **{name: getattr(self, name) for name in ("host", "port", "insecure", "log_level")},
            "token": read_token(self.token_file, least=MIN_TOKEN),
            "tls": Tls(cert, key, self.client_ca) if cert and key else None,
        }


def serve_command(
    models: Annotated[
        tuple[str, ...],
        option("ONNX models: PATH, NAME=PATH, 'fashion' or 'fashion-local'.", show_default=False),
    ] = (),
    /,
    *,
    max_batch: Annotated[int, option("Rows that a model is given at once; 1: join no requests.", 1)] = 64,
    threads: Annotated[int | None, option("Threads of one run of a model; 0: one per core.", 0)] = None,
    serving: ServerOptions = ServerOptions(),
    config: options.Config = None,
) -> None:
    """The models are ONNX files; the protocol is the Open Inference Protocol.

    Example: hinge serve fashion --port 8080
    """
    from hinge.server import Limits, Server

    if not models:
        raise UsageError("there must be a model to serve, such as 'fashion'; see 'hinge serve --help'")
    server = Server(models, limits=Limits(batch=max_batch), threads=threads, **serving.settings())
    names = ", ".join(place.name for place in server.places)
    server.run(lambda url: print(f"Serving {names} at {url}", flush=True))
