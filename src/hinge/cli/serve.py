"""The commands `serve` and `gateway`: models, or a gate before two models, behind a protocol."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hinge.cli import options
from hinge.cli.options import Certificates, GateOptions, UsageError, argument, option
from hinge.remotes.address import check_url, read_token, without_password
from hinge.tasks import ShortText
from hinge.tasks.text import Measure

_DEADLINE_S = {"openai": 30.0, "oip": 1.0}


@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, and whom it lets in."""

    host: str = option("The address to serve at.", default="127.0.0.1")
    port: int = option("The port; 0 takes any that is free.", default=8080, min=0, max=65_535)
    token_file: Path | None = option("A file with the token that clients must show; or set HINGE_TOKEN.")
    tls_cert: Path | None = option("The server's certificate, for TLS.")
    tls_key: Path | None = option("The key of that certificate.")
    client_ca: Path | None = option("Who signs clients' certificates, for mutual TLS.")
    insecure: bool = option("Let others in without token or certificate.", default=False)
    drain_s: float = option("Seconds to finish requests in when told to end.", default=10.0)
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "The least severe events that are logged.", default="info"
    )

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
def serve_command(
    *,
    models: list[str] | None = argument(
        "ONNX models: PATH, NAME=PATH, or one that comes with Hinge: 'fashion', 'fashion-local'."
    ),
    serving: ServerOptions,
    max_batch: int = option("Rows that a model is given at once; 1: join no requests.", default=64, min=1),
    threads: int | None = option("Threads of one run of a model; 0: one per core.", min=0),
    config: options.Config = None,
) -> None:
    """The models are ONNX files; the protocol is the Open Inference Protocol.

    Example: hinge serve fashion --port 8080
    """
    from hinge.server import Limits, Server

    if not models:
        raise UsageError("there must be a model to serve, such as 'fashion'; see 'hinge serve --help'")
    server = Server(
        models,
        limits=Limits(batch=max_batch),
        threads=threads,
        **serving.settings(),
    )
    names = ", ".join(place.name for place in server.places)
    server.run(lambda url: print(f"Serving {names} at {url}", flush=True))


