"""Evaluation: what each policy would have cost on a recorded log; and policies by name, made ready for a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import real, whole
from hinge.bins import Bins, FittedBins, UniformBins
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.costs import shifted_cost
from hinge.errors import InvalidTrace, InvalidType, InvalidValue
from hinge.gate import Gate
from hinge.policies import AlwaysRemote, FixedPolicy, Policy, Target, build, policy_names
from hinge.price import make_price
from hinge.simulation.engine import Playable, Progress, by_name, run_seeds, simulate
from hinge.simulation.results import Results
from hinge.simulation.sources import (
    BimodalPrice,
    ConstantPrice,
    InOrder,
    PriceProcess,
    Replay,
    Resampled,
    Shuffled,
    Synthetic,
)
from hinge.theory import Estimate, fit_threshold
from hinge.traces import Log, Trace, load_trace, read_recorded, trace_names

if TYPE_CHECKING:
    from hinge.simulation.trade import Recommendation

LEARNED = "learned"  # an offload cost that is measured
FITTED = "offline"  # fitted in hindsight, on the very samples it is then tried on
INFORMED = ("oracle", FITTED)  # need a number for the cost
BINS = 16  # uniform ones, by which the oracle goes
UNIFORM = f"probation-{BINS}"  # the default policy, with these bins
LINEUP = ("probation", UNIFORM, "hi-lcb", "threshold", "always-local", "always-remote", "oracle")
CLOSEST = 0.0005  # costs per sample that simulated runs cannot tell apart
_REGRET = ("regret", "regret_ci95", "regret_p50", "regret_p99", "realised_regret")  # by the oracle's bins


@dataclass(frozen=True, eq=False)
class Evaluation(Results):
    """The results of `evaluate`, by policy. `str()` is a table, `figures()` has what `hinge evaluate --json` prints.

    `best` is the fixed threshold that would have cost least, in hindsight, and what it costs per sample. `estimate` is
    what a log of offloads alone says about agreement, and with what interval.
    """

    policies: Mapping[str, Playable]
    trace: Trace | Log
    bins: Bins  # of the oracle, and of policies without bins of their own
    offload_cost: float | None  # None: measured
    shuffled: Results | None  # the same on shuffled orders of the log, which show how much the order matters
    best: tuple[float, float] | None = None
    estimate: Estimate | None = None
    intervals: Mapping[str, tuple[float, float]] | None = None  # of the estimated cost per sample

    def figures(self) -> list[dict[str, Any]]:
        """The figures of each policy, and what it costs over the best threshold in hindsight.

        After shuffled orders also their mean cost per sample, and its spread; of a log of offloads alone, the ends of
        the interval of the cost, `cost_low` and `cost_high`.
        """
        found = []
        for record in self.values():
            figures = {name: value for name, value in record.summary().items() if name not in _REGRET}
            if self.best is not None and self.best[1] > 0.0:
                figures["over_threshold"] = figures["cost_per_sample"] / self.best[1]
            if self.intervals:
                figures["cost_low"], figures["cost_high"] = self.intervals[record.policy]
            if self.shuffled is not None:
                costs = self.shuffled[record.policy].cost_per_sample[:, -1]
                figures["shuffled_cost_per_sample"] = float(costs.mean())
                figures["shuffled_spread"] = float(np.std(costs, ddof=1)) if len(costs) > 1 else None
            found.append(figures)
        return found

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """What to run; None for a log of offloads alone, and for one too short to tell."""
        from hinge.simulation.trade import recommend

        return recommend(self.trace, self.offload_cost) if isinstance(self.trace, Trace) else None

    @property
    def verdict(self) -> str:
        """What to run, and on what evidence, in words."""
        if self.recommendation is not None:
            return str(self.recommendation)
        return "Nothing is recommended: the log does not hold the remote's answer to enough samples."

    @property
    def source(self) -> Trace | Synthetic:
        """What further simulations can run on: the trace; of a log, samples as it makes them most likely."""
        if isinstance(self.trace, Trace) or self.estimate is None or self.offload_cost is None:
            return cast(Trace, self.trace)
        return likely(self.estimate, self.offload_cost)


Named = str | Playable
Policies = str | Iterable[Named] | Mapping[str, Named] | None


def evaluate(
    trace: Any,
    policies: Policies = None,
    offload_cost: float | str | None = None,
    *,
    bins: int | Bins | None = None,
    budget: float | None = None,
    target: float | None = None,
    confidence: ConfidenceMeasure | None = None,
    columns: Mapping[str, str] | None = None,
    horizon: int | None = None,
    runs: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """What every policy would have cost on a recorded log, as `hinge evaluate` computes it.

    `trace` is a `Trace`, a `Log`, a file, the name of a shipped trace, or a pandas or polars frame, whose columns may
    have other names (`columns`, as for `read_trace`); where it has scores, `confidence` measures the confidence.
    `policies` are names, policies, gates or any objects with `decide` and `learn`, as in `simulate`; by default the
    default policy with bins that fit themselves and with 16 uniform ones, HI-LCB, a threshold fitted on the other half
    of the log, both models alone and the oracle of 16 bins; "all" is every policy. What has a name gets bins that fit
    themselves, if it can have them, unless `bins` are given. A `budget` is kept by each gate that can; a `target` adds
    a gate that holds this agreement.

    `offload_cost` is a number, or "learned": as the trace recorded, else 0.45 or 0.55 at random, and gates have to
    measure it. Without it, it is measured where the trace has costs, else 0.5.

    Without `horizon` the log is replayed once, in its own order, and then in `runs` shuffled orders. With it, `runs`
    times that many samples are drawn with replacement.

    A `Log`, in which the remote answered only what was offloaded, is not replayed: agreement is estimated from what was
    offloaded (`hinge.theory.Estimate`), policies run on `runs` streams of that agreement, as long as the log or
    `horizon`, and their costs get intervals. They are told the offload cost: without `offload_cost` it is the mean of
    the log's, else 0.5. Their bins are those of the device, or the uniform ones.

    >>> print(evaluate("synthetic-cifar10", ["probation", "always-remote"], offload_cost=0.5, runs=2))
    policy         cost per sample  over threshold  offloaded   agrees  true acc.  shuffled  ± s.d.
    probation               0.2620           1.019      0.288   88.23%     84.29%    0.2607  0.0001
    always-remote           0.5000           1.946      1.000  100.00%     95.36%    0.5000  0.0000
    """
    recorded = as_recorded(trace, confidence, columns)
    usual = UniformBins(BINS) if bins is None else bins if isinstance(bins, Bins) else UniformBins(bins)
    if isinstance(recorded, Log):
        binning = _bins_of(recorded, usual, given=bins is not None)
        return _evaluate_log(recorded, policies, offload_cost, binning, horizon, runs, seed, progress)
    cost = known_cost(offload_cost, recorded)
    costs = costs_for(recorded, cost)
    source: Replay = (InOrder if horizon is None else Resampled)(recorded, usual, costs)
    length = len(recorded) if horizon is None else whole("evaluate", "horizon", horizon, 1)
    more: dict[str, Any] = {"fitted": bins is None, "budget": budget}
    ready = ready_for(source, policies, offload_cost=cost, horizon=length, seed=seed, target=target, **more)
    results = simulate(ready, source, length, 1 if horizon is None else runs, seed, progress=progress)
    shuffled: Results | None = None
    if results.complete and horizon is None:
        try:
            orders = Shuffled(recorded, usual, costs)
            shuffled = simulate(ready, orders, length, runs, seed, progress=progress)
        except KeyboardInterrupt:  # what was done before remains
            results = replace(results, complete=False)
    complete = results.complete and (shuffled is None or shuffled.complete)
    best = fit_threshold(recorded.confidence, recorded.agreed, source.mean_offload_cost)
    return Evaluation(results.records, complete, ready, recorded, usual, cost, shuffled, best)


def _evaluate_log(
    log: Log,
    policies: Policies,
    offload_cost: float | str | None,
    bins: Bins,
    horizon: int | None,
    runs: int,
    seed: int,
    progress: Progress | None,
) -> Evaluation:
    """What every policy would cost on streams of the agreement that a log makes most likely, and the intervals."""
    if offload_cost == LEARNED:
        raise InvalidValue("evaluate", "offload_cost", "must be known for a log of offloads alone, got 'learned'")
    mean = log.offloads.mean_offload_cost
    usual = 0.5 if mean is None else round(mean, 9)  # the mean of many 0.2 is not 0.2
    cost = real("evaluate", "offload_cost", usual if offload_cost is None else offload_cost, 0, 1)
    estimate = estimated(log, bins)
    length = len(log) if horizon is None else whole("evaluate", "horizon", horizon, 1)

    def ready(source: Synthetic) -> dict[str, Playable]:
        return ready_for(source, policies, offload_cost=cost, horizon=length, seed=seed)

    def play(source: Synthetic) -> Results:
        return simulate(ready(source), source, length, runs, seed, progress=progress)

    results, intervals = in_possible_worlds(estimate, cost, run_seeds(seed, runs), play)
    known = (results.records, results.complete, ready(likely(estimate, cost)), log, bins, cost)
    return Evaluation(*known, None, None, estimate, intervals)


def _bins_of(log: Log, usual: Bins, *, given: bool) -> Bins:
    """The usual bins, or those of the device that decided on a log."""
    chosen = usual if given else log.unmixed(usual)
    if mixed := log.mixed(chosen):
        several = f"a device decided on the samples of bin {mixed[0]} in several bins of its own"
        raise InvalidTrace(f"evaluate: {several}: give those; or, if the column bin is something else, rename it")
    return chosen


# -- logs of offloads alone -------------------------------------------------------------------------------------------


def in_possible_worlds(
    estimate: Estimate, offload_cost: float, seeds: Sequence[int], play: Callable[[Synthetic], Results]
) -> tuple[Results, dict[str, tuple[float, float]]]:
    """The results of policies on the likeliest curve, and the interval of each one's cost.

    What a policy accepts is as on that curve, or as on the cheapest and dearest, whichever gives the wider interval;
    how much of that agrees is anything possible. `play` runs the policies, with these seeds. Either end lies CLOSEST
    further out, as a few runs cannot tell more, but for always-remote: it accepts nothing, whatever agrees.
    """
    curves = (estimate.agreement, *estimate.extremes(offload_cost))
    worlds = [likely(estimate, offload_cost, agreement) for agreement in curves]
    played = [play(world) for world in worlds]
    shares = [accepted_shares(results, world, seeds) for results, world in zip(played, worlds, strict=True)]
    ends = [{name: estimate.cost(each[name], offload_cost) for name in each} for each in shares]
    fit, cheap, dear = ends
    intervals = {}
    for name in fit:
        low, high = min(fit[name][0], cheap[name][0]), max(fit[name][1], dear[name][1])
        more = 0.0 if name == AlwaysRemote.name else CLOSEST
        intervals[name] = (max(0.0, low - more), min(1.0, high + more))
    return replace(played[0], complete=all(results.complete for results in played)), intervals


def accepted_shares(results: Results, source: Synthetic, seeds: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """The share of each bin's samples that policies accepted, by name, a row for each run of these seeds."""
    first = next(iter(results.values()))
    seen = np.zeros((len(first.runs), source.bins), np.int64)  # the same samples for all of them
    for row, seed in zip(seen, seeds, strict=False):
        for samples in source.stream(seed, int(first.times[-1])):
            row += np.bincount(samples.bins, minlength=source.bins)
    return {
        name: np.where(source.gaps > 0.0, each.wrong_accepts, seen - each.wrong_offloads) / np.maximum(seen, 1)
        for name, each in results.items()
    }


