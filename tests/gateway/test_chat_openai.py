"""Which requests are gated, and what is read of answers."""

import json
from typing import Any

import pytest

from hinge.errors import InvalidMessage, RemoteInvalid
from hinge.gateway.chat import MAX_FIELDS, ChatRequest, Completion, Refused, why_not_gated
from hinge.remotes.http import Response
from hinge.tasks import ShortText

TEXT, JSON, NUMBER, OPTIONS = ShortText(), ShortText("json"), ShortText("number"), ShortText(options=["yes", "no"])
MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {}}}


def asked(**fields: Any) -> ChatRequest:
    return ChatRequest(json.dumps({"messages": MESSAGES, **fields}).encode())


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        (OPTIONS, {}),
        (OPTIONS, {"n": 1, "stream": False, "tools": [], "logprobs": True, "max_tokens": 1000}),
        (NUMBER, {}),
        (JSON, {"response_format": {"type": "json_object"}}),
        (JSON, SCHEMA),
        (TEXT, {"max_tokens": 64}),
        (TEXT, {"max_completion_tokens": 5, "max_tokens": None}),
    ],
)
def test_what_is_gated(task: ShortText, fields: dict[str, Any]) -> None:
    assert why_not_gated(asked(**fields), task) is None


@pytest.mark.parametrize(
    ("task", "fields", "reason"),
    [
        (OPTIONS, {"stream": True}, "stream"),
        (OPTIONS, {"n": 2}, "several"),
        (OPTIONS, {"tools": [{}]}, "tools"),
        (OPTIONS, {"functions": [{}]}, "tools"),
        (OPTIONS, {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "more than text"),
        (OPTIONS, {"messages": [{"role": "user", "content": {"type": "text"}}]}, "more than text"),
        (OPTIONS, {"messages": [{"role": "user", "content": ["text"]}]}, "more than text"),
        (JSON, {}, "JSON"),
        (JSON, {"response_format": {"type": "text"}}, "JSON"),
        (JSON, {"response_format": "json_object"}, "JSON"),
        (TEXT, {}, "64 tokens"),
        (TEXT, {"max_tokens": 65}, "64 tokens"),
        (TEXT, {"max_tokens": "5"}, "64 tokens"),
        (TEXT, {"max_tokens": -1}, "64 tokens"),  # to llama.cpp, without end
    ],
)
def test_what_is_not_gated_and_why(task: ShortText, fields: dict[str, Any], reason: str) -> None:
    assert reason in str(why_not_gated(asked(**fields), task))


def test_what_the_gateway_need_not_read_goes_as_it_came() -> None:
    body = b'{"seed":1e400,"messages":[{"content":"\\u00e9","x":[ ]}],"stop":[1.0, "\\u00e9"],"n":1}'
    assert ChatRequest(body).body == body
    assert b'"seed":1e400' in ChatRequest(body).changed(model="m").body


@pytest.mark.parametrize("field", ["n", "stream", "tools", "max_tokens", "top_logprobs", "response_format"])
def test_a_field_that_is_longer_than_any_that_matters_is_not_read(field: str) -> None:
    request = asked(**{field: [[]] * 100_000})
    assert isinstance(why_not_gated(request, JSON), str)
    assert json.loads(request.body)[field] == [[]] * 100_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [{}], ' + b",".join(b'"%x":0' % number for number in range(MAX_FIELDS)) + b"}",
        b'{"messages": [{}], "stop": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages": [{}, 1]}',
        b'{"messages": {}}',
        b'{"prompt": ""}',
    ],
    ids=["fields", "nested", "no message", "no list", "none"],
)
def test_what_is_no_chat_or_too_much_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidMessage):
        ChatRequest(body)


def completion(**choice: Any) -> Completion:
    return Completion(Response(200, {}, json.dumps({"choices": [choice], "kept": [1.5, None]}).encode(), 9))


