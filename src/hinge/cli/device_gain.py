"""What a run of a device has gained over local and over remote alone, by what the device could see.

Over local alone, exactly: each answer of the remote shows whether the local one would have differed, which costs 1, and
what asking cost is known; the other answers are local ones either way. What these cost is not seen, so what remote
alone would have saved is estimated: from the agreement at offloads, bin by bin, with an interval.
"""

from typing import Any

import numpy as np

from hinge.cli import console
from hinge.cli.device_samples import Case
from hinge.device.answer import Answer
from hinge.ledger import share
from hinge.simulation.sources import FixedCosts, Synthetic
from hinge.simulation.trade import OFFLOAD_COSTS, trade
from hinge.theory import Estimate

_FEWEST = 100  # samples: on fewer there is no curve to show
_MOST = 10_000  # samples that the curve is simulated on, in a second or two


class Gain:
    """Counts of a run, by bin: samples, answers of the remote, and in how many of these local agreed.

    >>> Gain(bins=2).figures(paid=0.0, asked=0) is None  # the remote has not answered yet
    True
    """

    def __init__(self, bins: int) -> None:
        self._samples, self._answered, self._agreed = np.zeros((3, bins), np.int64)
        self._local_right = self._labelled = 0

    def add(self, case: Case, answer: Answer) -> None:
        """Count an answer."""
        self._samples[answer.bin] += 1
        if answer.source == "remote":
            self._answered[answer.bin] += 1
            self._agreed[answer.bin] += bool(answer.label == answer.local)
        if case.truth is not None:
            self._labelled += 1
            self._local_right += bool(answer.local == case.truth)

    def figures(self, paid: float, asked: int) -> dict[str, Any] | None:
        """The gain, if asking so often has cost so much; None where the remote gave no answer."""
        if not self._answered.any():
            return None
        samples, spared = int(self._samples.sum()), int((self._answered - self._agreed).sum())
        estimate, accepted = self._estimate(), 1.0 - self._answered / np.maximum(self._samples, 1)
        low, high = estimate.cost(accepted, paid / asked)
        return {
            "answers": int(self._answered.sum()),
            "spared": spared,
            "saved_on_local": (spared - paid) / samples,
            "local_true_accuracy": share(self._local_right, self._labelled),
            "remote_cost_per_sample": paid / asked,
            "cost_low": low,
            "cost_high": high,
        }

    def show(self, found: dict[str, Any], paid: float, right: float | None) -> None:
        """Print what `figures` found, with the curve of other prices; `right`: the device's own true accuracy."""
        saved, price = found["saved_on_local"], found["remote_cost_per_sample"]
        spared = console.counted(found["spared"], "answer")
        less = f"{abs(saved):.4f} a sample {'less' if saved >= 0 else 'more'} than local alone"
        console.say(f"Asking cost {paid:.4g} and spared {spared} unlike the remote's, at 1 each: {less}.")
        answers = console.counted(found["answers"], "answer")
        console.say(
            f"Remote alone would have cost {price:.4g} a sample; this device cost {found['cost_low']:.4f} to "
            f"{found['cost_high']:.4f}, by what {answers} of the remote leave possible."
        )
        if right is not None:
            local = f"{found['local_true_accuracy']:.2%}"
            console.say(f"Right by the true labels: local alone {local}, this device {right:.2%}.")
        if self._samples.sum() >= _FEWEST:
            estimate, price = self._estimate(), round(price, 4)
            source = Synthetic(estimate.agreement, FixedCosts(price), estimate.samples)
            horizon = min(int(self._samples.sum()), _MOST)
            console.say("At other prices, with the agreement that these answers make most likely:")
            curve = trade(source, offload_costs=(*OFFLOAD_COSTS, price), horizon=horizon, machine_code=False)
            console.print_trade(curve, price)

    def _estimate(self) -> Estimate:
        return Estimate(self._samples, self._answered, self._agreed)