def estimated(log: Log, bins: Bins) -> Estimate:
    """What a log says about the agreement of each bin."""
    where, asked, count = log.bins_by(bins), log.offloaded, bins.bins
    agreements = np.bincount(where[asked], log.offloads.agreed, count)
    return Estimate(np.bincount(where, minlength=count), np.bincount(where[asked], minlength=count), agreements)


def likely(estimate: Estimate, offload_cost: float, agreement: NDArray[np.float64] | None = None) -> Synthetic:
    """Samples whose bins come as often, and agree as often, as an estimate says; or as often as `agreement`."""
    curve = estimate.agreement if agreement is None else agreement
    return Synthetic(curve, ConstantPrice(offload_cost), estimate.samples)


# -- traces ------------------------------------------------------------------------------------------------------------


def fitted_cost(trace: Trace, offload_cost: float) -> float:
    """The shifted cost γ′ by the true labels of a trace.

    >>> trace = load_trace("cifar100-resnet18-calibrated")
    >>> round(fitted_cost(trace, 0.2), 3), fitted_cost(trace, 0.5)
    (0.531, 1.0)
    """
    if trace.local_right is None or trace.remote_right is None:
        raise ValueError(f"fitted_cost: trace must have true labels, got {trace!r}")
    known = trace.labelled_rows
    gain = trace.remote_right[known].sum() - trace.local_right[known].sum()  # where the two agree there is none
    return shifted_cost(offload_cost, float((1.0 - trace.agreed[known]).sum()), float(gain))


