"""The command `gateway`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hinge.cli import console, options
from hinge.cli.device_models import Certificates
from hinge.cli.gate import FleetOptions, GateOptions
from hinge.cli.options import UsageError
from hinge.cli.serve import ServerOptions, reachable
from hinge.remotes.http import check_url, read_token
from hinge.tasks import ShortText
from hinge.tasks.text import Measure

_DEADLINE_S = {"openai": 30.0, "oip": 1.0}


@options.grouped
def command(
    *,
    local: Annotated[
        str | None,
        typer.Option(
            metavar=options.PLACE,
            help="The local server, by its base URL, such as http://127.0.0.1:8081/v1; with --protocol oip, by its "
            "URL, or the model itself, an ONNX file.",
        ),
    ] = None,
    remote: Annotated[str | None, typer.Option(metavar="URL", help="The remote server, likewise.")] = None,
    protocol: Annotated[
        Literal["openai", "oip"],
        typer.Option(help="What clients and servers speak: OpenAI's protocol, or the Open Inference Protocol."),
    ] = "openai",
    local_model: Annotated[
        str | None, typer.Option(help="The model that the local server is asked for; without it, that of the request.")
    ] = None,
    remote_model: Annotated[str | None, typer.Option(help="The same for the remote server.")] = None,
    local_key_file: Annotated[
        Path | None, typer.Option(help="A file with the API key for the local server; or set HINGE_LOCAL_KEY.")
    ] = None,
    remote_key_file: Annotated[
        Path | None, typer.Option(help="A file with the API key for the remote server; or set HINGE_REMOTE_KEY.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="What the answers in text are, of which the gate decides: 'options:A,B,C', 'number', 'json' (requests "
            "with a response_format), or 'text' (requests with max_tokens of 64 at most), which it is without it."
        ),
    ] = None,
    confidence: Annotated[
        Measure | None,
        typer.Option(
            help="How sure an answer in text is: by the product, the mean or the least of the probabilities of its "
            "tokens, or by the margin of the first over the next likely one; without it by the product, of numbers and "
            "JSON by the mean."
        ),
    ] = None,
    otherwise: Annotated[
        Literal["local", "remote"] | None,
        typer.Option(
            help="Who answers chats that cannot be gated: streams, tools, images, several or long answers; without it "
            "the local server."
        ),
    ] = None,
    output: options.Output = None,
    deciding: GateOptions,
    deadline_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the answer to a gated request, of which the local server may take half; without it 30 "
            "for chats, and else 1."
        ),
    ] = None,
    state: options.State = None,
    shadow: options.Shadow = None,
    joining: FleetOptions,
    certificates: Certificates,
    serving: ServerOptions,
    config: options.Config = None,
) -> None:
    """A gate in front of a local and a remote model, for clients that speak a protocol.

    Example: hinge gateway --local http://127.0.0.1:8081/v1 --remote https://llm.example/v1 --task options:yes,no
    """
    from hinge.gateway import ChatGateway, ChatServer, InferenceGateway, ServedRows
    from hinge.gateway.application import Gateway

    if local is None or remote is None:
        raise UsageError("--local and --remote must name the two servers; see 'hinge gateway --help'")
    for name, url in (("--local", local), ("--remote", remote)):
        if url.startswith("grpc://"):
            raise UsageError(f"{name} {url}: a gateway speaks HTTP; give the server's port for that, as Triton's 8000")
    check_url("--remote", remote)
    tls = certificates.context() if remote.startswith("https://") else None
    if certificates.context() is not None and tls is None and not (joining.fleet or "").startswith("mqtts:"):
        raise UsageError(f"--ca, --cert and --key are for https:// and mqtts://, got --remote {remote}")
    known, price = deciding.price()
    chosen, fleet = deciding.build(known), joining.join(deciding, certificates)
    keys = read_token(local_key_file, "HINGE_LOCAL_KEY"), read_token(remote_key_file, "HINGE_REMOTE_KEY")
    common: dict[str, Any] = {
        "deadline_s": _DEADLINE_S[protocol] if deadline_s is None else deadline_s,
        "device": {"price": price, "state": state, "shadow": shadow, "fleet": fleet},
        **serving.settings(),
    }
    if protocol == "openai":
        check_url("--local", local)
        servers = ChatServer(local, local_model, key=keys[0]), ChatServer(remote, remote_model, key=keys[1], tls=tls)
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
        near = ServedRows(local, local_model, token=keys[0]) if "://" in local and local_model else local
        far = ServedRows(remote, named, token=keys[1], tls=tls)
        gateway = InferenceGateway(near, far, chosen, output=output, **common)

    def announce(url: str) -> None:
        meanwhile = ", and the other will" if len(gateway.away) == 1 else ""
        for name, failure in gateway.away.items():
            console.warn(f"--{name} does not answer yet{meanwhile}: {failure}")
        serves = f"{url}/v1" if protocol == "openai" else url
        print(f"Serving at {serves}\nThe live page is at {reachable(url)}/", flush=True)

    gateway.run(announce)


def task_of(text: str, measure: Measure | None = None) -> ShortText:
    """The task that the command line names.

    >>> task_of("options:yes, no").answer(" Yes.")
    'yes'
    >>> task_of("options:yes")
    Traceback (most recent call last):
    hinge.cli.options.UsageError: --task options:yes: must name two options or more, such as 'options:yes,no'
    """
    kind, _, named = text.partition(":")
    if kind == "options":
        options = [name.strip() for name in named.split(",") if name.strip()]
        if len(set(options)) < 2:
            raise UsageError(f"--task {text}: must name two options or more, such as 'options:yes,no'")
        return ShortText(options=options, measure=measure)
    if named or kind not in ("number", "json", "text"):
        raise UsageError(f"--task {text}: must be 'number', 'json', 'text' or 'options:A,B,C'")
    return ShortText(kind, measure=measure)  # type: ignore[arg-type]  # one of these, as just checked
