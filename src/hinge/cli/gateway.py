"""The command `gateway`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hinge.cli import console, options
from hinge.cli.device import DEFAULT, fleet_of, policy_of, price_of, with_target
from hinge.cli.device_models import Certificates
from hinge.cli.options import UsageError
from hinge.cli.serve import reachable, tls_of
from hinge.oip.access import check_url, read_token
from hinge.tasks import ShortText

_DEADLINE_S = {"openai": 30.0, "oip": 1.0}


def command(
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
        Literal["mean", "least", "margin"] | None,
        typer.Option(
            help="How sure an answer in text is: by the mean or the least probability of its tokens, or by the margin "
            "of the first over the next likely one; without it by the mean."
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
    policy: options.Policy = DEFAULT,
    set: options.Set = [],  # noqa: B006  # Typer gives every call a list of its own
    audit: options.Audit = None,
    target: options.Target = None,
    offload_cost: options.Price = None,
    price_per_call: options.PricePerCall = None,
    price_per_ms: options.PricePerMs = None,
    price_per_byte: options.PricePerByte = None,
    wrong_answer: options.WrongAnswer = None,
    alpha: options.Alpha = None,
    bins: options.Bins = 16,
    seed: options.Seed = 0,
    at_most: options.AtMost = None,
    on_budget: options.OnBudget = None,
    deadline_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the answer to a gated request, of which the local server may take half; without it 30 "
            "for chats, and else 1."
        ),
    ] = None,
    state: options.State = None,
    shadow: options.Shadow = None,
    fleet: options.Fleet = None,
    fleet_name: options.FleetName = options.FLEET,
    fleet_device: options.FleetDevice = None,
    fleet_password_file: options.FleetPasswordFile = None,
    home_assistant: options.HomeAssistant = False,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key: options.Key = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8080,
    token_file: options.OwnTokenFile = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    client_ca: options.ClientCa = None,
    insecure: options.Insecure = False,
    drain_s: options.DrainS = 10.0,
    log_level: options.LogLevel = "info",
    config: options.Config = None,
) -> None:
    """A gate in front of a local and a remote model, for clients that speak a protocol.

    Example: hinge gateway --local http://127.0.0.1:8081/v1 --remote https://llm.example/v1 --task options:yes,no
    """
    from hinge.gateway import ChatGateway, ChatServer, InferenceGateway, ServedRows
    from hinge.gateway.application import Gateway
    from hinge.server.server import MIN_TOKEN

    if local is None or remote is None:
        raise UsageError("--local and --remote must name the two servers; see 'hinge gateway --help'")
    check_url("--remote", remote)
    certificates = Certificates(ca, cert, key)
    tls = certificates.context() if remote.startswith("https://") else None
    if certificates.context() is not None and tls is None and not (fleet or "").startswith("mqtts:"):
        raise UsageError(f"--ca, --cert and --key are for https:// and mqtts://, got --remote {remote}")
    policy = with_target(policy, target)
    prices = {"per_call": price_per_call, "per_ms": price_per_ms, "per_byte": price_per_byte}
    known, price = price_of(offload_cost, None, wrong_answer, **prices)
    settings = options.policy_settings([policy], set, alpha=alpha, audit=audit, target=target)
    parameters = {"offload_cost": known, "bins": bins, "seed": seed, **settings}
    chosen = policy_of(policy, parameters, None, at_most, on_budget)
    joined = fleet_of(fleet, fleet_name, fleet_device, fleet_password_file, certificates, home_assistant)
    keys = read_token(local_key_file, "HINGE_LOCAL_KEY"), read_token(remote_key_file, "HINGE_REMOTE_KEY")
    common: dict[str, Any] = {
        "deadline_s": _DEADLINE_S[protocol] if deadline_s is None else deadline_s,
        "device": {"price": price, "state": state, "shadow": shadow, "fleet": joined},
        "host": host,
        "port": port,
        "token": read_token(token_file, least=MIN_TOKEN),
        "tls": tls_of(tls_cert, tls_key, client_ca),
        "insecure": insecure,
        "drain_s": drain_s,
        "log_level": log_level,
    }
    if protocol == "openai":
        check_url("--local", local)
        servers = ChatServer(local, local_model, key=keys[0]), ChatServer(remote, remote_model, key=keys[1], tls=tls)
        text = task_of(task or "text", confidence or "mean")
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


def task_of(text: str, measure: Literal["mean", "least", "margin"]) -> ShortText:
    """The task that the command line names.

    >>> task_of("options:yes, no", "mean").answer(" Yes.")
    'yes'
    >>> task_of("options:yes", "mean")
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