def halves(trace: Trace, seed: int) -> tuple[Trace, Trace]:
    """A random half of a trace, and the rest; either in the order of the trace."""
    chosen = _half(len(trace), seed)
    one, other = ({name: values[rows] for name, values in trace.columns.items()} for rows in (chosen, ~chosen))
    return Trace.from_frame(one), Trace.from_frame(other)


def _half(rows: int, seed: int) -> NDArray[np.bool_]:
    """Which rows are in the first of two random halves."""
    chosen = np.arange(rows) < rows // 2
    np.random.default_rng(seed).shuffle(chosen)
    return chosen


def as_trace(trace: Any) -> Trace:
    """A trace, from a file, by the name of a shipped one, or from a frame; what has a suffix or a folder is a file."""
    found = as_recorded(trace)
    if isinstance(found, Log):
        raise InvalidTrace(f"{found!r} cannot be replayed, as the remote did not answer all; evaluate takes it")
    return found


def as_recorded(
    trace: Any, confidence: ConfidenceMeasure | None = None, columns: Mapping[str, str] | None = None
) -> Trace | Log:
    """A trace as by `as_trace`; or a log, where the remote's answer is missing in some rows."""
    is_file = isinstance(trace, str | PathLike) and bool(Path(trace).suffix or len(Path(trace).parts) > 1)
    is_file = is_file or (isinstance(trace, str) and trace not in trace_names() and Path(trace).is_file())
    if is_file or isinstance(trace, Mapping) or hasattr(trace, "__arrow_c_stream__"):
        return read_recorded(trace, columns, confidence or max_softmax)
    if not isinstance(trace, str | Trace | Log):
        raise TypeError(f"evaluate: trace must be a Trace, a Log, a file, a name or a frame, got {trace!r:.200}")
    found = load_trace(trace) if isinstance(trace, str) else trace
    if confidence is not None or columns is not None:
        name, use = ("columns", "files") if confidence is None else ("confidence", "frames with scores")
        raise InvalidType("evaluate", name, f"is for {use}, and not for {found!r}")
    return found


