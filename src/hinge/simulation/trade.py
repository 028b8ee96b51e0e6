"""The trade between accuracy and offloads: what a gate gains at every price of an offload, and where it gains nothing.

In a bin with agreement f, accepting costs 1 − f and offloading γ. With arrivals w the oracle costs Σ w min(1 − f, γ):
less than local alone iff some bin that arrives has 1 − f > γ, and less than remote alone iff some bin has 1 − f < γ. A
policy has to learn f, and pays for that, so that its break-evens lie further inside. docs/gain.md has the argument.

A recommendation is the policy, bins and price that suit a recorded log. Policy and bins are chosen on a random half of
the log, and what they trade is measured on the other; a price that nobody knows is that of its headline. A gate that
saves nothing there is not recommended: the cheaper of both models alone is. The default policy stays, unless another is
cheaper by more than one standard error, √(c (1 − c) / n) at a cost c on n samples: a smaller difference says more about
the half than about the policy (Breiman et al., Classification and Regression Trees, 1984). Bins are fitted: cut at
every threshold that is best at some price. Where there are true labels, costs are by the truth, and a known price γ is
told to the policy as γ′, which the labels shift, unless γ itself costs less on the half that is measured. In the end
bins and γ′ are fitted once more, on the whole log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isnan, sqrt
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hinge._checks import real, whole
from hinge._html import Curve, Panel, draw, save
from hinge.bins import Bins, EdgeBins, UniformBins
from hinge.gate import DEFAULT_BINS
from hinge.policies import AlwaysLocal, AlwaysRemote, Policy, Target, policy_class, policy_names
from hinge.simulation.engine import Progress, run_seeds, simulate
from hinge.simulation.evaluate import as_trace, fitted_cost, halves, lineup
from hinge.simulation.results import Record, aligned, interval
from hinge.simulation.sources import ConstantPrice, InOrder, Replay, Resampled, Shuffled, Synthetic
from hinge.theory import best_thresholds
from hinge.traces import Trace

OFFLOAD_COSTS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9)
KEPT = 0.9  # of the accuracy that the remote adds to local's: what the headline has to keep
GAINED = 0.01  # of the cost of the cheaper of both alone: what saves less gains nothing to speak of
_HORIZON = 10_000  # samples of a source that has no length of its own
_RUNS = 20  # at most: the figures of one short run are more chance than policy
SPREAD = "± 95 %"  # of the mean over runs
_TIE = 0.0005  # of the cost of another rule: what saves less is shown as saving nothing


@dataclass(frozen=True)
class Point:
    """What a rule costs per sample at one price, and the shares of samples that it offloads, and of answers that agree
    with the remote's and that are right."""

    offload_cost: float
    cost_per_sample: float
    offload_fraction: float
    agreement: float  # `accuracy` in the figures of a simulation
    true_accuracy: float | None
    cost_ci95: float | None = None  # of the mean over several runs, the half-width of its 95 % confidence interval

    @classmethod
    def of(cls, offload_cost: float, record: Record) -> "Point":
        """A policy by what a simulation has found."""
        figures, half = record.summary(), interval(record.cost_per_sample[:, -1])[1]
        known = (figures["cost_per_sample"], figures["offload_fraction"], figures["accuracy"])
        return cls(offload_cost, *known, figures.get("true_accuracy"), None if isnan(half) else half)

    @property
    def quality(self) -> float:
        """The accuracy by the true labels; where there are none, the agreement with the remote."""
        return self.agreement if self.true_accuracy is None else self.true_accuracy

    def by_truth(self, offload_cost: float) -> "Point":
        """The same at another price, where wrong is what `quality` says."""
        cost = offload_cost * self.offload_fraction + 1.0 - self.quality
        return replace(self, offload_cost=offload_cost, cost_per_sample=cost, cost_ci95=None)


