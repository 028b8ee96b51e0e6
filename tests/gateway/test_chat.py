"""The gateway for chat completions, between stand-ins that answer or misbehave."""

import http.client
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from hinge import Breaker, Gate
from hinge.gateway import ChatGateway, ChatServer
from hinge.gateway.chat import ChatRequest
from hinge.oip.messages import MAX_JSON_BYTES
from hinge.tasks import ShortText
from tests.support.chat_server import FAILURES, ChatStandIn, dead_url

MESSAGES = [{"role": "user", "content": "Is water wet? Answer yes or no."}]
CHAT = "/v1/chat/completions"
WAIT_S = 20.0
LOCAL_FAILED = "the local model failed, and the remote answered in its place"


@contextmanager
def gateway(local: str, remote: str, **settings: Any) -> Iterator[ChatGateway]:
    chosen = {
        "gate": Gate(offload_cost=0.5),
        "task": ShortText(options=["yes", "no"]),
        "deadline_s": WAIT_S,
        "log_level": "error",
        **settings,
    }
    with ChatGateway(ChatServer(local), ChatServer(remote), **chosen) as served:
        yield served


@pytest.fixture
def local() -> Iterator[ChatStandIn]:
    with ChatStandIn("yes") as server:
        yield server


@pytest.fixture
def remote() -> Iterator[ChatStandIn]:
    with ChatStandIn("no") as server:
        yield server


