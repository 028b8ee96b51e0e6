"""S1 and S3: who gets in, and what those learn who should not."""

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import hinge
from hinge.fashion import local_model
from hinge.remotes.address import read_token
from hinge.server import Server, Tls
from hinge.server.app import Service
from tests.server.clients import ask, images, infer, send_raw
from tests.support.certificates import self_signed, with_passphrase

TOKEN = "correct-horse-battery-staple"
NEEDED = "a token is needed: Authorization: Bearer <token>"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with Server(["fashion-local"], token=TOKEN, log_level="error") as server:
        yield server.url


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_s1_another_address_needs_a_token_or_mutual_tls(host: str) -> None:
    with (
        pytest.raises(ValueError, match="lets others in: give --token-file, HINGE_TOKEN or --client-ca"),
        Server(["fashion-local"], host=host),
    ):
        pass


def test_s1_another_address_is_served_with_a_token_or_if_it_is_meant() -> None:
    with_token = Server(["fashion-local"], host="0.0.0.0", token=TOKEN)
    for server in (with_token, Server(["fashion-local"], host="0.0.0.0", insecure=True)):
        with server:
            port = urlsplit(server.url).port
            assert ask(f"http://127.0.0.1:{port}", "/v2/health/ready").status == 200


@pytest.mark.parametrize(
    "path", ["/v2", "/metrics", "/v2/models/fashion-local", "/v2/models/fashion-local/ready", "/other"]
)
def test_s1_all_but_health_needs_the_token(guarded: str, path: str) -> None:
    for headers in ({}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer x"}):
        reply = ask(guarded, path, headers=headers)
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        wrong = headers.get("Authorization") == "Bearer x"
        assert reply.json["error"] == ("the token is wrong" if wrong else NEEDED)
    assert ask(guarded, path, headers=SHOWN).status == (404 if path == "/other" else 200)


def test_s1_inference_needs_the_token_and_health_does_not(guarded: str) -> None:
    for shown, status in (({}, 401), ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401), (SHOWN, 200)):
        assert infer(guarded, "fashion-local", images(), shown).status == status
    assert [ask(guarded, f"/v2/health/{name}").status for name in ("live", "ready")] == [200, 200]


def test_s1_a_stranger_learns_nothing_of_the_models(guarded: str) -> None:
    assert ask(guarded, "/v2/models/fashion-local").body == ask(guarded, "/v2/models/nobody").body


def test_s1_tokens_are_hard_to_guess(tmp_path: Path) -> None:
    for token in ("", "short", "with some spaces in it", "ümlaut-ümlaut-ümlaut", "line\nline-line-line"):
        with pytest.raises(ValueError, match="token must be printable ASCII without spaces, at least 16"):
            Server(["fashion-local"], token=token)
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert read_token(tmp_path / "token") == TOKEN
    assert TOKEN not in repr(Server(["fashion-local"], token=TOKEN))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of the server, and one of a client."""
    return self_signed(tmp_path_factory.mktemp("certificates"), "server", "client")


def secure_get(url: str, context: ssl.SSLContext) -> int:
    place = urlsplit(url)
    connection = http.client.HTTPSConnection(place.hostname or "", place.port, context=context, timeout=20)
    try:
        connection.request("GET", "/v2")
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_s1_mutual_tls_lets_in_who_has_a_certificate(certificates: Path) -> None:
    tls = Tls(certificates / "server.pem", certificates / "server.key", certificates / "client.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificates / "server.pem")
    with Server(["fashion-local"], host="0.0.0.0", tls=tls) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert url.startswith("https://")
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            secure_get(url, context)
        context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
        assert secure_get(url, context) == 200


def test_s1_tls_alone_lets_anybody_in_and_so_is_not_enough(certificates: Path) -> None:
    tls = Tls(certificates / "server.pem", certificates / "server.key")
    with pytest.raises(ValueError, match="lets others in"), Server(["fashion-local"], host="0.0.0.0", tls=tls):
        pass


def test_s1_files_that_make_no_sense_for_tls_are_refused(certificates: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Tls(certificates / "missing.pem", certificates / "server.key")
    with pytest.raises(ValueError, match="TLS"):
        Tls(certificates / "server.pem", certificates / "client.key")
    locked = with_passphrase(certificates / "server.key")
    with pytest.raises(ValueError, match=r"TLS: key .*server\.locked has a passphrase; give one without"):
        Tls(certificates / "server.pem", locked)


@pytest.mark.parametrize(
    "name",
    ["..", "../../etc/passwd", "%2e%2e%2fsecrets", "..%2f..%2fsecrets", "fashion-local%00", "x" * 65, "http:%2F%2Fa",
     "%ff", str(local_model()).replace("/", "%2F")],
)  # fmt: skip  # several to a line
def test_s3_model_names_are_only_looked_up(name: str) -> None:
    with Server(["fashion-local"], log_level="error") as server:
        for path in (f"/v2/models/{name}", f"/v2/models/fashion-local/versions/{name}"):
            reply = ask(server.url, path)
            assert reply.status == 404
            assert name not in reply.body.decode()
        assert infer(server.url, name, images()).status == 404


def test_s3_errors_carry_an_id_and_no_internals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(_: object) -> None:
        raise RuntimeError("secret: /etc/hinge/key")

    monkeypatch.setattr(Service, "metadata", explode)  # an unforeseen error
    with Server(["fashion-local"], log_level="warning") as server:
        reply = ask(server.url, "/v2/models/fashion-local")
        assert reply.status == 500
        assert reply.json == {"error": "the server could not do this; its log says why"}
    failed, request = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert failed["id"] == request["id"] == reply.headers["x-request-id"]
    assert "secret" in failed["problem"]


def test_s3_what_clients_send_cannot_forge_lines_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with Server(["fashion-local"], log_level="debug") as server:
        ask(server.url, '/v2/models/a%0a{"level":"error"}')
        send_raw(server.url, b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\\n{}\r\n\r\n")
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event["event"] for event in events] == ["started", "request", "request", "ending", "ended"]
    assert events[1]["path"] == '/v2/models/a\\n{"level":"error"}'


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_another_site_cannot_have_a_browser_ask(kind: str) -> None:
    message = images()
    with Server(["fashion-local"], log_level="error") as server:
        headers = {"Origin": "https://evil.example", **({"Content-Type": kind} if kind else {})}
        assert ask(server.url, "/v2/models/fashion-local/infer", "POST", message.body, headers).status == 415
        allowed = {**headers, "Content-Type": "application/json"}  # for which a browser asks first, and is refused
        assert ask(server.url, "/v2/models/fashion-local/infer", "POST", message.body, allowed).status == 200
        assert ask(server.url, "/v2/models/fashion-local/infer", "OPTIONS", b"", allowed).status == 405
        assert ask(server.url, "/v2/models/fashion-local/infer", "POST", message.body).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("[::1]:80", 200), ("127.0.0.1", 200), ("evil.example", 421), ("127.0.0.1.evil", 421)],
)
def test_a_name_of_a_stranger_for_this_machine_is_refused(host: str, status: int) -> None:
    with Server(["fashion-local"], log_level="error") as server:
        assert ask(server.url, "/v2", headers={"Host": host}).status == status


def test_s4_nothing_is_unpickled() -> None:
    package = Path(hinge.__file__).parent
    loads = re.compile(r"^\s*(import pickle|from pickle import)|pickle\.loads?\(|allow_pickle=True", re.MULTILINE)
    assert [path for path in package.rglob("*.py") if loads.search(path.read_text("utf-8"))] == []