@dataclass(frozen=True)
class Trade:
    """A policy (`gate`) beside local only, remote only and the oracle, at every offload cost; made by `trade`.

    `sentence` says what is gained and where nothing is, `str()` is a table with it, `figure()` a picture. Read by its
    other columns, the same curve answers for a budget (`within`) or a target (`reaching`) in place of a price.
    """

    policy: str
    gate: tuple[Point, ...]
    local: tuple[Point, ...]
    remote: tuple[Point, ...]
    oracle: tuple[Point, ...]

    @property
    def remote_until(self) -> float | None:
        """The offload cost up to which remote alone is as cheap as the policy, or cheaper; None: there is none."""
        return _break_even(self.gate, self.remote)

    @property
    def local_from(self) -> float | None:
        """The offload cost above which local alone is cheaper than the policy; None where there is none."""
        return _break_even(self.gate[::-1], self.local[::-1])

    @property
    def headline(self) -> Point | None:
        """The policy at the highest offload cost at which it keeps nine tenths of what the remote adds, and saves.

        That is in accuracy, over local alone. The higher the price, the fewer the calls: these are the fewest at nearly
        the remote's accuracy. None where the remote adds nothing, or the policy keeps so much at no price at which it
        saves.
        """
        saves = [point for point in self.gate if self.saving(point.offload_cost)[0] >= GAINED]
        kept = [point for point in saves if self._keeps(point)]
        return kept[-1] if kept and self._remote_adds else None

    @property
    def cheapest(self) -> Point:
        """The policy at the offload cost at which it saves most."""
        return max(self.gate, key=lambda point: self.saving(point.offload_cost)[0])

    @property
    def _remote_adds(self) -> float:
        return max(self.remote[0].quality - self.local[0].quality, 0.0)

    @property
    def _gains(self) -> bool:
        return any(self.saving(point.offload_cost)[0] > _TIE for point in self.gate)

    def _keeps(self, point: Point) -> bool:
        return point.quality >= self.local[0].quality + KEPT * self._remote_adds

    @property
    def price(self) -> tuple[float, str]:
        """The offload cost to take where none is known, and why, as a `Recommendation` says it."""
        if self.headline is not None:
            return self.headline.offload_cost, "found"
        most = self.cheapest.offload_cost
        return (most, "cheapest") if self._remote_adds and self.saving(most)[0] > _TIE else (0.5, "usual")

    def within(self, offload_fraction: float) -> Point | None:
        """For a budget: where the policy is best, of the prices at which it offloads no more than this share."""
        points = [point for point in self.gate if point.offload_fraction <= offload_fraction]
        return max(points, key=lambda point: point.quality, default=None)

    def reaching(self, agreement: float) -> Point | None:
        """For a target: where the policy offloads least, of the prices at which it agrees so often with the remote."""
        points = [point for point in self.gate if point.agreement >= agreement]
        return min(points, key=lambda point: point.offload_fraction, default=None)

    def at(self, offload_cost: float) -> tuple[Point, Point, Point]:
        """The policy, local alone and remote alone, at the nearest of the prices."""
        place = min(range(len(self.gate)), key=lambda k: abs(self.gate[k].offload_cost - offload_cost))
        return self.gate[place], self.local[place], self.remote[place]

    def saving(self, offload_cost: float) -> tuple[float, str]:
        """How much less the policy costs than the cheaper of both alone, as a share, and which of them that is.

        At the nearest of the prices; negative where it costs more, without end where the other costs nothing.
        """
        cost, local, remote = (point.cost_per_sample for point in self.at(offload_cost))
        least, name = min((local, "local"), (remote, "remote"))
        return (1.0 - cost / least if least else -inf if cost else 0.0), name

    def compared(self, offload_cost: float) -> str:
        """What the policy costs beside the cheaper of both alone, in words."""
        saved, name = self.saving(offload_cost)
        if saved == -inf:
            return f"more than {name} alone, which costs nothing"
        much = _percent(abs(saved), 1 if abs(saved) < 0.1 else 0)
        more = "as much as" if much == "0.0 %" else f"{much} less than" if saved > 0 else f"{much} more than"
        return f"{more} {name} alone"

    @property
    def sentence(self) -> str:
        """What is gained, at the price of the `headline`, and from which price to which nothing is."""
        low, high = self.remote_until, self.local_from
        ends = f"from {self.gate[0].offload_cost:g} to {self.gate[-1].offload_cost:g}"
        if not self._gains:
            both = "the cheaper of local and remote alone"
            return f"Nothing is gained: at no offload cost {ends} does {self.policy} cost less than {both}."
        limits = [] if low is None else [f"up to {low:.2g} remote alone is as cheap, or cheaper"]
        limits += [] if high is None else [f"above {high:.2g} local alone is cheaper"]
        return f"{self._gain()}; {', '.join(limits) or f'it is cheaper than either alone at every price {ends}'}."

    def sentences(self, offload_cost: float | None = None) -> list[str]:
        """What the price at hand means, if it is another; the sentence, and why it speaks of its price."""
        best, said = self.headline, []
        if offload_cost is not None and (best is None or offload_cost != best.offload_cost):
            said.append(f"At {offload_cost:g} {self.policy}{self._by()} costs {self.compared(offload_cost)}.")
        said.append(self.sentence)
        if best is not None:
            quality = "agreement" if best.true_accuracy is None else "accuracy"
            kept = f"at which it keeps {_percent(KEPT, 0)} of the {quality} that the remote adds to local"
            higher = any(self._keeps(point) for point in self.gate if point.offload_cost > best.offload_cost)
            kept += f" and saves at least {_percent(GAINED, 0)}" if higher else ""
            said.append(f"{best.offload_cost:g} is the highest of these prices {kept}.")
        return said

    def _gain(self) -> str:
        best, local, remote = self.headline, self.local[0].quality, self.remote[0].quality
        said = "agrees with the remote" if self.remote[0].true_accuracy is None else "is right"
        alone = f"remote alone {_percent(remote)}, local alone {_percent(local)}"
        if best is None and remote <= local:
            return f"The remote is right no more often than local ({alone}): only agreement with it can be gained"
        if best is None:
            most = self.cheapest.offload_cost
            kept = f"keeps {_percent(KEPT, 0)} of what the remote adds and saves at least {_percent(GAINED, 0)}"
            return f"At no price {self.policy} {kept} ({alone}); it saves most at {most:g}, {self.compared(most)}"
        return (
            f"At an offload cost of {best.offload_cost:g}, {self.policy} {said} in {_percent(best.quality)} for "
            f"{_percent(best.offload_fraction, 0)} of the remote's calls ({alone}), and"
            f"{self._by()} costs {self.compared(best.offload_cost)}"
        )

    def _by(self) -> str:
        """By what it costs, where accuracy is by something else."""
        return "" if self.remote[0].true_accuracy is None else ", taking the remote's answers as right,"

    def rows(self) -> Iterator[dict[str, str]]:
        """The table: what a sample costs by each rule at each price, and what the policy then does, by heading."""
        for gate, local, remote, oracle in zip(self.gate, self.local, self.remote, self.oracle, strict=True):
            saved = self.saving(gate.offload_cost)[0]
            truth = {} if gate.true_accuracy is None else {"true acc.": f"{gate.true_accuracy:.2%}"}
            spread = {} if gate.cost_ci95 is None else {SPREAD: f"{gate.cost_ci95:.4f}"}
            yield {
                "price": f"{gate.offload_cost:g}",
                "local": f"{local.cost_per_sample:.4f}",
                "remote": f"{remote.cost_per_sample:.4f}",
                "oracle": f"{oracle.cost_per_sample:.4f}",
                self.policy: f"{gate.cost_per_sample:.4f}",
                **spread,
                "saves": f"{round(saved, 3) + 0.0:.1%}" if saved > -inf else "nothing",  # + 0.0: not -0.0
                "offloaded": f"{gate.offload_fraction:.1%}",
                "agrees": f"{gate.agreement:.2%}",
                **truth,
            }

    def __str__(self) -> str:
        rows = list(self.rows())
        return f"{aligned([list(rows[0]), *(list(row.values()) for row in rows)])}\n{self.sentence}"

    def as_dict(self) -> dict[str, Any]:
        """For programs, as `hinge evaluate --json` prints it."""
        found = {name: getattr(self, name) for name in ("sentence", "remote_until", "local_from", "headline")}
        return {**found, "headline": self.headline and asdict(self.headline), **asdict(self)}

    def figure(self, columns: int = 1) -> Any:
        """A plotly figure: what a sample costs over the price of an offload, and accuracy over the share offloaded."""
        return draw(self.panels(), columns)

    def plot(self, path: str | Path) -> None:
        """The same in a file: .html, or as a picture .png, .svg or .pdf."""
        save(Path(path), f"{self.policy} at every price", self.panels())

    def panels(self) -> list[Panel]:
        """The two parts of the figure."""
        named = {"local only": self.local, "remote only": self.remote, self.policy: self.gate, "oracle": self.oracle}
        limits = ((self.remote_until, "remote alone<br>as cheap"), (self.local_from, "local alone<br>cheaper"))
        truth, best = self.gate[0].true_accuracy is not None, self.headline
        costs = Panel(
            "What a sample costs",
            "offload cost",
            "cost per sample",
            [_curve(name, points, "offload_cost", "cost_per_sample") for name, points in named.items()],
            marks=[(place, text) for place, text in limits if place is not None],
            top=1.5 * max(point.cost_per_sample for point in (*self.gate, *self.local)),
        )
        shares = Panel(
            "What the offloads buy",
            "share of samples offloaded",
            "true accuracy" if truth else "agreement with the remote",
            [
                Curve("local only", [0, 1], [self.local[0].quality] * 2),
                Curve("remote only", [0, 1], [self.remote[0].quality] * 2),
                _curve(self.policy, self.gate, "offload_fraction", "quality"),
                _curve("oracle", self.oracle, "offload_fraction", "quality"),
            ],
            marks=[(best.offload_fraction, f"offload<br>cost {best.offload_cost:g}")] if best else [],
        )
        return [costs, shares]


