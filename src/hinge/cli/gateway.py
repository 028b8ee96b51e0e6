"""The command `gateway`: a gate in front of two models, behind the protocol that clients speak already."""

from pathlib import Path
from typing import Annotated, Any, Literal

from hinge.cli import options
from hinge.cli.options import Certificates, GateOptions, option
from hinge.cli.serve import ServerOptions
from hinge.cli.settings import PLACE, UsageError
from hinge.gate import Gate
from hinge.remotes.address import check_url, read_token, without_password
from hinge.tasks import ShortText
from hinge.tasks.text import Measure

Pair = tuple[str | None, str | None]  # of local and remote
_DEADLINE_S = {"openai": 30.0, "oip": 1.0}


def gateway_command(
    *,
    local: Annotated[str, option("The local server, by its base URL; of oip, also an ONNX file.", metavar=PLACE)],
    remote: Annotated[str, option("The remote server, by its base URL.", metavar="URL")],
    protocol: Annotated[Literal["openai", "oip"], option("OpenAI's, or the Open Inference Protocol.")] = "openai",
    local_model: Annotated[str | None, option("The local model; without it, that of the request.")] = None,
    remote_model: Annotated[str | None, option("The remote model, likewise.")] = None,
    local_key_file: Annotated[Path | None, option("A file with the local API key; or HINGE_LOCAL_KEY.")] = None,
    remote_key_file: Annotated[Path | None, option("A file with the remote API key; or HINGE_REMOTE_KEY.")] = None,
    task: Annotated[str | None, option("'options:A,B,C', 'number', 'json' or, without it, 'text'.")] = None,
    confidence: Annotated[Measure | None, option("How sure a text is, by its tokens; without it by the task.")] = None,
    otherwise: Annotated[
        Literal["local", "remote"] | None, option("Who answers chats that cannot be gated; without it local.")
    ] = None,
    deciding: GateOptions = GateOptions(),
    deadline_s: Annotated[float | None, option("Seconds for a gated answer; without it 30, of oip 1.")] = None,
    state: options.State = None,
    shadow: options.Shadow = None,
    page: options.Page = None,
    certificates: Certificates = Certificates(),
    serving: ServerOptions = ServerOptions(),
    config: options.Config = None,
) -> None:
    """A gate in front of a local and a remote model, for clients that speak a protocol.

    Example: hinge gateway --local http://127.0.0.1:8081/v1 --remote https://llm.example/v1 --task options:yes,no
    """
    check_url("--remote", remote)
    tls = certificates.context()
    if tls is not None and not any(url.startswith("https://") for url in (local, remote)):
        places = f"--local {without_password(local)} and --remote {remote}"
        raise UsageError(f"--ca, --cert and --key are for https://, got {places}")
    known, price = deciding.price()
    keys = read_token(local_key_file, "HINGE_LOCAL_KEY"), read_token(remote_key_file, "HINGE_REMOTE_KEY")
    common: dict[str, Any] = {
        "deadline_s": _DEADLINE_S[protocol] if deadline_s is None else deadline_s,
        "device": {"price": price, "state": state, "shadow": shadow},
        "page": page,
        **serving.settings(),
    }
    gate = deciding.build(known)
    if protocol == "oip":
        if task or confidence or otherwise:
            raise UsageError("--task, --confidence and --otherwise are for chats, and the protocol is oip")
        _run(_inference(gate, (local, remote), (local_model, remote_model), keys, tls, common), chats=False)
        return
    check_url("--local", local)
    from hinge.gateway import ChatGateway, ChatServer

    near, far = (
        ChatServer(url, model, key=key, tls=tls)
        for url, model, key in zip((local, remote), (local_model, remote_model), keys, strict=True)
    )
    text = task_of(task or "text", confidence)
    _run(ChatGateway(near, far, gate, task=text, otherwise=otherwise or "local", **common), chats=True)


def _inference(gate: Gate, places: Pair, models: Pair, keys: Pair, tls: Any, common: dict[str, Any]) -> Any:
    """Return the gateway for the Open Inference Protocol; the local model may be a file."""
    from hinge.gateway import InferenceGateway, ServedRows

    (local, remote), (local_model, remote_model) = places, models
    named = remote_model or local_model
    is_served = "://" in str(local)
    if is_served and local_model is None:
        raise UsageError("--local-model and --remote-model must name the models on their servers")
    if named is None:
        raise UsageError("--remote-model must name the model on the server of --remote")
    near = ServedRows(str(local), str(local_model), token=keys[0], tls=tls) if is_served else str(local)
    return InferenceGateway(near, ServedRows(str(remote), named, token=keys[1], tls=tls), gate, **common)


def _run(gateway: Any, chats: bool) -> None:
    """Serve until a signal comes, and say first where, and which server does not answer yet."""

    def announce(url: str) -> None:
        meanwhile = "; until then the other does" if len(gateway.away) == 1 else ""
        for name, failure in gateway.away.items():
            wrong = chats and "HTTP 404" in str(failure)
            hint = "; the base URL of such a server mostly ends in /v1, or is it --protocol oip?" if wrong else ""
            silent = failure.kind in ("unreachable", "late")
            is_away = f"does not answer yet{meanwhile}" if silent else "answers, but not as it should"
            gateway.log.write("warning", "away", problem=f"--{name} {is_away}: {failure}{hint}")
        print(f"Serving at {url}{'/v1' if chats else ''}", flush=True)
        if gateway.page is not None:
            print(f"The live page is at {gateway.page.url}", flush=True)

    gateway.run(announce)


def task_of(text: str, measure: Measure | None = None) -> ShortText:
    """Return the task that the command line names.

    >>> task_of("options:yes, no").answer(" Yes."), task_of("text").measure, task_of("number").measure
    ('yes', 'product', 'mean')
    >>> task_of("options:yes")
    Traceback (most recent call last):
    hinge.cli.settings.UsageError: --task options:yes: must name two options or more, such as 'options:yes,no'
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
