"""The best threshold on a log, against every threshold that there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.theory import fit_threshold

SURE = st.lists(st.integers(0, 100).map(lambda percent: percent / 100), min_size=1, max_size=40)


@given(confidence=SURE, data=st.data(), price=st.sampled_from([0.0, 0.05, 0.3, 0.5, 0.9, 1.0]))
def test_no_other_threshold_costs_less(confidence: list[float], data: st.DataObject, price: float) -> None:
    agreed = data.draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=len(confidence), max_size=len(confidence)))

    def paid(threshold: float) -> float:
        accepted = (c >= threshold and threshold < 1.0 for c in confidence)
        costs = (1.0 - a if accept else price for accept, a in zip(accepted, agreed, strict=True))
        return sum(costs) / len(confidence)

    threshold, cost = fit_threshold(confidence, agreed, price)
    assert 0.0 <= threshold <= 1.0
    assert cost == pytest.approx(paid(threshold))
    everywhere = {0.0, 1.0, *confidence, *(c + 1e-6 for c in confidence), 1.0 - 1e-9}
    assert cost <= min(map(paid, everywhere)) + 1e-9


def test_thresholds_have_as_few_decimals_as_they_can() -> None:
    assert fit_threshold([0.1234, 0.1278, 0.9], [0, 1, 1], 0.5)[0] == 0.127
    assert fit_threshold([0.9996, 1.0], [0, 1], 0.5)[0] == 0.9999
    assert fit_threshold([0.5, 0.5000000000000001], [0, 1], 0.5)[0] == 0.5000000000000001
    assert fit_threshold([0.0, 1e-30], [0, 1], 0.5)[0] == 1e-30


def test_one_model_alone_is_a_threshold_too() -> None:
    assert fit_threshold([0.2, 0.6, 0.9], [1, 1, 1], 0.5) == (0.0, 0.0)
    assert fit_threshold([0.2, 0.6, 0.9], [0, 0, 0], 0.5) == (1.0, 0.5)
    assert fit_threshold([0.7, 0.7], [0, 1], 0.5) == (1.0, 0.5)  # of two that cost the same, the higher
