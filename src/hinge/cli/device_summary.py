"""The figures of `hinge device`: a line of progress while it runs, and a summary that says what was gained.

Over local alone, exactly: each answer of the remote shows whether the local one would have differed, which costs 1, and
what asking cost is known; the other answers are local ones either way. What these cost is not seen, so what remote
alone would have saved is estimated: from the agreement at offloads, bin by bin, with an interval. Without a price, it
says how far all answers agree with the remote.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from hinge.cli import console
from hinge.cli.device_samples import Case
from hinge.device.answer import Answer
from hinge.device.status import Status
from hinge.errors import BreakerOpen, PolicyFailed, QueueTimeout, printable
from hinge.ledger import Ledger, ratio
from hinge.simulation.sources import ConstantPrice, Synthetic
from hinge.simulation.trade import OFFLOAD_COSTS, trade
from hinge.theory import Estimate

Behind = Mapping[int, tuple[int, float]]  # by bin: answers of the remote that could be compared, and agreed
_NOTHING: Behind = MappingProxyType({})
_BINS = 16  # of the curve
_FEWEST = 100  # samples: on fewer there is no curve to show
_MAX_SAMPLES = 10_000  # samples that the curve is simulated on, in a second or two
_STEP = math.log(1.01)  # latencies are counted by logarithm, in steps of a hundredth
_AGAIN_S = 60.0  # between two warnings of the same


class Figures:
    """The figures of a run so far, in memory that does not grow with it.

    >>> figures = Figures()
    >>> figures.gain(paid=0.0, asked=0), figures.latency_ms(0.5)  # there was no answer yet
    (None, None)
    """

    def __init__(self, priced: bool = True) -> None:
        self.priced = priced  # whether an offload has a price; without one, no cost is told
        self._ledger = Ledger()  # without costs, which the device's status has: some are paid after the answer
        self._latencies: Counter[int] = Counter()
        self._confidences: dict[int, float] = {}  # the last of each group, by `Answer.group`
        self._samples, self._answered, self._agreed = Counter[int](), Counter[int](), Counter[int]()  # likewise
        self._local_right = self._labelled = 0

    @property
    def samples(self) -> int:
        return self._ledger.samples

    def add(self, case: Case, answer: Answer, latency_ms: float) -> None:
        """Count an answer."""
        agreed = None if case.remote is None else float(answer.label == case.remote)
        right = None if case.truth is None else bool(answer.label == case.truth)
        if answer.decision.offload:
            self._ledger.offload(0.0, agreed=agreed, right=right)
        else:
            self._ledger.accept(agreed, right=right)
        self._confidences[answer.group] = answer.confidence
        self._samples[answer.group] += 1
        if answer.source == "remote":
            self._answered[answer.group] += 1
            self._agreed[answer.group] += bool(answer.label == answer.local)
        if case.truth is not None:
            self._labelled += 1
            self._local_right += bool(answer.local == case.truth)
        self._latencies[round(math.log(max(latency_ms, 1e-6)) / _STEP)] += 1

    def latency_ms(self, part: float) -> float | None:
        """Return the time within which this part of the answers came, to a hundredth of it."""
        left = part * self._latencies.total()
        for step, count in sorted(self._latencies.items()):
            left -= count
            if left <= 0:
                return math.exp(step * _STEP)
        return None

    def progress(self, status: Status, seconds: float) -> str:
        """Return how far the run is, in a line."""
        part = self._ledger.offloads / max(1, self.samples)
        speed = f"{self.samples / seconds:.0f} per second"
        why = "" if status.breaker == "closed" or status.last_fault is None else f" ({status.last_fault})"
        return (
            f"{console.counted(self.samples, 'sample')}, {speed}, {part:.1%} offloaded, breaker {status.breaker}{why}"
        )

    def as_dict(self, status: Status, seconds: float) -> dict[str, Any]:
        """Return the summary, named as in the other commands; None stands for what is not known."""
        sums, spent = self._ledger.figures(), status.offload_cost if self.priced else None
        paid = None if spent is None else ratio(spent, self.samples)
        unsent = sum(status.fell_back.get(each.kind, 0) for each in (BreakerOpen, QueueTimeout, PolicyFailed))
        known = ("answered_by_remote", "fell_back", "dropped", "breaker", "last_fault", "not_durable", "alarms")
        costs = {key: sums[key] for key in ("cost_per_sample", "true_cost_per_sample")}
        asked = status.answered_by_remote + sum(status.fell_back.values()) - unsent
        return {
            "samples": self.samples,
            "seconds": seconds,
            **{key: sums[key] for key in ("offloads", "offload_fraction", "accuracy", "true_accuracy")},
            "asked": asked,
            **{key: getattr(status, key) for key in known},
            "offload_cost": spent,
            "agreement": ratio(status.agreed, status.compared),
            "offload_cost_per_sample": paid,
            **{key: None if None in (cost, paid) else cost + paid for key, cost in costs.items()},
            "latency_ms_p50": self.latency_ms(0.5),
            "latency_ms_p99": self.latency_ms(0.99),
            "gain": self.gain(spent, asked, status.behind),
        }

    def gain(self, paid: float | None, asked: int, behind: Behind = _NOTHING) -> dict[str, Any] | None:
        """Return what was gained, if asking so often has cost so much, where that is known; None without an answer.

        What the remote answered `behind` the caller counts as if it had been given.
        """
        estimate = self.estimate(behind)
        if estimate is None:
            return None
        answers, accepted = int(estimate.offloads.sum()), 1.0 - estimate.offloads / np.maximum(estimate.samples, 1)
        spared = answers - int(estimate.agreements.sum())
        wrong = estimate.cost(accepted, 0.0)
        low, high = (None, None) if paid is None else estimate.cost(accepted, paid / asked)
        return {
            "answers": answers,
            "spared": spared,
            "saved_on_local": None if paid is None else (spared - paid) / self.samples,
            "local_true_accuracy": ratio(self._local_right, self._labelled),
            "remote_cost_per_sample": None if paid is None else paid / asked,
            "cost_low": low,
            "cost_high": high,
            "accuracy_low": 1.0 - wrong[1],
            "accuracy_high": 1.0 - wrong[0],
        }

    def estimate(self, behind: Behind = _NOTHING) -> Estimate | None:
        """Return the agreement by what the remote answered, to the caller or behind it; None without an answer."""
        groups = sorted(self._samples, key=self._confidences.__getitem__)
        counts = np.array([(self._samples[each], self._answered[each], self._agreed[each]) for each in groups])
        samples, answered, agreed = counts.reshape(-1, 3).T
        told = np.array([behind.get(each, (0, 0)) for each in groups], np.int64).reshape(-1, 2).T
        answered = np.minimum(answered + told[0], samples)  # a run that is cut off has one sample fewer
        return Estimate(samples, answered, np.minimum(agreed + told[1], answered)) if answered.any() else None


class Warnings(logging.Handler):
    """While its block runs, a device's warnings go to standard error, the same one at most once a minute."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning."""
        text, now = record.getMessage(), time.monotonic()
        if now >= self._printed.get(text, -math.inf) + _AGAIN_S:
            self._printed[text] = now
            console.warn(text)

    def __enter__(self) -> None:
        logging.getLogger("hinge").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("hinge").removeHandler(self)


