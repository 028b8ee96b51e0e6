"""Loops around a policy's functions: complete when returned, the same for the same functions, and new for new code."""

import os
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from hinge import HILCB, HILCBLite, Thompson
from hinge.policies import Policy
from hinge.policies.policy import KEPT, Functions
from hinge.simulation.kernel import (
    MANY,
    Book,
    Features,
    Parts,
    Told,
    compiled,
    digest,
    loop,
    machine_table,
    pays,
    player,
)
from hinge.simulation.sources import Samples


def expires(table: Any, bin: int, time: int) -> bool:
    return bool(time >= table.expiry[bin])


def learns_nothing(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    return KEPT


FUNCTIONS = Functions(expires, learns_nothing)
PLAIN = Features()


def function(code: Callable[..., Any]) -> FunctionType:
    assert isinstance(code, FunctionType)
    return code


@pytest.mark.medium
def test_no_thread_gets_a_loop_before_its_functions_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.extending import register_jitable

    registered: list[Callable[..., Any]] = []
    begun = threading.Event()

    def slowly(**options: Any) -> Callable[..., Any]:
        def register(code: Callable[..., Any]) -> Any:
            if code is expires:
                begun.set()
                time.sleep(0.5)
            result = register_jitable(**options)(code)
            registered.append(code)
            return result

        return register

    monkeypatch.setattr("numba.extending.register_jitable", slowly)
    other = threading.Thread(target=loop, args=(FUNCTIONS, PLAIN, True))
    other.start()
    assert begun.wait(60)
    loop(FUNCTIONS, PLAIN, True)
    assert expires in registered  # else compiling it fails: the other thread has only announced it
    other.join()


def test_the_same_functions_have_one_loop() -> None:
    assert loop(FUNCTIONS, PLAIN, False) is loop(FUNCTIONS, PLAIN, False)
    assert loop(FUNCTIONS, PLAIN, False) is not loop(FUNCTIONS, Features(fitted=True), False)


def with_global(number: float) -> Any:
    """A function that takes a number from its module."""
    names: dict[str, Any] = {"NUMBER": number}
    exec("def uses(x):\n    return x + NUMBER", names)
    return names["uses"]


def with_closure(number: float) -> Any:
    """A function that takes a number from its closure."""

    def uses(x: float) -> float:
        return x + number

    return uses


@pytest.mark.parametrize("using", [with_global, with_closure])
def test_the_digest_changes_with_the_code_and_with_the_numbers_it_uses(using: Callable[[float], Any]) -> None:
    digests = {digest([code]) for code in (using(1.0), using(2.0), function(expires))}
    assert len(digests) == 3
    assert digest([using(1.0)]) in digests


@pytest.mark.parametrize("using", [with_global, with_closure])
def test_the_digest_changes_with_the_module(using: Callable[[float], Any]) -> None:
    # What is on the disk names the modules of records: after a move it must be compiled, not looked up.
    moved = using(1.0)
    moved.__module__ = "elsewhere"
    assert digest([moved]) != digest([using(1.0)])


@pytest.mark.parametrize("record", [Samples, Told, Book, Parts])
def test_the_digest_changes_with_the_module_of_a_record(record: type, monkeypatch: pytest.MonkeyPatch) -> None:
    play = function(player(FUNCTIONS, PLAIN))
    before = digest([play])
    monkeypatch.setattr(record, "__module__", "elsewhere")
    assert digest([play]) != before


def test_the_digest_changes_with_a_function_inside() -> None:
    names = [
        getattr(loop(FUNCTIONS._replace(learns=learns), PLAIN, True), "__qualname__", "")
        for learns in (learns_nothing, spends)
    ]
    assert names[0].startswith("play_")
    assert names[0] != names[1]


def spends(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    table.expiry[bin] = 0
    return KEPT


@pytest.mark.slow
def test_a_compiled_loop_is_read_from_disk_by_the_next_process(tmp_path: Path) -> None:
    script = """
from hinge import HILCB, simulate
from hinge.simulation.kernel import Features, loop
from hinge.simulation.sources import ConstantPrice, Synthetic
policy = HILCB(2, offload_cost=0.5)
simulate([policy], Synthetic([0.2, 0.9], ConstantPrice(0.5)), 1000, machine_code=True)
print(sum(loop(policy.functions, Features(), True).stats.cache_hits.values()))
"""
    seeds = [{"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"}]
    assert cache_hits(script, {"NUMBA_CACHE_DIR": str(tmp_path)}, seeds) == [0, 1]


def test_samples_are_compiled_if_they_are_many_or_the_loop_is_compiled_already() -> None:
    functions = FUNCTIONS._replace(learns=with_closure(3.0))
    assert [pays(samples, functions, PLAIN) for samples in (1, MANY, MANY + 1)] == [False, False, True]
    loop(functions, PLAIN, False)
    assert not pays(1, functions, PLAIN)
    loop(functions, PLAIN, True)
    assert pays(1, functions, PLAIN)
    assert not pays(1, functions, Features(fitted=True))
    assert not pays(1, functions._replace(learns=with_closure(4.0)), PLAIN)


def test_without_numba_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.simulation.kernel.find_spec", lambda _: None)
    assert not pays(MANY + 1)


@pytest.mark.medium
def test_a_loop_for_which_numba_finds_no_cache_folder_is_compiled_all_the_same() -> None:
    machine: Any = compiled(with_global(1.0))  # code in no file has none, as has a package that cannot be written to
    assert machine(2.0) == 3.0


def cache_hits(script: str, shared: dict[str, str], own: list[dict[str, str]]) -> list[int]:
    """What the script prints in one process after the other."""
    hits = []
    for variables in own:
        environment = {**os.environ, **shared, **variables}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        hits.append(int(done.stdout))
    return hits


@pytest.mark.parametrize("policy", [HILCB(4), HILCBLite(4, offload_cost=0.5), Thompson(4)], ids=lambda p: p.name)
def test_a_machine_table_is_a_copy_of_the_same_shape(policy: Policy) -> None:
    table = machine_table(policy.table)
    assert type(table) is type(policy.table)
    for mine, its in zip(policy.table, table, strict=True):
        if isinstance(mine, array | list):
            before = list(mine)
            assert its.tolist() == before
            its[:] = 7
            assert list(mine) == before
