"""The command `list`."""

from hinge.policies import policy_names
from hinge.traces import trace_names
from tests.support.commands import Captured, answer, refusal, shown


def test_list_names_everything(capsys: Captured) -> None:
    data = answer(capsys, "list")
    assert [row["name"] for row in data["policies"]] == policy_names()
    assert [row["name"] for row in data["traces"]] == trace_names()
    assert all(row["what"] for row in data["policies"])
    assert set(answer(capsys, "list", "traces")) == {"traces"}
    out = shown(capsys, "list", "policies")
    assert all(name in out for name in policy_names())


def test_a_list_of_something_else_is_refused(capsys: Captured) -> None:
    assert "there is no list of 'polices'; did you mean 'policies'?" in refusal(capsys, "list", "polices")