# -- in the end -------------------------------------------------------------------------------------------------------


def print_summary(figures: dict[str, Any], behind: bool) -> None:
    """Print the figures of a run that are known; `behind`: the remote was asked after the local answer."""
    rows = []
    for name, form, key in _ROWS:
        value = figures[key]
        if isinstance(value, dict):
            rows += [(f"{name}: {kind}", str(count)) for kind, count in sorted(value.items())]
        elif value is not None and (value or key != "dropped"):
            name += " behind the caller" if behind and key == "asked" else ""
            rows.append((name, printable(form.format(value))))
    console.print_rows(("", ""), rows)
    if figures["last_fault"] is not None:
        console.say(f"The remote failed last: {figures['last_fault']}")


_ROWS = (  # what it is called, its format, and its key in JSON
    ("samples", "{}", "samples"),
    ("seconds", "{:.1f}", "seconds"),
    ("offloads", "{}", "offloads"),
    ("offloads, of all samples", "{:.2%}", "offload_fraction"),
    ("asked", "{}", "asked"),
    ("answered by the remote", "{}", "answered_by_remote"),
    ("fell back", "{}", "fell_back"),
    ("dropped", "{}", "dropped"),
    ("local agreed, of the remote's answers", "{:.2%}", "agreement"),
    ("offload cost per sample", "{:.4f}", "offload_cost_per_sample"),
    ("cost per sample", "{:.4f}", "cost_per_sample"),
    ("agrees with the remote", "{:.2%}", "accuracy"),
    ("true accuracy", "{:.2%}", "true_accuracy"),
    ("true cost per sample", "{:.4f}", "true_cost_per_sample"),
    ("milliseconds, half within", "{:.3g}", "latency_ms_p50"),
    ("milliseconds, 99 % within", "{:.3g}", "latency_ms_p99"),
    ("breaker", "{}", "breaker"),
    ("not durable", "{}", "not_durable"),
    ("alarms", "{}", "alarms"),
)