def test_log_probabilities_are_read_and_removed() -> None:
    tokens = [
        {
            "token": "a",
            "logprob": -0.5,
            "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}],
        },
        {"token": "b", "logprob": -0.25, "top_logprobs": []},
    ]
    found = completion(message={"role": "assistant", "content": "ab"}, logprobs={"content": tokens}, index=0)
    assert found.output == {"text": "ab", "logprobs": [-0.5, -0.25], "top": [-0.5, -1.0]}
    wanted = {"logprobs": True, "top_logprobs": 2}
    assert json.loads(found.body(asked(**wanted)))["choices"][0]["logprobs"]["content"] == tokens
    for top in (None, 0, 1):
        shown = json.loads(found.body(asked(**{**wanted, "top_logprobs": top})))["choices"][0]["logprobs"]["content"]
        assert [len(token["top_logprobs"]) for token in shown] == [top or 0, 0]
        assert [token["logprob"] for token in shown] == [-0.5, -0.25]
    for wrong in ("two", 1.5, [1], -1):  # which a server would have refused, had the gateway not replaced it
        shown = json.loads(found.body(asked(**{**wanted, "top_logprobs": wrong})))["choices"][0]["logprobs"]["content"]
        assert [len(token["top_logprobs"]) for token in shown] == [0, 0]
    assert json.loads(found.body(asked())) == {
        "choices": [{"message": {"role": "assistant", "content": "ab"}, "logprobs": None, "index": 0}],
        "kept": [1.5, None],
    }


def test_a_second_choice_may_have_no_log_probabilities() -> None:
    first, second = ({"message": {"content": text}} for text in "ab")
    tokens = {"content": [{"logprob": -0.5, "top_logprobs": [{"logprob": -0.5}]}]}
    body = json.dumps({"choices": [first | {"logprobs": tokens}, second, second | {"logprobs": None}]}).encode()
    shown = json.loads(Completion(Response(200, {}, body, 9)).body(asked(logprobs=True)))["choices"]
    assert shown == [
        first | {"logprobs": {"content": [{"logprob": -0.5, "top_logprobs": []}]}},
        second,
        second | {"logprobs": None},
    ]


@pytest.mark.parametrize("logprob", [None, "low"])
def test_log_probabilities_that_cannot_be_read_do_not_discard_the_answer(logprob: Any) -> None:
    token = {"token": "a", "logprob": logprob, "top_logprobs": []}
    found = completion(message={"content": "a"}, logprobs={"content": [token]})
    assert (found.text, found.logprobs, found.top) == ("a", None, [])


def test_tokens_may_have_no_others_beside_them() -> None:
    token = {"token": "a", "logprob": -0.5, "top_logprobs": None}
    found = completion(message={"content": "a"}, logprobs={"content": [token]})
    assert found.output == {"text": "a", "logprobs": [-0.5], "top": []}
    shown = json.loads(found.body(asked(logprobs=True)))["choices"][0]["logprobs"]["content"]
    assert shown == [{"token": "a", "logprob": -0.5, "top_logprobs": []}]


@pytest.mark.parametrize("choice", [{}, {"message": {}}, {"message": {"content": 5}}])
def test_what_is_no_completion_is_named(choice: dict[str, Any]) -> None:
    with pytest.raises(RemoteInvalid, match="no chat completion"):
        completion(**choice)


def test_an_answer_without_text_is_an_empty_one() -> None:
    assert completion(message={"content": None, "refusal": "I cannot help with that."}).text == ""


@pytest.mark.parametrize("status", [401, 403])
def test_what_a_server_says_of_the_key_stays_unsaid(status: int) -> None:
    body = b'{"error": {"message": "Incorrect API key provided: sk-12345"}}'
    assert str(Refused(Response(status, {}, body, 9))) == f"HTTP {status}"


@pytest.mark.parametrize("body", [b"", b"\xff", b"<html>", b'{"error": "plain"}', b"[1]", b"[" * 5000])
def test_a_refusal_in_another_form_is_put_into_openais(body: bytes) -> None:
    refusal = Refused(Response(422, {}, body, 9))
    assert json.loads(refusal.body)["error"]["code"] == "refused"
    assert str(refusal) == "HTTP 422"
