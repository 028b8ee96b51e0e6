"""Binding a kernel to a policy's functions: what is handed out is whole, and changes when the code does."""

import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from hinge import HILCB, HILCBLite, Thompson
from hinge.policies import Policy
from hinge.policies.policy import note_nothing
from hinge.simulation import kernel as compiled
from hinge.simulation.kernel import bound, machine_table, play


def expires(table: Any, bin: int, time: int) -> bool:
    return bool(time >= table.expiry[bin])


def learns_nothing(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Nothing."""


def function(code: Callable[..., Any]) -> FunctionType:
    assert isinstance(code, FunctionType)
    return code


def test_no_thread_gets_a_kernel_before_its_functions_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.extending import register_jitable

    registered: list[Callable[..., Any]] = []
    begun = threading.Event()

    def slowly(code: Callable[..., Any]) -> Any:
        if code is expires:
            begun.set()
            time.sleep(0.5)
        result = register_jitable(code)
        registered.append(code)
        return result

    monkeypatch.setattr("numba.extending.register_jitable", slowly)
    arguments = (function(play), function(expires), function(note_nothing), function(learns_nothing), True)
    other = threading.Thread(target=bound, args=arguments)
    other.start()
    assert begun.wait(60)
    bound(*arguments)
    assert expires in registered  # else compiling it fails: the other thread has only announced it
    other.join()


def test_a_kernel_is_bound_once() -> None:
    arguments = (function(play), function(expires), function(note_nothing), function(learns_nothing), False)
    assert bound(*arguments) is bound(*arguments)


def with_constant(number: float) -> Any:
    """A function that takes a number from its module."""
    names: dict[str, Any] = {"NUMBER": number}
    exec("def uses(x):\n    return x + NUMBER", names)
    return names["uses"]


def test_the_digest_changes_with_the_code_and_with_the_numbers_it_uses() -> None:
    digests = {compiled._digest([code]) for code in (with_constant(1.0), with_constant(2.0), function(expires))}
    assert len(digests) == 3
    assert compiled._digest([with_constant(1.0)]) in digests


@pytest.mark.parametrize("policy", [HILCB(4), HILCBLite(4, offload_cost=0.5), Thompson(4)], ids=lambda p: p.name)
def test_a_machine_table_is_a_copy_of_the_same_shape(policy: Policy) -> None:
    table = machine_table(policy)
    assert type(table) is type(policy.table)
    for mine, its in zip(policy.table, table, strict=True):
        if hasattr(mine, "typecode"):
            before = list(mine)
            assert its.tolist() == before
            its[:] = 7
            assert list(mine) == before
