"""A table that knows nothing is made by the fields of its kind."""

from typing import NamedTuple

import pytest

from hinge import HILCB
from hinge.policies import Reals, Wholes


class Table(NamedTuple):
    offloads: Wholes
    agreements: Reals
    found: Wholes
    costs: Reals
    price: Reals
    filled: Wholes
    alpha: float
    limit: int


@pytest.mark.parametrize(("cost", "sums", "price", "filled"), [(0.3, 0, 0.3, 0), (None, 3, 0.0, 5)])
def test_columns_have_a_zero_for_each_bin_and_numbers_are_the_policys(
    cost: float | None, sums: int, price: float, filled: int
) -> None:
    table = HILCB(4, alpha=0.7, offload_cost=cost).blank(Table, ("found",), limit=9)
    assert [list(column) for column in table[:3]] == [[0] * 4, [0.0] * 4, []]
    assert [list(column) for column in table[3:6]] == [[0.0] * sums, [price], [0] * filled]
    assert (table.alpha, table.limit) == (0.7, 9)
    assert [type(column[0]) for column in (table.offloads, table.agreements)] == [int, float]


def test_what_is_given_and_no_field_is_refused() -> None:
    with pytest.raises(TypeError, match="'limits'"):
        HILCB(4, offload_cost=0.5).blank(Table, limit=9, limits=9)
    with pytest.raises(AttributeError, match="'limit'"):
        HILCB(4, offload_cost=0.5).blank(Table)


class Priced(NamedTuple):
    offloads: Wholes
    price: float


class OwnPrice(HILCB):
    price = 0.25


def test_a_number_is_the_policys_own_even_if_a_column_of_that_name_has_a_meaning() -> None:
    assert OwnPrice(4, offload_cost=0.5).blank(Priced).price == 0.25
    assert OwnPrice(4, offload_cost=0.5).blank(Priced, price=0.125).price == 0.125