@options.grouped
def gateway_command(
    *,
    local: str | None = option(
        "The local server, by its base URL, such as http://127.0.0.1:8081/v1; with --protocol oip, by its "
        "URL, or the model itself, an ONNX file.",
        metavar=options.PLACE,
    ),
    remote: str | None = option("The remote server, likewise.", metavar="URL"),
    protocol: Literal["openai", "oip"] = option(
        "What clients and servers speak: OpenAI's protocol, or the Open Inference Protocol.", default="openai"
    ),
    local_model: str | None = option("The model that the local server is asked for; without it, that of the request."),
    remote_model: str | None = option("The same for the remote server."),
    local_key_file: Path | None = option("A file with the API key for the local server; or set HINGE_LOCAL_KEY."),
    remote_key_file: Path | None = option("A file with the API key for the remote server; or set HINGE_REMOTE_KEY."),
    task: str | None = option(
        "What the answers in text are, of which the gate decides: 'options:A,B,C', 'number', 'json' (requests "
        "with a response_format), or 'text' (requests with max_tokens of 64 at most), which it is without it."
    ),
    confidence: Measure | None = option(
        "How sure an answer in text is: by the product, the mean or the least of the probabilities of its tokens, or "
        "by the margin of the first over the next likely one; without it by the product, of numbers and JSON by the "
        "mean."
    ),
    otherwise: Literal["local", "remote"] | None = option(
        "Who answers chats that cannot be gated: streams, tools, images, several or long answers; without it "
        "the local server."
    ),
    output: options.Output = None,
    deciding: GateOptions,
    deadline_s: float | None = option(
        "Seconds for the answer to a gated request, of which the local server may take half; without it 30 "
        "for chats, and else 1."
    ),
    in_flight: int | None = option(
        "How many requests the gate has in flight to the remote at once; others wait. Without it 64.", min=1
    ),
    state: options.State = None,
    shadow: options.Shadow = None,
    page: options.PagePort = None,
    certificates: Certificates,
    serving: ServerOptions,
    config: options.Config = None,
) -> None:
    """A gate in front of a local and a remote model, for clients that speak a protocol.

    Example: hinge gateway --local http://127.0.0.1:8081/v1 --remote https://llm.example/v1 --task options:yes,no
    """
    from hinge.gateway import ChatGateway, ChatServer, InferenceGateway, ServedRows
    from hinge.gateway.gateway import IN_FLIGHT, Gateway

    if local is None or remote is None:
        raise UsageError("--local and --remote must name the two servers; see 'hinge gateway --help'")
    check_url("--remote", remote)
    tls = certificates.context()
    uses_tls = [url for url in (local, remote) if url.startswith("https://")]
    if tls is not None and not uses_tls:
        places = f"--local {without_password(local)} and --remote {remote}"
        raise UsageError(f"--ca, --cert and --key are for https://, got {places}")
    known, price = deciding.price()
    chosen = deciding.build(known)
    keys = read_token(local_key_file, "HINGE_LOCAL_KEY"), read_token(remote_key_file, "HINGE_REMOTE_KEY")
    common: dict[str, Any] = {
        "deadline_s": _DEADLINE_S[protocol] if deadline_s is None else deadline_s,
        "device": {
            "price": price, "state": state, "shadow": shadow, "in_flight": in_flight or IN_FLIGHT,
        },
        "page": page,
        **serving.settings(),
    }
    if protocol == "openai":
        check_url("--local", local)
        near = ChatServer(local, local_model, key=keys[0], tls=tls)
        servers = near, ChatServer(remote, remote_model, key=keys[1], tls=tls)
        text = task_of(task or "text", confidence)
        gateway: Gateway = ChatGateway(*servers, chosen, task=text, otherwise=otherwise or "local", **common)
    else:
        if task or confidence or otherwise:
            raise UsageError("--task, --confidence and --otherwise are for chats, and the protocol is oip")
        named = remote_model or local_model
        if "://" in local and local_model is None:
            raise UsageError("--local-model and --remote-model must name the models on their servers")
        if named is None:
            raise UsageError("--remote-model must name the model on the server of --remote")
        served = ServedRows(local, local_model, token=keys[0], tls=tls) if "://" in local and local_model else local
        far = ServedRows(remote, named, token=keys[1], tls=tls)
        gateway = InferenceGateway(served, far, chosen, output=output, **common)

    def announce(url: str) -> None:
        meanwhile = "; until then the other does" if len(gateway.away) == 1 else ""
        for name, failure in gateway.away.items():
            wrong = protocol == "openai" and "HTTP 404" in str(failure)
            hint = "; the base URL of such a server mostly ends in /v1, or is it --protocol oip?" if wrong else ""
            silent = failure.kind in ("unreachable", "late")
            is_away = f"does not answer yet{meanwhile}" if silent else "answers, but not as it should"
            gateway.log.write("warning", "away", problem=f"--{name} {is_away}: {failure}{hint}")
        serves = f"{url}/v1" if protocol == "openai" else url
        print(f"Serving at {serves}", flush=True)
        if gateway.page is not None:
            print(f"The live page is at {gateway.page.url}", flush=True)

    gateway.run(announce)


def task_of(text: str, measure: Measure | None = None) -> ShortText:
    """The task that the command line names.

    >>> task_of("options:yes, no").answer(" Yes."), task_of("text").measure, task_of("number").measure
    ('yes', 'product', 'mean')
    >>> task_of("options:yes")
    Traceback (most recent call last):
    hinge.cli.options.UsageError: --task options:yes: must name two options or more, such as 'options:yes,no'
    """
    kind, _, named = text.partition(":")
    if kind == "options":
        allowed = [name.strip() for name in named.split(",") if name.strip()]
        if len(set(allowed)) < 2:
            raise UsageError(f"--task {text}: must name two options or more, such as 'options:yes,no'")
        return ShortText(options=allowed, measure=measure)
    if named or kind not in ("number", "json", "text"):
        raise UsageError(f"--task {text}: must be 'number', 'json', 'text' or 'options:A,B,C'")
    return ShortText(kind, measure=measure)  # type: ignore[arg-type]  # one of these, as just checked
