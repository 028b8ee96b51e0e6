"""Evaluation: what each policy would have cost on a recorded log; and policies by name, made ready for a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hinge._checks import real, whole
from hinge.bins import Bins, UniformBins
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.costs import shifted_cost
from hinge.errors import InvalidTrace, InvalidType, InvalidValue
from hinge.gate import DEFAULT_BINS, Gate
from hinge.policies import AlwaysRemote, Policy, build, policy_class, policy_names
from hinge.simulation.engine import Playable, Progress, by_name, run_seeds, simulate
from hinge.simulation.kernel import pays
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
from hinge.theory import Dip, Estimate, significant_dips
from hinge.traces import Log, Trace, load_trace, read_recorded, trace_names

LEARNED = "learned"  # an offload cost that the policies are not told
FITTED = "offline"  # fitted in hindsight, on the very samples it is then tried on
INFORMED = ("oracle", "static", FITTED)  # need a number for the cost, and cannot learn it
CLOSEST = 0.0005  # costs per sample that simulated runs cannot tell apart


@dataclass(frozen=True, eq=False)
class Evaluation(Results):
    """The results of `evaluate`, by policy. `str()` is a table, `figures()` has what `hinge evaluate --json` prints.

    `dips` are the bins in which agreement falls with confidence, across the break-even: policies that assume the
    contrary accept there wrongly. `estimate` is what a log of offloads alone says about agreement, and with what
    interval.
    """

    policies: Mapping[str, Playable]
    trace: Trace | Log
    bins: Bins
    offload_cost: float | None  # None: learned by the policies
    shuffled: Results | None  # the same on shuffled orders of the log, which show how much the order matters
    dips: tuple[Dip, ...]
    estimate: Estimate | None = None
    intervals: Mapping[str, tuple[float, float]] | None = None  # of the estimated cost per sample

    def figures(self) -> list[dict[str, Any]]:
        """The figures of each policy; after shuffled orders also their mean cost per sample, and its spread.

        Of a log of offloads alone, also the ends of the interval of the cost, `cost_low` and `cost_high`.
        """
        found = super().figures()
        for figures in found:
            if self.intervals:
                figures["cost_low"], figures["cost_high"] = self.intervals[figures["policy"]]
            if self.shuffled is not None:
                costs = self.shuffled[figures["policy"]].cost_per_sample[:, -1]
                figures["shuffled_cost_per_sample"] = float(costs.mean())
                figures["shuffled_spread"] = float(np.std(costs, ddof=1)) if len(costs) > 1 else None
        return found

    @property
    def source(self) -> Trace | Synthetic:
        """What further simulations can run on: the trace; of a log, samples as it makes them most likely."""
        if isinstance(self.trace, Trace) or self.estimate is None or self.offload_cost is None:
            return cast(Trace, self.trace)
        return likely(self.estimate, self.offload_cost)

    def warnings(self) -> list[dict[str, Any]]:
        """The dips as dicts: their bins, and where on the scale of confidence they lie."""
        count = self.bins.bins
        return [
            {
                "warning": "agreement falls with confidence",
                "confidence_from": dip.bin / count,
                "confidence_to": (dip.last_bin + 1) / count,
                **asdict(dip),
            }
            for dip in self.dips
        ]


def evaluate(
    trace: Any,
    policies: str | Iterable[str | Playable | Gate] | Mapping[str, str | Playable | Gate] = "all",
    offload_cost: float | str | None = None,
    *,
    bins: int | Bins | None = None,
    confidence: ConfidenceMeasure | None = None,
    columns: Mapping[str, str] | None = None,
    alpha: float = 0.52,
    horizon: int | None = None,
    runs: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """What every policy would have cost on a recorded log, as `hinge evaluate` computes it.

    `trace` is a `Trace`, a `Log`, a file, the name of a shipped trace, or a pandas or polars frame, whose columns may
    have other names (`columns`, as for `read_trace`); where it has scores, `confidence` measures the confidence.
    `policies` are names, policies, gates or any objects with `decide` and
    `learn`, as in `simulate`. `bins` are those of the policies or gates given, else 16 uniform ones; of a `Log` of a
    device with other bins, these.

    `offload_cost` is a number that the policies are told, or "learned": as the trace recorded, else 0.45 or 0.55 at
    random, and they have to learn it. Without it, it is learned where the trace has costs, else 0.5.

    Without `horizon` the log is replayed once, in its own order, and then in `runs` shuffled orders. With it, `runs`
    times that many samples are drawn with replacement. The offline threshold is fitted on the log itself.

    A `Log`, in which the remote answered only what was offloaded, is not replayed: agreement is estimated from what was
    offloaded (`hinge.theory.Estimate`), policies run on `runs` streams of that agreement, as long as the log or
    `horizon`, and their costs get intervals. They are told the offload cost: without `offload_cost` it is the mean of
    the log's, else 0.5.

    >>> print(evaluate("synthetic-cifar10", ["isotonic", "always-remote"], offload_cost=0.5, runs=2))
    policy         cost per sample  offloaded   agrees  true acc.  regret  shuffled  ± s.d.
    isotonic                0.2619      0.344   91.02%     86.90%    44.3    0.2616  0.0001
    always-remote           0.5000      1.000  100.00%     95.36%  2425.0    0.5000  0.0000
    """
    chosen = [name.strip() for name in policies.split(",")] if isinstance(policies, str) else policies
    chosen = chosen if isinstance(chosen, Mapping) else list(chosen)
    recorded = as_recorded(trace, confidence, columns)
    binning = _bins(bins, chosen.values() if isinstance(chosen, Mapping) else chosen, recorded)
    if isinstance(recorded, Log):
        return _evaluate_log(recorded, chosen, offload_cost, binning, alpha, horizon, runs, seed, progress)
    cost = known_cost(offload_cost, recorded)
    costs = costs_for(recorded, cost)
    source: Replay = (InOrder if horizon is None else Resampled)(recorded, binning, costs)
    length = len(recorded) if horizon is None else whole("evaluate", "horizon", horizon, 1)
    ready = _ready(chosen, partial(lineup, source=source, offload_cost=cost, horizon=length, alpha=alpha, seed=seed))
    code = pays(length * runs) or None  # the first run is not many samples, but those that follow are
    ones = 1 if horizon is None else runs
    results = simulate(ready, source, length, ones, seed, progress=progress, machine_code=code)
    shuffled: Results | None = None
    if results.complete and horizon is None:
        try:
            orders = Shuffled(recorded, binning, costs)
            shuffled = simulate(ready, orders, length, runs, seed, progress=progress)
        except KeyboardInterrupt:  # what was done before remains
            results = replace(results, complete=False)
    complete = results.complete and (shuffled is None or shuffled.complete)
    dips = significant_dips(*source.history(), source.bins, source.offload_costs.tolist())
    crossing = tuple(dip for dip in dips if dip.crosses)  # the others mislead no policy
    return Evaluation(results.records, complete, ready, recorded, binning, cost, shuffled, crossing)


def _evaluate_log(
    log: Log,
    policies: Any,
    offload_cost: float | str | None,
    bins: Bins,
    alpha: float,
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
        make = partial(lineup, source=source, offload_cost=cost, horizon=length, alpha=alpha, seed=seed)
        return _ready(policies, make)

    def play(source: Synthetic) -> Results:
        return simulate(ready(source), source, length, runs, seed, progress=progress)

    results, intervals = in_possible_worlds(estimate, cost, run_seeds(seed, runs), play)
    dips = significant_dips(log.bins_by(bins)[log.offloaded], log.offloads.agreed, bins.bins, cost)
    crossing = tuple(dip for dip in dips if dip.crosses)
    known = (results.records, results.complete, ready(likely(estimate, cost)), log, bins, cost)
    return Evaluation(*known, None, crossing, estimate, intervals)


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
    chosen = np.arange(len(trace)) < len(trace) // 2
    np.random.default_rng(seed).shuffle(chosen)
    one, other = ({name: values[rows] for name, values in trace.columns.items()} for rows in (chosen, ~chosen))
    return Trace.from_frame(one), Trace.from_frame(other)


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


def _bins(bins: int | Bins | None, policies: Iterable[object], recorded: Trace | Log) -> Bins:
    """The bins asked for, else those that the first policy or gate brings, else the usual ones."""
    for policy in policies:
        if bins is None and isinstance(policy, Gate):
            bins = policy.bins
        elif bins is None and isinstance(getattr(policy, "bins", None), int):
            bins = getattr(policy, "bins", None)
    chosen = bins if isinstance(bins, Bins) else UniformBins(DEFAULT_BINS if bins is None else bins)
    if not isinstance(recorded, Log):
        return chosen
    chosen = recorded.unmixed(chosen) if bins is None else chosen
    if mixed := recorded.mixed(chosen):
        several = f"a device decided on the samples of bin {mixed[0]} in several bins of its own"
        raise InvalidTrace(f"evaluate: {several}: give those; or, if the column bin is something else, rename it")
    return chosen


def _ready(policies: Any, named: Callable[[list[str]], dict[str, Policy]]) -> dict[str, Playable]:
    """Policies by name; `named` builds those that are given by name only."""
    if isinstance(policies, Mapping):
        return {name: named([each])[each] if isinstance(each, str) else each for name, each in policies.items()}
    ready: dict[str, Playable] = {}
    for each in policies:
        more: dict[str, Playable] = {**named([each])} if isinstance(each, str) else by_name([each])
        twice = more.keys() & ready.keys()
        if twice:
            raise ValueError(f"evaluate: policies of one name need a dict that names them apart, got {sorted(twice)}")
        ready |= more
    return ready


def lineup(
    names: Iterable[str],
    source: Replay | Synthetic,
    *,
    offload_cost: float | None,
    horizon: int,
    alpha: float = 0.52,
    seed: int = 0,
    **more: Any,
) -> dict[str, Policy]:
    """The policies of these names for a source; `all` stands for every policy that is free to offload at its cost.

    The oracle is told the agreement and the mean cost of every bin. The offline threshold is fitted on the source's own
    bins, in hindsight: it shows the best that a threshold can do.
    `more` are other settings, for the policies that have them.

    >>> from hinge.simulation.sources import ConstantPrice
    >>> source = Synthetic([0.2, 0.9], ConstantPrice(0.5))
    >>> lineup(["hi-lcb", "oracle"], source, offload_cost=0.5, horizon=1000)["oracle"]
    Oracle(agreement=[0.2, 0.9], offload_cost=0.5, bin_costs=None)
    """
    wanted = list(names)
    if wanted == ["all"]:
        wanted = [name for name in policy_names() if not policy_class(name).keeps_budget]
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
    ready = {}
    for name in wanted:
        told = source.mean_offload_cost if offload_cost is None and name in INFORMED else offload_cost
        fitted = dict(zip(("history", "agreed"), source.history(), strict=True)) if name == FITTED else {}
        ready[name] = build(name, **settings, **fitted, offload_cost=told)
    return ready