def trade(
    trace: Any,
    policy: str = "sentinel",
    *,
    bins: int | Bins = DEFAULT_BINS,
    alpha: float = 0.52,
    offload_costs: Sequence[float] = OFFLOAD_COSTS,
    horizon: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    machine_code: bool | None = None,
) -> Trade:
    """What a policy gains at every offload cost, and where nothing is gained, on a recorded log.

    `trace` is what `evaluate` takes, or a `Synthetic` source, where only the weight and the agreement of each bin are
    known. Local only, remote only and the oracle are computed exactly; the policy, by name, is simulated: on a trace of
    about 10 000 samples or more once, in its own order, and on a shorter one in up to 20 shuffled orders, the more the
    shorter it is. With `horizon`, or on a source, so many samples are drawn at random, as many times; then it costs
    what accepting these shares of the bins costs in expectation, as the others do. Its figures are means over the runs.
    `machine_code` as in `simulate`: for few samples, running Python takes less time than compiling.

    >>> found = trade("fashion")
    >>> print(found.sentence)
    At an offload cost of 0.15, sentinel is right in 94.8 % for 20 % of the remote's calls (remote alone 95.2 %, ...
    >>> round(found.local_from, 2)  # above this price, local alone is cheaper
    0.47
    >>> found.within(0.2).offload_cost, found.reaching(0.98).offload_cost  # for a budget of 20 %, for a target of 98 %
    (0.15, 0.2)
    """
    costs = sorted({real("trade", f"offload_costs[{k}]", cost, 0, 1) for k, cost in enumerate(offload_costs)})
    if not costs:
        raise ValueError("trade: offload_costs must have at least one price, got none")
    length = _HORIZON if horizon is None else whole("trade", "horizon", horizon, 1)
    if not isinstance(trace, Synthetic):
        trace = as_trace(trace)
        length = len(trace) if horizon is None else length
    runs = max(1, _RUNS - _RUNS * length // _HORIZON)  # some 50 000 samples, unless one run has more
    order = Resampled if horizon is not None else InOrder if runs == 1 else Shuffled
    rules: dict[str, list[Point]] = {"gate": [], "local": [], "remote": [], "oracle": []}
    for done, cost in enumerate(costs, 1):
        source: Replay | Synthetic
        if isinstance(trace, Synthetic):
            source = Synthetic(trace.agreement, ConstantPrice(cost), trace.weights)
        else:
            source = order(trace, bins if isinstance(bins, Bins) else UniformBins(bins), ConstantPrice(cost))
        ready = lineup([policy], source, offload_cost=cost, horizon=length, alpha=alpha, seed=seed)
        drawn = isinstance(source, Synthetic | Resampled)
        played = simulate(
            ready, source, length, runs, seed, record_decisions=drawn, times=[length], machine_code=machine_code
        )
        if not played.complete:
            raise KeyboardInterrupt
        record = played[policy]
        rules["gate"].append(_expected(source, record, seed, cost) if drawn else Point.of(cost, record))
        errors = 1.0 - source.agreement
        for name, offloaded in (("local", errors < 0), ("remote", errors >= 0), ("oracle", errors >= cost)):
            rules[name].append(_fixed(source, offloaded.astype(np.float64), cost))
        if progress:
            progress(done, len(costs))
    return Trade(policy, **{name: tuple(points) for name, points in rules.items()})


def _expected(source: Replay | Synthetic, record: Record, seed: int, cost: float) -> Point:
    """What a policy costs in expectation by the share of every bin's samples that it offloaded in each run."""
    shares, length = [], int(record.times[-1])
    for run, each in zip(record.runs, run_seeds(seed, len(record.runs)), strict=True):
        bins = np.concatenate([samples.bins for samples in source.stream(each, length)])
        seen, decisions = np.bincount(bins, minlength=source.bins), np.asarray(run.decisions, np.float64)
        asked = np.bincount(bins, decisions, source.bins) / np.maximum(seen, 1)
        shares.append(np.where(seen, asked, decisions.mean()))  # of bins that never came, as of all samples
    half = interval(np.array([_fixed(source, each, cost).cost_per_sample for each in shares]))[1]
    return replace(_fixed(source, np.mean(shares, axis=0), cost), cost_ci95=None if isnan(half) else half)


def _fixed(source: Replay | Synthetic, offloaded: NDArray[np.float64], cost: float) -> Point:
    """What a rule costs in expectation that offloads these shares of the bins."""
    asked = float(source.weights @ offloaded)
    wrong = float((source.weights * (1.0 - source.agreement)) @ (1.0 - offloaded))
    right = None
    if isinstance(source, Replay) and source.right is not None:
        (local, remote), asks = source.right, offloaded[source.trace.bins_by(source.binning)]
        right = float((asks * remote + (1.0 - asks) * local).mean())
    return Point(cost, cost * asked + wrong, asked, 1.0 - wrong, right)


def _break_even(gate: Sequence[Point], other: Sequence[Point]) -> float | None:
    """Where the gate begins to be cheaper than another rule, on the way from the first price to the last.

    None where it is from the first on; the last price where it never is.
    """
    pairs = list(zip(gate, other, strict=True))
    excess = [one.cost_per_sample - two.cost_per_sample for one, two in pairs]
    gains = [over < -_TIE * two.cost_per_sample for over, (_, two) in zip(excess, pairs, strict=True)]
    if gains[0]:
        return None
    if not any(gains):
        return gate[-1].offload_cost
    first = gains.index(True)
    before, after, dearer = gate[first - 1].offload_cost, gate[first].offload_cost, max(excess[first - 1], 0.0)
    return before + (after - before) * dearer / (dearer - excess[first])


def _curve(name: str, points: Sequence[Point], x: str, y: str) -> Curve:
    return Curve(name, [getattr(point, x) for point in points], [getattr(point, y) for point in points])


def _percent(share: float, decimals: int = 1) -> str:
    return f"{100 * share:.{decimals}f} %"


# -- a recommendation -------------------------------------------------------------------------------------------------

DEFAULT = "sentinel"
FEWEST = 100  # samples of a log: on fewer, nothing can be chosen and measured
_WHY = {
    "given": "",
    "recorded": " (the mean of those in the log)",
    "found": f" (none was given; this one keeps {100 * KEPT:.0f} % of what the remote adds, for the fewest calls)",
    "cheapest": f" (none was given; at none it keeps {100 * KEPT:.0f} % of what the remote adds and saves "
    f"at least {100 * GAINED:.0f} %, and at this one it saves most)",
    "usual": f" (none was given, and at none a gate keeps {100 * KEPT:.0f} % of what the remote adds, if anything)",
}
_ALONE = {AlwaysLocal.name: "local", AlwaysRemote.name: "remote"}
K = TypeVar("K")


@dataclass(frozen=True)
class Recommendation:
    """What to run, and what it did on the half of the log that it was not chosen on. `str()` says it in words."""

    policy: str
    binning: Bins
    fitted: bool  # to the whole log; else the bins are as they were given
    alpha: float | None  # of the policies that have it, if it was given
    offload_cost: float
    shifted_cost: float | None  # γ′, to be told to the policy in its place: where true labels say so
    target: float | None  # the agreement to hold, in place of a price
    price: str  # where the offload cost is from: "given", "recorded", or of the trade "found", "cheapest" or "usual"
    samples: int  # that it was measured on
    measured: Point  # with γ′, where there is one; then costs are by the true labels
    local: Point  # local alone, on the same samples
    remote: Point
    gate: Point  # the policy of the trade, on the same samples: it is `measured`, unless no gate is recommended
    told: float  # the offload cost that this policy was told: where γ′ is recommended, that of the other half
    trade: Trade  # the policy with such bins on these samples, at every price; or a gate, where none is recommended

    @property
    def bins(self) -> int:
        """How many there are."""
        return self.binning.bins

    @property
    def alone(self) -> str | None:
        """Which of both models answers everything, "local" or "remote", if that is what the policy does: no gate."""
        return _ALONE.get(self.policy)

    @property
    def settings(self) -> dict[str, Any]:
        """The options of `hinge device`, by name; `bins` are a number, or edges."""
        bins = [*self.binning.edges] or 1 if isinstance(self.binning, EdgeBins) else self.bins
        if self.target is not None:
            return {"target": self.target, "bins": bins}
        kind = policy_class(self.policy)
        own = not kind.__module__.startswith("hinge.")  # which must be imported
        policy = f"{kind.__module__}:{kind.__name__}" if own else self.policy
        alpha = {} if self.alpha is None or "alpha" not in kind.settings() else {"alpha": self.alpha}
        told = self.offload_cost if self.shifted_cost is None else self.shifted_cost
        return {"policy": policy, "offload_cost": told, **alpha, "bins": bins}

    def __str__(self) -> str:
        chosen, costs, more = f"at an offload cost of {self.offload_cost:g}{_WHY[self.price]}", "", ""
        half = "The policy is chosen on a random half of the log; on the other"
        if self.fitted:
            half = "Chosen and fitted on a random half of the log, then fitted again on all of it; on the other half"
        if self.target is not None:
            chosen, half = f"to hold an agreement of {self.target:g}", "On a random half of the log"
            if self.local.agreement >= self.target:
                more = " There local alone agrees so often, too, and needs no call; the calls are to be sure of it."
        else:
            if self.shifted_cost not in (None, self.offload_cost):
                chosen += f", told as {self.shifted_cost:g}, since by the true labels the remote errs too"
            half = half if self.alone is None else "On a random half of the log"
            costs = f", at a cost of {self.measured.cost_per_sample:.4f}{self._compared()}"
        key, said = "true_accuracy", "are right"
        if self.target is not None or self.local.true_accuracy is None:
            key, said = "agreement", "agree with the remote"
        rules = self.measured, self.remote, self.local
        gate = f"{self.policy}, {self.bins} {'fitted ' * self.fitted}bin{'s' * (self.bins != 1)}"
        gate = gate if self.alone is None else f"no gate, but {self.alone} alone"
        found, remote, local = (f"{100 * getattr(each, key):.1f} %" for each in rules)
        return (
            f"Recommended: {gate}, {chosen}. {half}, {self.samples} samples, "
            f"{found} of the answers {said} for "
            f"{100 * self.measured.offload_fraction:.0f} % of the remote's calls (remote alone {remote}, local alone "
            f"{local}){costs}.{more}"
        )

    def _compared(self) -> str:
        """What the policy of the trade costs beside the cheaper of both alone, on the half that is measured."""
        here = Trade(self.trade.policy, (self.gate,), (self.local,), (self.remote,), ())
        compared, said = here.compared(self.offload_cost), ""
        told = "" if self.told == self.offload_cost else f", told as {self.told:g},"
        if self.shifted_cost is not None:
            said = " by the true labels"
        if told and self.alone is None:
            plain = self.trade.at(self.offload_cost)[0].by_truth(self.offload_cost).cost_per_sample
            said += f" (if told {self.offload_cost:g}: {plain:.4f})"
        said += f", {compared}" if self.alone is None else f"; {self.trade.policy}{told} costs {compared}"
        return said if here.saving(self.offload_cost)[0] > _TIE else f"{said}: at this price nothing is gained"

    def as_dict(self) -> dict[str, Any]:
        """For programs, as `hinge evaluate --json` prints it."""
        about = {name: value for name, value in asdict(self).items() if name not in ("binning", "trade")}
        return {**about, "bins": self.bins, "settings": self.settings}


def recommend(
    trace: Any,
    policies: str | Iterable[str] | None = None,
    offload_cost: float | None = None,
    *,
    target: float | None = None,
    bins: int | Bins = DEFAULT_BINS,
    alpha: float | None = None,
    horizon: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Recommendation | None:
    """The policy, of those named, and the bins that suit a log: cut where thresholds are best, and into a number
    of uniform `bins` besides; a `Bins` is taken as it is. Where no gate costs less than both models alone, it is one of
    these, whether or not it was named, and the trade is that of the gate.

    None where the log has too few samples to tell, or none of the policies can run on a device.

    Without `policies`, they are all that a device can run. Without an `offload_cost`, it is the mean of those recorded,
    or where there are none the highest at which the default policy keeps 90 % of what the remote adds, and saves. Where
    none does both, it is the one that saves most, and where nothing is to be gained, 0.5. One that is given or recorded
    is shifted by the true labels, if the log has them (`hinge.costs.shifted_cost`), unless it costs less as it is on
    the half that is measured. A `target` is an agreement to hold in place of a price. `alpha` is for the policies that
    have it, `horizon` as in `trade`.

    >>> print(recommend("fashion", offload_cost=0.1))
    Recommended: sentinel, 30 fitted bins, at an offload cost of 0.1, told as 0.169, since by the true labels the remote
    errs too. Chosen and fitted on a random half of the log, then fitted again on all of it; on the other half, 5000 ...
    """
    recorded = as_trace(trace)
    given = [each.strip() for each in policies.split(",")] if isinstance(policies, str) else policies
    names = [each for each in given or policy_names() if runs_on_a_device(each)]
    if len(recorded) < FEWEST or (target is None and not names):
        return None
    half, held_out = halves(recorded, seed)
    usual, fits = (bins, False) if isinstance(bins, Bins) else (UniformBins(bins), True)
    own = {} if alpha is None else {"alpha": alpha}

    def binned(part: Trace) -> Bins:
        return fitted_bins(part, usual.bins) if fits else usual

    def gains(name: str, *costs: float) -> Trade:
        more: dict[str, Any] = {"offload_costs": (*OFFLOAD_COSTS, *costs), "horizon": horizon, **own}
        return trade(held_out, name, bins=binned(half), seed=seed, progress=progress, **more)

    def points(ready: Mapping[str, Policy], part: Trace) -> dict[str, Point]:
        source, length = InOrder(part, usual, ConstantPrice(cost)), len(part)
        played = simulate(ready, source, length, 1, seed, times=[length], progress=progress)
        return {each: Point.of(cost, record) for each, record in played.items()}

    found, shifted = None, None
    if offload_cost is not None:
        cost, price = real("recommend", "offload_cost", offload_cost, 0, 1), "given"
    elif recorded.mean_offload_cost is not None:
        cost, price = round(recorded.mean_offload_cost, 4), "recorded"
    else:
        found = gains(DEFAULT)
        cost, price = found.price
    if target is not None:
        found = found or gains(DEFAULT, cost)
        measured = points({Target.name: Target(target, bins=usual.bins, seed=seed)}, held_out)[Target.name]
        gate, local, remote = found.at(cost)
        held = (Target.name, usual, False, alpha, cost, None, target, price, len(held_out), measured)
        return Recommendation(*held, local, remote, gate, cost, found)
    told = cost
    if found is None and all(part.labelled for part in (half, held_out)):
        told, shifted = (float(f"{fitted_cost(part, cost):.3g}") for part in (half, recorded))

    def judged(point: Point) -> Point:
        return point if shifted is None else point.by_truth(cost)

    if found is not None:  # a price at which a gate gains, if at any
        names = [each for each in names if each not in _ALONE] or names
    source = InOrder(half, usual, ConstantPrice(cost))
    ready = lineup(names, source, offload_cost=told, horizon=len(half), seed=seed, **own)
    costs = {each: judged(point).cost_per_sample for each, point in points(ready, half).items()}
    chosen = _choice(costs, DEFAULT, len(half))
    gates = {each: paid for each, paid in costs.items() if each not in _ALONE}
    name = _choice(gates, DEFAULT, len(half)) if gates else DEFAULT  # the gate that is measured
    if shifted is not None and not policy_class(name).weighs_cost:
        told = shifted = cost
    if found is None:
        found = gains(name, cost, told)
        plain, moved = (judged(found.at(each)[0]).cost_per_sample for each in (cost, told))
        if shifted is not None and moved > plain:  # the labels of this half say otherwise
            told = shifted = cost
    elif name != DEFAULT:
        found = gains(name)
        cost, price = found.price
        told = cost
    gate, (_, local, remote) = judged(found.at(told)[0]), map(judged, found.at(cost))
    final = cost if shifted is None else shifted
    if chosen not in _ALONE:
        saved, cheaper = Trade(name, (gate,), (local,), (remote,), ()).saving(cost)
        if final >= 1.0 or saved <= _TIE:  # by a cost of 1 nothing is ever offloaded
            chosen = AlwaysLocal.name if final >= 1.0 or cheaper == "local" else AlwaysRemote.name
    measured = {AlwaysLocal.name: local, AlwaysRemote.name: remote}.get(chosen, gate)
    if chosen in _ALONE and shifted is not None:
        shifted = cost
    known = (chosen, binned(recorded), fits, alpha, cost, shifted, target, price, len(held_out), measured)
    return Recommendation(*known, local, remote, gate, told, found)


def fitted_bins(trace: Trace, bins: int = DEFAULT_BINS) -> EdgeBins:
    """Bins cut at every threshold that is best on the trace at some price of an offload, and uniformly besides.

    So the best fixed threshold in hindsight is an edge whatever an offload costs, and where none can be the best, as
    among the many confidences near 1 that all agree, there are no more bins to be learned. Of uniform edges, only those
    are taken that leave at least √n of the n samples between themselves and the next edge: fewer teach little.

    >>> fitted_bins(Trace([0.12, 0.31, 0.52, 0.58, 0.87, 0.99], agreed=[0, 1, 0, 1, 1, 1]), bins=4)
    EdgeBins(edges=(0.3, 0.57))
    """
    confidences, edges = np.sort(trace.confidence), best_thresholds(trace.confidence, trace.agreed)
    below = [0, len(trace), *np.searchsorted(confidences, edges)]  # samples below each edge, and below both ends
    for edge in (round(edge, 6) for edge in UniformBins(bins).edges):  # to be typed
        count = np.searchsorted(confidences, edge)
        if min(abs(count - other) for other in below) >= sqrt(len(trace)):
            edges.append(edge)
            below.append(count)
    return EdgeBins(sorted(edges))


def runs_on_a_device(name: str) -> bool:
    """Whether a policy needs to be told neither what the log alone knows, nor how many samples will come."""
    kind = policy_class(name)
    told = kind.is_informed() or kind.needs or "horizon" in kind.settings()
    return not kind.keeps_budget and not told


def _choice(costs: Mapping[K, float], usual: K, samples: int) -> K:
    """The usual one, unless the cheapest is cheaper by more than one standard error.

    >>> _choice({"sentinel": 0.08, "kl": 0.075}, "sentinel", samples=1000)
    'sentinel'
    >>> _choice({"sentinel": 0.08, "kl": 0.075}, "sentinel", samples=10_000)
    'kl'
    """
    best = min(costs, key=lambda each: costs[each])
    error = sqrt(costs[best] * (1.0 - min(costs[best], 1.0)) / samples)
    return usual if usual in costs and costs[usual] <= costs[best] + error else best