class Answer:
    """A response, read at once."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.body = response.status, response.read()
        self.by, self.reason = response.getheader("hinge-answered-by"), response.getheader("hinge-reason")
        self.confidence, self.cost = response.getheader("hinge-confidence"), response.getheader("hinge-cost")
        self.json: Any = json.loads(self.body)

    @property
    def text(self) -> str:
        text: str = self.json["choices"][0]["message"]["content"]
        return text


class Client:
    """A connection to a gateway, closed when the test ends."""

    opened: ClassVar[list[http.client.HTTPConnection]] = []

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=WAIT_S)
        self.opened.append(self._connection)

    def chat(self, **fields: Any) -> Answer:
        return Answer(self.open(json.dumps({"model": "any", "messages": MESSAGES, **fields}).encode()))

    def close(self) -> None:
        self._connection.close()

    def open(self, body: bytes, method: str = "POST", path: str = CHAT, **headers: str) -> http.client.HTTPResponse:
        self.send(body, method, path, **headers)
        return self._connection.getresponse()

    def send(self, body: bytes, method: str = "POST", path: str = CHAT, **headers: str) -> None:
        self._connection.request(method, path, body, {"content-type": "application/json", **headers})


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while Client.opened:
        Client.opened.pop().close()


def count(served: ChatGateway, name: str) -> float:
    """A figure of the device, as Prometheus would read it."""
    with urlopen(f"{served.url}/metrics", timeout=WAIT_S) as page:
        lines = [line for line in page.read().decode().splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].split()[-1])


def alarms(served: ChatGateway) -> dict[str, float]:
    """How often each alarm began."""
    with urlopen(f"{served.url}/metrics", timeout=WAIT_S) as page:
        found = re.findall(r'hinge_alarms_total\{alarm="(.*)"\} (.*)', page.read().decode())
    return {what: float(times) for what, times in found}


# -- gated ------------------------------------------------------------------------------------------------------------


def test_the_openai_client_works_unmodified(local: ChatStandIn, remote: ChatStandIn) -> None:
    import openai  # it takes half a second, which workers that only collect need not spend

    with gateway(local.base_url, remote.base_url) as served, ExitStack() as stack:
        client: Any = stack.enter_context(
            openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", timeout=WAIT_S, max_retries=0)
        )
        raw = client.chat.completions.with_raw_response.create(model="any", messages=MESSAGES)
        assert raw.headers["hinge-answered-by"] == "remote"
        answer = raw.parse()
        assert (answer.choices[0].message.content, answer.choices[0].logprobs) == ("no", None)
        assert [model.id for model in client.models.list()] == ["yes"]
        assert client.models.retrieve("yes").id == "yes"
        with pytest.raises(openai.NotFoundError, match="'org/none' does not exist") as unknown:
            client.models.retrieve("org/none")
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError, match="messages"):
            client.chat.completions.create(model="any", messages=[])
        with client.chat.completions.create(model="any", messages=MESSAGES, stream=True) as pieces:
            assert len(list(pieces)) == 2


def test_the_gate_learns_from_offloads_and_then_accepts(local: ChatStandIn, remote: ChatStandIn) -> None:
    remote.text = " Yes.\n"
    with gateway(local.base_url, remote.base_url) as served:
        client = Client(served.url)
        answers = [client.chat() for _ in range(40)]
        assert (answers[0].by, answers[0].text, answers[0].cost) == ("remote", " Yes.\n", "0.5")
        assert (answers[-1].by, answers[-1].text, answers[-1].cost) == ("local", "yes", "0")
        assert answers[-1].confidence == "0.9048"  # e^-0.1
        assert "is accepted" in str(answers[-1].reason)
        by_remote = sum(answer.by == "remote" for answer in answers)
        assert len(remote.requests) == by_remote == count(served, "hinge_agreements_total") < 40
        assert count(served, "hinge_samples_total") == len(local.requests) == 40


def test_an_unlikely_answer_is_told_from_none(local: ChatStandIn, remote: ChatStandIn) -> None:
    local.logprob = -11.5
    with gateway(local.base_url, remote.base_url) as served:
        assert Client(served.url).chat().confidence == "1.013e-05"
        local.text = "perhaps"
        assert Client(served.url).chat().confidence == "0"


def test_the_request_reaches_both_as_it_came_but_for_log_probabilities(local: ChatStandIn, remote: ChatStandIn) -> None:
    fields = {"temperature": 0.5, "seed": 7, "max_tokens": 3, "user": "me", "grammar": 'root ::= "yes"'}
    with gateway(local.base_url, remote.base_url) as served:
        asked = {"model": "any", "messages": MESSAGES, **fields}
        assert Client(served.url).chat(**fields).by == "remote"
        assert remote.requests == [asked]
        assert local.requests == [{**asked, "logprobs": True, "top_logprobs": 2}]


def test_models_and_keys_are_those_of_each_server(local: ChatStandIn, remote: ChatStandIn) -> None:
    near, far = ChatServer(local.base_url, "small"), ChatServer(remote.base_url, "large", key="secret")
    with ChatGateway(
        near, far, Gate(offload_cost=0.5), task=ShortText(options=["yes", "no"]), deadline_s=WAIT_S
    ) as served:
        assert Client(served.url).chat().json["model"] == "large"
        assert (local.requests[0]["model"], remote.requests[0]["model"]) == ("small", "large")
        assert ({*local.keys}, {*remote.keys}) == ({None}, {"Bearer secret"})


def test_log_probabilities_are_removed_unless_the_client_wants_them(local: ChatStandIn) -> None:
    with dead_url() as remote, gateway(local.base_url, remote) as served:
        client = Client(served.url)
        assert client.chat().json["choices"][0]["logprobs"] is None
        wanted = client.chat(logprobs=True)
        assert wanted.json["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.1
        assert local.requests[-1]["top_logprobs"] == 2


@pytest.mark.parametrize("task", [ShortText("number"), ShortText("text"), ShortText("json")], ids=lambda it: it.form)
@pytest.mark.parametrize(("cut", "by"), [("local", "remote"), ("remote", "local"), ("both", "remote")])
def test_nothing_is_learned_from_an_answer_that_is_cut_off(
    task: ShortText, cut: str, by: str, local: ChatStandIn, remote: ChatStandIn
) -> None:
    fields: dict[str, Any] = {"max_tokens": 8, "response_format": {"type": "json_object"}}
    local.text = remote.text = '{"a": 7}'
    for name, server in (("local", local), ("remote", remote)):
        server.finish_reason = "length" if cut in (name, "both") else "stop"
    with gateway(local.base_url, remote.base_url, task=task) as served:
        client = Client(served.url)
        answers = [client.chat(**fields) for _ in range(20)]
        assert {answer.by for answer in answers} == {by}
        assert {answer.confidence for answer in answers} == {"0.9048" if cut == "remote" else "0"}
        assert (count(served, "hinge_learned_total"), count(served, "hinge_breaker_open")) == (0, 0)
        assert ("finish_reason" in str(answers[0].reason)) == (by == "local")


def test_agreement_is_over_the_answers_that_were_compared(local: ChatStandIn, remote: ChatStandIn) -> None:
    local.text = remote.text = "7"
    with gateway(local.base_url, remote.base_url, task=ShortText("number")) as served:
        client = Client(served.url)
        for finish in ("stop", "stop", "length", "length", "length"):
            local.finish_reason = finish
            assert client.chat().by == "remote"
        assert (count(served, "hinge_offloads_total"), count(served, "hinge_compared_total")) == (5, 2)
        assert count(served, "hinge_agreements_total") == 2


def test_an_option_is_an_answer_however_it_ended(local: ChatStandIn, remote: ChatStandIn) -> None:
    local.finish_reason = remote.finish_reason = "length"  # as of every answer with max_tokens of 1
    with gateway(local.base_url, remote.base_url) as served:
        assert Client(served.url).chat(max_tokens=1).confidence == "0.9048"
        assert count(served, "hinge_learned_total") == 1


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", ["dead", *FAILURES, "refuse", "no option"])
def test_when_the_remote_fails_every_request_gets_the_local_answer(failure: str, local: ChatStandIn) -> None:
    with ExitStack() as stack:
        remote = stack.enter_context(ChatStandIn("perhaps" if failure == "no option" else "no"))
        remote.behaviour = "answer" if failure == "no option" else failure
        url = stack.enter_context(dead_url()) if failure == "dead" else remote.base_url
        settings: dict[str, Any] = {"deadline_s": 2.0, "device": {"breaker": Breaker(failures=1, interval_s=60)}}
        served = stack.enter_context(gateway(local.base_url, url, **(settings if failure == "stall" else {})))
        client = Client(served.url)
        answers = [client.chat() for _ in range(50)]
        assert {(answer.status, answer.by, answer.text) for answer in answers} == {(200, "local", "yes")}
        assert "could not be had" in str(answers[0].reason)
        assert count(served, "hinge_learned_total") == 0


@pytest.mark.parametrize("failure", ["dead", *FAILURES, "refuse", "unknown", "redirect", "no logprobs", "bad logprobs"])
def test_when_the_local_fails_the_remote_answers_and_nothing_is_learned(failure: str, remote: ChatStandIn) -> None:
    with ExitStack() as stack:
        local = stack.enter_context(ChatStandIn("yes", behaviour=failure))
        if failure == "bad logprobs":
            local.behaviour, local.logprob = "answer", 3.0
        url = stack.enter_context(dead_url()) if failure == "dead" else local.base_url
        deadline_s = 2.0 if failure == "stall" else WAIT_S
        served = stack.enter_context(gateway(url, remote.base_url, deadline_s=deadline_s))
        answer = Client(served.url).chat()
        assert (answer.status, answer.by, answer.text, answer.confidence) == (200, "remote", "no", None)
        assert "Not gated: the local server failed" in str(answer.reason)
        assert "logprobs" not in remote.requests[0]
        assert count(served, "hinge_samples_total") == 0


def test_a_local_server_that_refuses_a_request_is_not_down(local: ChatStandIn, remote: ChatStandIn) -> None:
    local.behaviour = "refuse"
    with gateway(local.base_url, remote.base_url) as served:
        assert Client(served.url).chat().by == Client(served.url).chat(n=2).by == "remote"
        with urlopen(f"{served.url}/metrics", timeout=WAIT_S) as page:
            figures = page.read()
    assert (b"hinge_local_failures_total 2.0" in figures, b"hinge_alarms_total{" in figures) == (True, False)


@pytest.mark.parametrize("refusal", ["refuse", "unknown"])
def test_a_local_server_that_refuses_all_requests_is_an_alarm(
    refusal: str, local: ChatStandIn, remote: ChatStandIn
) -> None:
    local.behaviour = refusal
    with gateway(local.base_url, remote.base_url, page=0) as served:
        client = Client(served.url)
        for _ in range(4):
            assert client.chat().by == "remote"
        assert alarms(served) == {}
        local.behaviour = "answer"  # one that it takes
        client.chat()
        local.behaviour = refusal
        for _ in range(4):
            client.chat()
        assert alarms(served) == {}
        for _ in range(3):
            client.chat()
        assert alarms(served) == {LOCAL_FAILED: 1}
        with urlopen(f"{page_of(served)}events", timeout=WAIT_S) as events:
            report = next(line.decode() for line in events if b'"alarm_reasons":{"' in line)
        status = "HTTP 400, the prompt is too long" if refusal == "refuse" else "HTTP 404"
        assert f'"{LOCAL_FAILED}":"it refuses one request after the other, now by {status}"' in report


def test_a_local_server_that_refuses_log_probabilities_answers_without_where_the_remote_is_dead(
    local: ChatStandIn,
) -> None:
    local.behaviour = "refuse logprobs"
    with dead_url() as remote, gateway(local.base_url, remote) as served:
        answer = Client(served.url).chat()
        assert (answer.status, answer.by, answer.text) == (200, "local", "yes")
        assert "logprobs are not supported" in str(answer.reason)
        assert count(served, "hinge_samples_total") == 0


def test_a_remote_that_stalls_leaves_time_for_a_local_server_that_refuses_log_probabilities(
    local: ChatStandIn, remote: ChatStandIn
) -> None:
    local.behaviour, remote.behaviour = "refuse logprobs", "stall"
    with gateway(local.base_url, remote.base_url, deadline_s=2.0) as served:
        answer = Client(served.url).chat()
        assert (answer.status, answer.by, answer.text) == (200, "local", "yes")
        assert "remote server failed (late" in str(answer.reason)
        local.behaviour = "refuse"
        assert Client(served.url).chat().json["error"]["code"] == "context_length"


def test_a_remote_that_stalls_leaves_time_for_a_local_server_that_is_back(
    local: ChatStandIn, remote: ChatStandIn
) -> None:
    local.behaviour, breaker = "no logprobs", Breaker(failures=1, interval_s=60)
    with gateway(local.base_url, remote.base_url, deadline_s=2.0, device={"breaker": breaker}) as served:
        assert Client(served.url).chat().by == "remote"
        local.behaviour, remote.behaviour = "answer", "stall"
        answer = Client(served.url).chat()
        assert (answer.status, answer.by, answer.text) == (200, "local", "yes")


@pytest.mark.parametrize("fields", [{}, {"n": 2}], ids=["gated", "passed on"])
@pytest.mark.parametrize(
    ("local_says", "remote_says", "status", "retry_after"),
    [
        (("429", 3), ("429", 7), 429, "7"),
        (("503", 9), ("503", None), 503, "9"),
        (("429", 3), ("503", None), 503, "3"),
        (("503", None), ("503", None), 503, None),
        (("429", 3), ("error", None), 502, None),
    ],
)
def test_where_both_are_overloaded_the_client_hears_when_to_come_back(
    local_says: Any, remote_says: Any, status: int, retry_after: str | None, fields: dict[str, Any]
) -> None:
    with ChatStandIn() as local, ChatStandIn() as remote, gateway(local.base_url, remote.base_url) as served:
        (local.behaviour, local.retry_after), (remote.behaviour, remote.retry_after) = local_says, remote_says
        response = Client(served.url).open(json.dumps({"messages": MESSAGES, **fields}).encode())
        assert (response.status, response.getheader("retry-after")) == (status, retry_after)
        assert json.loads(response.read())["error"]["code"] == ("unavailable" if status == 502 else "overloaded")


@pytest.mark.parametrize("failure", ["stall", "no logprobs"])
def test_a_local_server_that_keeps_failing_is_left_alone_until_a_probe_finds_it_back(
    failure: str, local: ChatStandIn, remote: ChatStandIn
) -> None:
    local.behaviour, breaker = failure, Breaker(failures=2, interval_s=1.0)
    with gateway(local.base_url, remote.base_url, deadline_s=0.5, device={"breaker": breaker}) as served:
        client = Client(served.url)
        answers = [client.chat() for _ in range(3)]
        assert ([answer.by for answer in answers], len(local.requests)) == (["remote"] * 3, 2)
        assert "The local model has failed 2 times; next try in" in str(answers[2].reason)
        stream = client.open(json.dumps({"messages": MESSAGES, "stream": True}).encode())
        assert (stream.getheader("hinge-answered-by"), stream.read()) == ("remote", b"".join(remote.pieces))
        assert client.open(b"", "GET", "/v1/models").read().count(b'"no"') == 1
        assert (len(local.requests), alarms(served)) == (2, {LOCAL_FAILED: 1})
        local.behaviour, waited = "answer", time.monotonic() + WAIT_S
        while client.chat().confidence is None:
            assert time.monotonic() < waited
        assert len(local.requests) == 3
        assert client.chat().confidence == "0.9048"


def test_a_client_in_a_hurry_does_not_take_the_local_server_from_others(
    local: ChatStandIn, remote: ChatStandIn
) -> None:
    local.behaviour = "stall"
    with gateway(local.base_url, remote.base_url, device={"breaker": Breaker(failures=1, interval_s=60)}) as served:
        hurried = json.dumps({"messages": MESSAGES}).encode()
        for _ in range(3):
            answer = Answer(Client(served.url).open(hurried, **{"x-envoy-expected-rq-timeout-ms": "200"}))
            assert answer.by != "local"
        local.behaviour = "answer"
        assert (Client(served.url).chat().confidence, alarms(served)) == ("0.9048", {})


def test_a_local_server_that_is_left_alone_answers_where_the_remote_fails(
    local: ChatStandIn, remote: ChatStandIn
) -> None:
    local.behaviour, breaker = "no logprobs", Breaker(failures=1, interval_s=60)
    with gateway(local.base_url, remote.base_url, device={"breaker": breaker}) as served:
        client = Client(served.url)
        assert client.chat().by == "remote"
        remote.behaviour = "error"
        answers = [client.chat(), client.chat(n=2)]
        assert [(answer.status, answer.by, answer.text) for answer in answers] == [(200, "local", "yes")] * 2
        assert "failed once" in str(answers[0].reason)
        assert "out of memory" in str(answers[0].reason)


def test_a_local_server_that_is_dead_is_asked_again_at_once(local: ChatStandIn, remote: ChatStandIn) -> None:
    local.behaviour = "error"
    with gateway(local.base_url, remote.base_url) as served:
        client = Client(served.url)
        assert {client.chat().by for _ in range(20)} == {"remote"}
        local.behaviour = "answer"
        assert client.chat().confidence == "0.9048"


@pytest.mark.parametrize(("local_says", "by", "opened"), [("7", "local", 1), ("Who knows?", "remote", 0)])
def test_prose_for_a_number_is_the_remotes_fault_unless_the_local_model_has_none_either(
    local_says: str, by: str, opened: int, local: ChatStandIn, remote: ChatStandIn
) -> None:
    local.text, remote.text = local_says, "That is hard to say."
    with gateway(local.base_url, remote.base_url, task=ShortText("number")) as served:
        client = Client(served.url)
        answers = [client.chat() for _ in range(8)]
        assert {(answer.status, answer.by) for answer in answers} == {(200, by)}
        assert (count(served, "hinge_breaker_open"), count(served, "hinge_learned_total")) == (opened, 0)
        assert len(remote.requests) == (5 if opened else 8)


def test_a_local_answer_without_confidence_is_better_than_none(local: ChatStandIn) -> None:
    local.behaviour = "no logprobs"
    with dead_url() as remote, gateway(local.base_url, remote) as served:
        answer = Client(served.url).chat()
        assert (answer.status, answer.by, answer.text) == (200, "local", "yes")
        assert "log-probabilities" in str(answer.reason)


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_remote_answers_for_a_dead_local_counts_against_a_budget(
    stream: bool, local: ChatStandIn, remote: ChatStandIn
) -> None:
    with gateway(local.base_url, remote.base_url, gate=Gate(offload_cost=0.3, budget=0.2)) as served:
        local.behaviour = "error"
        for _ in range(30):
            response = Client(served.url).open(json.dumps({"messages": MESSAGES, "stream": stream}).encode())
            assert (response.status, response.getheader("hinge-answered-by")) == (200, "remote")
        assert count(served, "hinge_local_failures_total") == 30
        assert alarms(served) == {LOCAL_FAILED: 1}
        local.behaviour, client = "answer", Client(served.url)
        answers = [client.chat() for _ in range(25)]
        asked = [number for number, answer in enumerate(answers) if answer.by == "remote"]
        assert asked == [5, 10, 15, 20], "the bucket was empty"
        assert "is accepted, as the budget is spent" in str(answers[0].reason)


@pytest.mark.parametrize(
    ("local_fails", "remote_fails", "status", "code"),
    [
        ("error", "no HTTP", 502, "unavailable"),
        ("stall", "stall", 504, "late"),
        ("refuse", "hang up", 400, "context_length"),
        ("unknown", "refuse", 404, "refused"),
        ("no key", "redirect", 502, "unavailable"),
    ],
)
def test_when_both_fail_the_error_is_openais(local_fails: str, remote_fails: str, status: int, code: str) -> None:
    with (
        ChatStandIn(behaviour=local_fails) as local,
        ChatStandIn(behaviour=remote_fails) as remote,
        gateway(local.base_url, remote.base_url, deadline_s=0.5 if local_fails == "stall" else WAIT_S) as served,
    ):
        for fields in ({}, {"n": 2}) if local_fails != "stall" else ({},):
            answer = Client(served.url).chat(**fields)
            assert (answer.status, answer.json["error"]["code"]) == (status, code)
            assert isinstance(answer.json["error"]["message"], str)
            assert "sk-12345" not in str(answer.body)
        assert count(served, "hinge_samples_total") == 0


@pytest.mark.parametrize("status", [301, 302, 400, 401, 403, 404, 422, 429, 500, 503])
def test_no_key_of_the_gateway_is_told_to_clients_or_the_log(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    behaviour, task = f"quote {status}", ShortText(options=["yes", "no"])
    with ChatStandIn(behaviour=behaviour) as local, ChatStandIn(behaviour=behaviour) as remote:
        near, far = ChatServer(local.base_url, key="sk-near-1"), ChatServer(remote.base_url, key="sk-far-1")
        with ChatGateway(near, far, Gate(offload_cost=0.5), task=task, deadline_s=WAIT_S, log_level="debug") as served:
            answers = [Client(served.url).chat(), Client(served.url).chat(n=2)]
    for answer in answers:
        told = f"{answer.body!r} {answer.reason}"
        assert "sk-" not in told
        assert ("wrong key" in told) == (status not in (301, 302, 401, 403))
    assert "sk-" not in capsys.readouterr().err


@pytest.mark.parametrize("failure", ["no logprobs", "error"])
def test_the_log_warns_once_for_each_reason_why_nothing_is_gated(
    failure: str, local: ChatStandIn, remote: ChatStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    breaker = Breaker(failures=2, interval_s=60)
    with gateway(local.base_url, remote.base_url, log_level="debug", device={"breaker": breaker}) as served:
        client = Client(served.url)
        for local.behaviour in ("refuse", "answer", "refuse", *[failure] * 5):
            client.chat()
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines() if '"not gated"' in line]
    assert [event["level"] for event in events] == ["warning"] * 3 + ["debug"] * 4


@pytest.mark.parametrize("fields", [{}, {"n": 2}], ids=["gated", "passed on"])
@pytest.mark.parametrize("fails", ["error", "refuse"])
def test_the_log_says_why_nobody_answered(
    capsys: pytest.CaptureFixture[str], fails: str, fields: dict[str, Any]
) -> None:
    with (
        ChatStandIn(behaviour=fails) as local,
        dead_url() as remote,
        gateway(local.base_url, remote, log_level="warning") as served,
    ):
        Client(served.url).chat(**fields)
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    request = events[-1]
    assert request["error"].startswith("no answer: the local server failed (")
    assert ", the remote server failed (unreachable: " in request["error"]
    assert {event["id"] for event in events} == {request["id"]}


# -- everything else --------------------------------------------------------------------------------------------------

UNGATED: dict[str, dict[str, Any]] = {
    "several answers": {"n": 2},
    "tools": {"tools": [{"type": "function", "function": {"name": "f"}}]},
    "a strange format": {"response_format": "json", "n": 3},
    "image": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
}


@pytest.mark.parametrize("otherwise", ["local", "remote"])
@pytest.mark.parametrize("kind", UNGATED)
def test_what_cannot_be_checked_goes_by_the_rule(
    kind: str, otherwise: Any, local: ChatStandIn, remote: ChatStandIn
) -> None:
    with gateway(local.base_url, remote.base_url, otherwise=otherwise) as served:
        answer = Client(served.url).chat(**UNGATED[kind])
        assert (answer.by, answer.text) == (otherwise, "yes" if otherwise == "local" else "no")
        assert str(answer.reason).startswith("Not gated: ")
        asked, other = (local, remote) if otherwise == "local" else (remote, local)
        assert (len(asked.requests), len(other.requests)) == (1, 0)
        assert "logprobs" not in asked.requests[0]
        assert count(served, "hinge_samples_total") == 0


def test_a_stream_passes_piece_by_piece_as_it_comes(local: ChatStandIn, remote: ChatStandIn) -> None:
    local.go_on.clear()
    with gateway(local.base_url, remote.base_url) as served:
        asked = json.dumps({"model": "any", "messages": MESSAGES, "stream": True}).encode()
        response = Client(served.url).open(asked)
        assert response.read1() == local.pieces[0]  # while the server has not sent the rest
        local.go_on.set()
        assert response.read() == b"".join(local.pieces[1:])
        assert response.getheader("content-type") == "text/event-stream"
        assert response.getheader("hinge-answered-by") == "local"
        assert (response.getheader("set-cookie"), response.getheader("access-control-allow-origin")) == (None, None)


def test_a_stream_that_is_cut_is_passed_on_as_cut(local: ChatStandIn, remote: ChatStandIn) -> None:
    local.behaviour = "cut"
    with gateway(local.base_url, remote.base_url) as served:
        response = Client(served.url).open(json.dumps({"messages": MESSAGES, "stream": True}).encode())
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        assert (len(remote.requests), count(served, "hinge_samples_total")) == (0, 0)


@pytest.mark.parametrize("failure", ["dead", "error", "no HTTP", "hang up", "refuse", "redirect"])
def test_a_stream_that_one_server_fails_to_begin_comes_from_the_other(failure: str, remote: ChatStandIn) -> None:
    with ExitStack() as stack:
        local = stack.enter_context(ChatStandIn(behaviour=failure))
        url = stack.enter_context(dead_url()) if failure == "dead" else local.base_url
        served = stack.enter_context(gateway(url, remote.base_url))
        response = Client(served.url).open(json.dumps({"messages": MESSAGES, "stream": True}).encode())
        assert response.read() == b"".join(remote.pieces)
        assert response.getheader("hinge-answered-by") == "remote"
        assert "the local server failed" in str(response.getheader("hinge-reason"))


def await_answered(served: ChatGateway, expected: dict[str, float]) -> None:
    """Wait until as many chats were answered, by status: an answer is counted after its end."""
    end = time.monotonic() + WAIT_S
    while True:
        with urlopen(f"{served.url}/metrics", timeout=WAIT_S) as page:
            found = re.findall(r'hinge_requests_total\{code="(.*)",model="gateway"\} (.*)', page.read().decode())
        if {status: float(times) for status, times in found} == expected:
            return
        assert time.monotonic() < end, found


def test_a_stream_that_is_cut_is_counted_and_logged_as_cut(
    local: ChatStandIn, remote: ChatStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    local.behaviour, asked = "cut", json.dumps({"messages": MESSAGES, "stream": True}).encode()
    with gateway(local.base_url, remote.base_url, log_level="info") as served:
        with pytest.raises(http.client.IncompleteRead):
            Client(served.url).open(asked).read()
        await_answered(served, {"502": 1})
        local.behaviour = "answer"
        Client(served.url).open(asked).read()
        await_answered(served, {"502": 1, "200": 1})
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (event,) = [event for event in events if event["level"] in ("warning", "error")]
    assert (event["event"], event["level"], event["status"]) == ("request", "warning", 502)
    assert event["error"].startswith("cut off: the local server failed (")


def test_a_stream_that_is_cut_as_the_gateway_ends_is_logged_as_cut(
    local: ChatStandIn, remote: ChatStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    local.go_on.clear()
    with gateway(local.base_url, remote.base_url, log_level="info", drain_s=0) as served:
        response = Client(served.url).open(json.dumps({"messages": MESSAGES, "stream": True}).encode())
        assert response.read1() == local.pieces[0]
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (event,) = [event for event in events if event["event"] == "request"]
    assert (event["status"], event["error"]) == (503, "cut off: the server is shutting down")


def test_a_server_that_stalls_in_its_error_has_failed(remote: ChatStandIn) -> None:
    with (
        ChatStandIn(behaviour="error, then stall") as local,
        gateway(local.base_url, remote.base_url) as served,
    ):
        answer = Client(served.url).chat(n=2)
        assert (answer.status, answer.by) == (200, "remote")
        assert "the local server failed (error: HTTP 500)" in str(answer.reason)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_ends_the_work_of_the_server(stream: bool, local: ChatStandIn) -> None:
    local.behaviour = "stall"
    with dead_url() as remote, gateway(local.base_url, remote) as served:
        client = Client(served.url)
        client.send(json.dumps({"messages": MESSAGES, "stream": stream}).encode())
        assert local.asked.wait(WAIT_S)
        client.close()
        assert local.left.wait(WAIT_S)


# -- bad requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b'{"messages": "hello"}', 400), (b'{"messages": [1]}', 400), (b"[" * 100_000, 400)],
)
def test_bad_requests_get_openais_error_and_reach_no_server(
    body: bytes, status: int, local: ChatStandIn, remote: ChatStandIn
) -> None:
    with gateway(local.base_url, remote.base_url) as served:
        answer = Answer(Client(served.url).open(body))
        assert (answer.status, answer.json["error"]["type"]) == (status, "invalid_request_error")
        assert (local.requests, remote.requests) == ([], [])


def test_a_large_request_reaches_the_servers_unless_it_is_too_large(local: ChatStandIn, remote: ChatStandIn) -> None:
    stop: list[list[str]] = [[]] * 2**18
    with gateway(local.base_url, remote.base_url) as served:
        assert Client(served.url).chat(stop=stop).by == "remote"
        assert local.requests[0]["stop"] == remote.requests[0]["stop"] == stop
        too_large = Client(served.url).open(b"{}", **{"content-length": str(MAX_JSON_BYTES + 1)})
        assert (too_large.status, json.loads(too_large.read())["error"]["code"]) == (413, "too large")


def test_to_read_a_request_takes_of_its_time(
    local: ChatStandIn, remote: ChatStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(body: bytes) -> ChatRequest:
        time.sleep(0.3)
        return ChatRequest(body)

    monkeypatch.setattr("hinge.gateway.chat.ChatRequest", slow)
    with gateway(local.base_url, remote.base_url) as served:
        asked = json.dumps({"messages": MESSAGES}).encode()
        answer = Answer(Client(served.url).open(asked, **{"x-envoy-expected-rq-timeout-ms": "200"}))
        assert (answer.status, answer.json["error"]["code"]) == (504, "late")
        assert (local.requests, remote.requests) == ([], [])


def test_limits_paths_and_tokens_have_the_same_errors(local: ChatStandIn, remote: ChatStandIn) -> None:
    import openai

    token = "a-token-of-16-letters"
    with gateway(local.base_url, remote.base_url, token=token) as served:
        client, shown = Client(served.url), {"authorization": f"Bearer {token}"}
        assert Answer(client.open(b"{}")).json["error"]["code"] == "unauthorised"
        assert Answer(client.open(b"", "GET", "/v1/none", **shown)).json["error"]["code"] == "unknown"
        unknown = Answer(client.open(b"{}", path="/v1/embeddings", **shown)).json["error"]
        assert (unknown["code"], "/v1/chat/completions" in unknown["message"]) == ("unknown", True)
        too_large = Client(served.url).open(b"{}", **shown, **{"content-length": str(2**40)})
        assert (too_large.status, json.loads(too_large.read())["error"]["code"]) == (413, "too large")
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key=token, timeout=WAIT_S) as allowed:
            assert [model.id for model in allowed.models.list()] == ["yes"]


def test_one_deadline_goes_through_two_gateways(local: ChatStandIn, remote: ChatStandIn) -> None:
    with (
        gateway(local.base_url, remote.base_url, deadline_s=60) as second,
        gateway(local.base_url, f"{second.url}/v1", deadline_s=WAIT_S) as first,
    ):
        answer = Client(first.url).chat()
        assert (answer.by, answer.text) == ("remote", "no")
        assert 0 < remote.told_ms[0] <= 1000 * WAIT_S


# -- as a device ------------------------------------------------------------------------------------------------------


def test_state_survives_and_shadow_leaves_the_answers_alone(
    local: ChatStandIn, remote: ChatStandIn, tmp_path: Path
) -> None:
    for _ in range(2):
        with gateway(local.base_url, remote.base_url, device={"state": tmp_path / "s", "shadow": "local"}) as served:
            answer = Client(served.url).chat()
            assert (answer.by, answer.text) == ("local", "yes")
    with gateway(local.base_url, remote.base_url, device={"state": tmp_path / "s"}) as served:
        assert count(served, "hinge_learned_total") == 2


def test_a_remote_that_stalls_does_not_keep_it_from_ending(
    local: ChatStandIn, remote: ChatStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hinge.gateway.gateway.CLOSE_S", 0.1)
    remote.behaviour = "stall"
    again: dict[str, Any] = {"deadline_s": 600, "device": {"state": tmp_path, "shadow": "local"}}
    with gateway(local.base_url, remote.base_url, **again) as served:
        assert Client(served.url).chat().by == "local"
        assert remote.asked.wait(WAIT_S)
    assert remote.left.wait(WAIT_S)
    with gateway(local.base_url, remote.base_url, **again) as served:
        assert count(served, "hinge_learned_total") == 0


def test_no_more_offloads_are_in_flight_than_the_gateway_may_have(local: ChatStandIn, remote: ChatStandIn) -> None:
    remote.behaviour, asked = "stall", json.dumps({"messages": MESSAGES}).encode()
    with gateway(local.base_url, remote.base_url, device={"in_flight": 1}) as served:
        first = Client(served.url)
        first.send(asked)
        assert remote.asked.wait(WAIT_S)
        answer = Answer(Client(served.url).open(asked, **{"x-envoy-expected-rq-timeout-ms": "500"}))
        assert (answer.by, len(remote.requests)) == ("local", 1)
        assert "no request slot was free" in str(answer.reason)
        first.close()


def test_the_page_shows_the_gateway(local: ChatStandIn, remote: ChatStandIn) -> None:
    with gateway(local.base_url, remote.base_url, page=0) as served:
        Client(served.url).chat()
        with urlopen(f"{page_of(served)}events", timeout=WAIT_S) as events:
            assert next(line for line in events if b'"samples":1' in line)


def page_of(served: ChatGateway) -> str:
    assert served.page is not None
    return served.page.url