def _likely(estimate: Estimate, price: float) -> Synthetic:
    """Return samples of the agreement that an estimate makes most likely, in as many bins as a gate has."""
    below = np.cumsum(estimate.samples) - estimate.samples / 2.0
    bins = np.minimum((_BINS * below / estimate.samples.sum()).astype(int), _BINS - 1)
    weights = np.bincount(bins, estimate.samples, _BINS)
    agreements = np.bincount(bins, estimate.samples * estimate.agreement, _BINS)
    used = weights > 0.0
    return Synthetic(agreements[used] / weights[used], ConstantPrice(price), weights[used])


def print_gain(figures: dict[str, Any], estimate: Estimate | None, behind: bool) -> None:
    """Print what was gained, with the curve of other prices; `behind`: local alone has answered."""
    found, paid, right = figures["gain"], figures["offload_cost"], figures["true_accuracy"]
    would = "would have " if behind else ""
    spare, cost, agree = f"{would}spared", f"{would}cost", "would agree" if behind else "agree"
    spared, answers = console.counted(found["spared"], "answer"), console.counted(found["answers"], "answer")
    possible = f"by what {answers} of the remote leave possible."
    if paid is None:
        low, high = found["accuracy_low"], found["accuracy_high"]
        all = f"of all answers, {low:.2%} to {high:.2%} {agree} with the remote's"
        console.say(f"Asking {spare} {spared} unlike the remote's; {all}, {possible}")
    else:
        saved, price = found["saved_on_local"], found["remote_cost_per_sample"]
        less = f"{abs(saved):.4f} a sample {'less' if saved >= 0 else 'more'} than local alone"
        console.say(f"Asking cost {paid:.4g} and {spare} {spared} unlike the remote's, at 1 each: {less}.")
        here = f"this device {cost} {found['cost_low']:.4f} to {found['cost_high']:.4f}"
        console.say(f"Remote alone would have cost {price:.4g} a sample; {here}, {possible}")
    if right is not None and not behind:
        local = found["local_true_accuracy"]
        worse = ": asking the remote made the answers worse" if right < local else ""
        console.say(f"Right by the true labels: local alone {local:.2%}, this device {right:.2%}{worse}.")
    if paid is not None and estimate is not None and figures["samples"] >= _FEWEST:
        price = round(found["remote_cost_per_sample"], 4)
        source = _likely(estimate, price)
        console.say("At other prices, with the agreement that these answers make most likely:")
        prices, horizon = (*OFFLOAD_COSTS, price), min(figures["samples"], _MAX_SAMPLES)
        console.print_trade(trade(source, offload_costs=prices, horizon=horizon, machine_code=False), price)