def known_cost(offload_cost: float | str | None, trace: Trace) -> float | None:
    """The offload cost that the policies are told, or None where they have to learn it."""
    if offload_cost == LEARNED or (offload_cost is None and trace.cost is not None):
        return None
    return 0.5 if offload_cost is None else real("evaluate", "offload_cost", offload_cost, 0, 1)


def costs_for(trace: Trace, offload_cost: float | None) -> PriceProcess | None:
    """The given cost; or, where it has to be learned, those that the trace recorded or the paper's 0.45 and 0.55."""
    if offload_cost is not None:
        return ConstantPrice(offload_cost)
    return BimodalPrice() if trace.cost is None else None


# -- policies by name -------------------------------------------------------------------------------------------------


class EachRow(Bins):
    """A bin for each row of a trace, for decisions that were made beforehand."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    @property
    def bins(self) -> int:
        return self.rows

    def bin(self, confidence: float) -> int:
        raise NotImplementedError("EachRow: rows have no order by confidence")

    def bin_many(self, confidences: ArrayLike) -> NDArray[np.int64]:
        return np.arange(self.rows)

    def state(self) -> dict[str, Any]:
        return {"kind": "each row", "rows": self.rows}


class Beforehand(FixedPolicy):
    """Accepts the rows that it is told."""

    def __init__(self, accepted: Sequence[bool]) -> None:
        super().__init__(len(accepted), None)
        self.accepted = accepted
        self._settle(accepted)


def cross_fitted(trace: Trace, offload_cost: float, seed: int = 0) -> Gate:
    """The threshold that is best on one half of a trace, run on the other; for either half."""
    accepted, first = np.zeros(len(trace), np.bool_), _half(len(trace), seed)
    for mine, other in ((first, ~first), (~first, first)):
        threshold, _ = fit_threshold(trace.confidence[other], trace.agreed[other], offload_cost)
        accepted[mine] = (trace.confidence[mine] >= threshold) & (threshold < 1.0)
    return Gate(Beforehand(accepted.tolist()), bins=EachRow(len(trace)))


def ready_for(
    source: Replay | Synthetic,
    policies: Policies,
    *,
    offload_cost: float | None,
    horizon: int,
    seed: int = 0,
    fitted: bool = False,
    budget: float | None = None,
    target: float | None = None,
) -> dict[str, Playable]:
    """The policies of `evaluate` on a source, by name."""
    replayed = isinstance(source, Replay)
    chosen: Any = [name.strip() for name in policies.split(",")] if isinstance(policies, str) else policies
    if chosen is None:
        chosen = [name for name in LINEUP if replayed or name not in (UNIFORM, "threshold")]
    given = by_name(policy_names() if chosen == ["all"] else chosen)
    settings: dict[str, Any] = {"offload_cost": offload_cost, "horizon": horizon, "seed": seed, "budget": budget}
    ready: dict[str, Playable] = {}
    for name, each in given.items():
        if each == "threshold" and isinstance(source, Replay):
            ready[name] = cross_fitted(source.trace, source.mean_offload_cost, seed)
        elif each == UNIFORM:
            ready[name] = lineup(["probation"], source, **settings)["probation"]
        elif not isinstance(each, str):
            ready[name] = Gate(each, bins=None) if replayed and isinstance(each, Policy) else each
        elif each not in ("threshold", Target.name) or chosen != ["all"]:  # which need a number
            ready[name] = lineup([each], source, fitted=fitted and replayed, **settings)[each]
    if target is not None:
        held = Target(target, source.bins, seed=seed)
        ready[Target.name] = Gate(held, bins=FittedBins()) if fitted and replayed else held
    return ready


def lineup(
    names: Iterable[str],
    source: Replay | Synthetic,
    *,
    offload_cost: float | None,
    horizon: int,
    alpha: float = 0.52,
    seed: int = 0,
    fitted: bool = False,
    budget: float | None = None,
    **more: Any,
) -> dict[str, Policy | Gate]:
    """The policies of these names for a source; in a gate where bins are fitted, a budget kept, or costs measured.

    The oracle is told the agreement and the mean cost of every bin. The offline threshold is fitted on the source's own
    bins, in hindsight: it shows the best that a threshold can do. `more` are other settings, for those that have them.

    >>> from hinge.simulation.sources import ConstantPrice
    >>> source = Synthetic([0.2, 0.9], ConstantPrice(0.5))
    >>> lineup(["hi-lcb", "oracle"], source, offload_cost=0.5, horizon=1000)["oracle"]
    Oracle(agreement=[0.2, 0.9], offload_cost=0.5, bin_costs=None)
    """
    settings: dict[str, Any] = {
        "bins": source.bins,
        "alpha": alpha,
        "horizon": horizon,
        "seed": seed,
        "agreement": source.agreement.tolist(),
        **more,
    }
    if np.ptp(source.offload_costs) > 0:
        settings["bin_costs"] = source.offload_costs.tolist()
    ready: dict[str, Policy | Gate] = {}
    for name in names:
        told = source.mean_offload_cost if offload_cost is None and name in INFORMED else offload_cost
        extra = dict(zip(("history", "agreed"), source.history(), strict=True)) if name == FITTED else {}
        policy = build(name, **settings, **extra, **({} if told is None else {"offload_cost": told}))
        bins = FittedBins() if fitted and policy.functions.regroups is not None else None
        kept = budget if policy.functions.offloads_at is not None else None
        measured = told is None and policy.takes_price and policy.weighs_price and not policy.learns_cost
        if bins is None and kept is None and not measured:
            ready[name] = policy
            continue
        gate = Gate(policy, bins=bins or getattr(source, "binning", None), budget=kept)
        gate.price = make_price() if measured else None
        ready[name] = gate
    return ready
