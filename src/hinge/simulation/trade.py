"""The trade between accuracy and offloads: what a gate gains at every price of an offload, and where it gains nothing.

In a bin with agreement f, accepting costs 1 − f and offloading γ. With arrivals w, deciding by f costs
Σ w min(1 − f, γ): less than local alone iff some bin that arrives has 1 − f > γ, and less than remote alone iff some
bin has 1 − f < γ. A policy has to learn f, and pays for that, so that its break-evens lie further inside. docs/gain.md
has the argument.

A recommendation is a price, for the default policy with bins that fit themselves; or, where that costs less, a fixed
threshold, or one of both models alone. A threshold is fitted on a random half of the log, and all are measured on the
other; a price that nobody knows is that of the headline. The gate stays, unless a threshold is cheaper, in the long
run, by more than one standard error, √(c (1 − c) / n) at a cost c on n samples: a smaller difference says more about
the half than about the threshold (Breiman et al., Classification and Regression Trees, 1984). Where there are true
labels, costs are by the truth, and a known price γ is told to the gate as γ′, which the labels shift, unless γ itself
costs less on the half that is measured. In the end threshold and γ′ are fitted once more, on the whole log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isnan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge._checks import real, whole
from hinge._html import Curve, Panel, draw, save
from hinge.bins import Bins, FittedBins, UniformBins
from hinge.gate import Gate
from hinge.policies import AlwaysLocal, AlwaysRemote, Target, Threshold
from hinge.simulation.engine import Progress, run_seeds, simulate
from hinge.simulation.evaluate import BINS, accepted_shares, as_trace, fitted_cost, halves, lineup
from hinge.simulation.results import Record, Results, aligned, interval
from hinge.simulation.sources import ConstantPrice, InOrder, Replay, Resampled, Shuffled, Synthetic
from hinge.theory import Problem, best_threshold, fit_threshold
from hinge.traces import Trace

DEFAULT = "probation"
OFFLOAD_COSTS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9)
KEPT = 0.9  # of the accuracy that the remote adds to local's: what the headline has to keep
GAINED = 0.01  # of the cost of the cheaper of both alone: what saves less gains nothing to speak of
_LASTING = 50_000  # samples, over which a gate and a threshold are compared: devices run for longer than logs
_HORIZON = 10_000  # samples of a source that has no length of its own
_RUNS = 10  # at most: the figures of one short run are more chance than policy
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
    """A policy (`gate`) beside local only, remote only and the best threshold, at every offload cost; made by `trade`.

    `sentence` says what is gained and where nothing is, `str()` is a table with it, `figure()` a picture. `threshold`
    is the one that costs least at each price, in hindsight.
    """

    policy: str
    gate: tuple[Point, ...]
    local: tuple[Point, ...]
    remote: tuple[Point, ...]
    threshold: tuple[Point, ...]

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
        for gate, local, remote, best in zip(self.gate, self.local, self.remote, self.threshold, strict=True):
            saved = self.saving(gate.offload_cost)[0]
            truth = {} if gate.true_accuracy is None else {"true acc.": f"{gate.true_accuracy:.2%}"}
            spread = {} if gate.cost_ci95 is None else {SPREAD: f"{gate.cost_ci95:.4f}"}
            yield {
                "price": f"{gate.offload_cost:g}",
                "local": f"{local.cost_per_sample:.4f}",
                "remote": f"{remote.cost_per_sample:.4f}",
                "best threshold": f"{best.cost_per_sample:.4f}",
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
        named = {"local only": self.local, "remote only": self.remote, self.policy: self.gate}
        named["best threshold"] = self.threshold
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
                _curve("best threshold", self.threshold, "offload_fraction", "quality"),
            ],
            marks=[(best.offload_fraction, f"offload<br>cost {best.offload_cost:g}")] if best else [],
        )
        return [costs, shares]


def trade(
    trace: Any,
    policy: str = DEFAULT,
    *,
    bins: int | Bins | None = None,
    offload_costs: Sequence[float] = OFFLOAD_COSTS,
    horizon: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    machine_code: bool | None = None,
) -> Trade:
    """What a policy gains at every offload cost, and where nothing is gained, on a recorded log.

    `trace` is what `evaluate` takes, or a `Synthetic` source, where only the weight and the agreement of each bin are
    known. Local only, remote only and the best threshold are computed exactly; the policy, by name, is simulated: on a
    trace of about 10 000 samples or more once, in its own order, and on a shorter one in up to 10 shuffled orders, the
    more the shorter it is. With `horizon`, or on a source, so many samples are drawn at random, as many times; on a
    source it then costs what accepting these shares of the bins costs in expectation, as the others do. Its figures are
    means over the runs. Bins fit themselves, unless they are given.

    >>> found = trade("fashion")
    >>> print(found.sentence)
    At an offload cost of 0.15, probation is right in 94.9 % for 22 % of the remote's calls (remote alone 95.2 %, ...
    >>> round(found.local_from, 2)  # above this price, local alone is cheaper
    0.45
    """
    costs = sorted({real("trade", f"offload_costs[{k}]", cost, 0, 1) for k, cost in enumerate(offload_costs)})
    if not costs:
        raise ValueError("trade: offload_costs must have at least one price, got none")
    length = _HORIZON if horizon is None else whole("trade", "horizon", horizon, 1)
    if not isinstance(trace, Synthetic):
        trace = as_trace(trace)
        length = len(trace) if horizon is None else length
    usual = bins if isinstance(bins, Bins) else UniformBins(BINS if bins is None else bins)
    runs = max(1, _RUNS - _RUNS * length // _HORIZON)  # some 25 000 samples, unless one run has more
    order = Resampled if horizon is not None else InOrder if runs == 1 else Shuffled
    rules: dict[str, list[Point]] = {"gate": [], "local": [], "remote": [], "threshold": []}
    for done, cost in enumerate(costs, 1):
        source: Replay | Synthetic
        if isinstance(trace, Synthetic):
            source = Synthetic(trace.agreement, ConstantPrice(cost), trace.weights)
            setting = Problem(source.agreement.tolist(), cost, source.weights.tolist())
            offloaded = np.arange(source.bins) < best_threshold(setting)
        else:
            source = order(trace, usual, ConstantPrice(cost))
            offloaded = ~accepts(trace, fit_threshold(trace.confidence, trace.agreed, cost)[0])
        fitted = bins is None and isinstance(source, Replay)
        ready = lineup([policy], source, offload_cost=cost, horizon=length, seed=seed, fitted=fitted)
        played = simulate(ready, source, length, runs, seed, times=[length], machine_code=machine_code)
        if not played.complete:
            raise KeyboardInterrupt
        if isinstance(source, Synthetic):
            rules["gate"].append(_expected(source, played, policy, run_seeds(seed, runs), cost))
        else:
            rules["gate"].append(Point.of(cost, played[policy]))
        everything = np.ones(len(offloaded), np.bool_)
        for name, asked in (("local", ~everything), ("remote", everything), ("threshold", offloaded)):
            rules[name].append(_fixed(source, asked.astype(np.float64), cost))
        if progress:
            progress(done, len(costs))
    return Trade(policy, **{name: tuple(points) for name, points in rules.items()})


def accepts(trace: Trace, threshold: float) -> NDArray[np.bool_]:
    """Which samples a threshold accepts; one of 1 accepts none."""
    accepted: NDArray[np.bool_] = (trace.confidence >= threshold) & (threshold < 1.0)
    return accepted


def _expected(source: Synthetic, played: Results, policy: str, seeds: Sequence[int], cost: float) -> Point:
    """What a policy costs in expectation by the share of every bin's samples that it offloaded in each run."""
    shares = 1.0 - accepted_shares(played, source, seeds)[policy]
    half = interval(np.array([_fixed(source, each, cost).cost_per_sample for each in shares]))[1]
    return replace(_fixed(source, np.mean(shares, axis=0), cost), cost_ci95=None if isnan(half) else half)


def _fixed(source: Replay | Synthetic, offloaded: NDArray[np.float64], cost: float) -> Point:
    """What a rule costs that offloads these shares: of the rows of a trace, or of the bins of a source."""
    right, weights, agreement = None, None, None
    if isinstance(source, Replay):
        weights, agreement = np.full(len(source.trace), 1.0 / len(source.trace)), source.trace.agreed.astype(np.float64)
        if source.right is not None:
            local, remote = source.right
            right = float((offloaded * remote + (1.0 - offloaded) * local).mean())
    else:
        weights, agreement = source.weights, source.agreement
    asked = float(weights @ offloaded)
    wrong = float((weights * (1.0 - agreement)) @ (1.0 - offloaded))
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


@dataclass(frozen=True)
class Recommendation:
    """What to run, and what it did on the half of the log that it was not chosen on. `str()` says it in words."""

    policy: str  # "probation", "threshold", "target", or one of both models alone
    threshold: float | None  # fitted to the whole log, if it is recommended
    offload_cost: float
    shifted_cost: float | None  # γ′, to be told to the gate in its place: where true labels say so
    target: float | None  # the agreement to hold, in place of a price
    price: str  # where the offload cost is from: "given", "recorded", or of the trade "found", "cheapest" or "usual"
    samples: int  # that it was measured on
    measured: Point  # with γ′, where there is one; then costs are by the true labels
    local: Point  # local alone, on the same samples
    remote: Point
    gate: Point  # the gate of the trade, on the same samples: it is `measured`, unless another is recommended
    told: float  # the offload cost that this gate was told: where γ′ is recommended, that of the other half
    trade: Trade  # the gate on these samples, at every price

    @property
    def alone(self) -> str | None:
        """Which of both models answers everything, "local" or "remote", if no gate is recommended."""
        return _ALONE.get(self.policy)

    @property
    def settings(self) -> dict[str, Any]:
        """The options of `hinge device`, by name."""
        if self.target is not None:
            return {"target": self.target}
        if self.threshold is not None:
            return {"policy": self.policy, "set": [f"threshold={self.threshold}"]}
        told = self.offload_cost if self.shifted_cost is None else self.shifted_cost
        return {"offload_cost": told} if self.alone is None else {"policy": self.policy}

    def __str__(self) -> str:
        chosen, costs, more = f"at an offload cost of {self.offload_cost:g}{_WHY[self.price]}", "", ""
        if self.target is not None:
            chosen = f"to hold an agreement of {self.target:g}"
            if self.local.agreement >= self.target:
                more = " There local alone agrees so often, too, and needs no call; the calls are to be sure of it."
        else:
            if self.shifted_cost not in (None, self.offload_cost):
                chosen += f", told as {self.shifted_cost:g}, since by the true labels the remote errs too"
            costs = f", at a cost of {self.measured.cost_per_sample:.4f}{self._compared()}"
        key, said = "true_accuracy", "are right"
        if self.target is not None or self.local.true_accuracy is None:
            key, said = "agreement", "agree with the remote"
        gate = self.policy if self.alone is None else f"no gate, but {self.alone} alone"
        if self.threshold is not None:
            gate = f"a fixed threshold of {self.threshold}, which is cheaper while nothing changes"
        found, remote, local = (
            f"{100 * getattr(each, key):.1f} %" for each in (self.measured, self.remote, self.local)
        )
        return (
            f"Recommended: {gate}, {chosen}. On a random half of the log that it was not chosen on, {self.samples} "
            f"samples, {found} of the answers {said} for {100 * self.measured.offload_fraction:.0f} % of the remote's "
            f"calls (remote alone {remote}, local alone {local}){costs}.{more}"
        )

    def _compared(self) -> str:
        """What the gate costs beside the cheaper of both alone, on the half that is measured."""
        here = Trade(self.trade.policy, (self.gate,), (self.local,), (self.remote,), ())
        compared, said = here.compared(self.offload_cost), ""
        told = "" if self.told == self.offload_cost else f", told as {self.told:g},"
        if self.shifted_cost is not None:
            said = " by the true labels"
        if told and self.policy == DEFAULT:
            plain = self.trade.at(self.offload_cost)[0].by_truth(self.offload_cost).cost_per_sample
            said += f" (if told {self.offload_cost:g}: {plain:.4f})"
        said += f", {compared}" if self.policy == DEFAULT else f"; {self.trade.policy}{told} costs {compared}"
        return said if here.saving(self.offload_cost)[0] > _TIE else f"{said}: at this price nothing is gained"

    def as_dict(self) -> dict[str, Any]:
        """For programs, as `hinge evaluate --json` prints it."""
        about = {name: value for name, value in asdict(self).items() if name != "trade"}
        return {**about, "settings": self.settings}


def recommend(
    trace: Any,
    offload_cost: float | None = None,
    *,
    target: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Recommendation | None:
    """The price by which the default policy suits a log; or what is cheaper: a fixed threshold, or one model alone.

    None where the log has too few samples to tell.

    Without an `offload_cost`, it is the mean of those recorded, or where there are none the highest at which the
    default policy keeps 90 % of what the remote adds, and saves. Where none does both, it is the one that saves most,
    and where nothing is to be gained, 0.5. One that is given or recorded is shifted by the true labels, if the log has
    them (`hinge.costs.shifted_cost`), unless it costs less as it is on the half that is measured. A `target` is an
    agreement to hold in place of a price.

    >>> print(recommend("fashion", offload_cost=0.1))
    Recommended: probation, at an offload cost of 0.1, told as 0.169, since by the true labels the remote errs too. ...
    """
    recorded = as_trace(trace)
    if len(recorded) < FEWEST:
        return None
    half, held_out = halves(recorded, seed)

    def gains(*costs: float) -> Trade:
        return trade(held_out, offload_costs=(*OFFLOAD_COSTS, *costs), seed=seed, progress=progress)

    mean = recorded.mean_offload_cost
    if offload_cost is not None:
        cost, price = real("recommend", "offload_cost", offload_cost, 0, 1), "given"
    elif mean is not None:
        cost, price = round(mean, 4), "recorded"
    else:
        found = gains()
        cost, price = found.price
    if target is not None:
        found = gains(cost)
        gate, local, remote = found.at(cost)
        measured = _held(held_out, target, cost, seed)
        known = (cost, None, target, price, len(held_out), measured)
        return Recommendation(Target.name, None, *known, local, remote, gate, cost, found)
    told, final, shifts = cost, cost, price in ("given", "recorded") and all(p.labelled for p in (half, held_out))
    if shifts:
        told, final = (float(f"{fitted_cost(part, cost):.3g}") for part in (half, recorded))
    if price in ("given", "recorded"):
        found = gains(cost, told)

    def judged(point: Point) -> Point:
        return point.by_truth(cost) if shifts else point

    if judged(found.at(told)[0]).cost_per_sample > judged(found.at(cost)[0]).cost_per_sample:
        told = final = cost  # the labels of this half say otherwise
    gate, (_, local, remote) = judged(found.at(told)[0]), map(judged, found.at(cost))
    edge, _ = fit_threshold(half.confidence, half.agreed, told)
    source = InOrder(held_out, UniformBins(BINS), ConstantPrice(cost))
    fixed = judged(_fixed(source, (~accepts(held_out, edge)).astype(np.float64), cost))
    policy, measured, threshold = DEFAULT, gate, None
    lasting = judged(trade(held_out, offload_costs=(told,), horizon=_LASTING, seed=seed).gate[0])
    if fixed.cost_per_sample < lasting.cost_per_sample - _error(fixed, len(held_out)):
        policy, measured = Threshold.name, fixed
        threshold, _ = fit_threshold(recorded.confidence, recorded.agreed, final)
    saved, cheaper = Trade(policy, (measured,), (local,), (remote,), ()).saving(cost)
    if final >= 1.0 or saved <= _TIE:  # by a cost of 1 nothing is ever offloaded
        policy, measured, threshold, final = AlwaysRemote.name, remote, None, cost
        if told >= 1.0 or cheaper == "local":
            policy, measured = AlwaysLocal.name, local
    found_out = (cost, final if shifts else None, target, price, len(held_out), measured)
    return Recommendation(policy, threshold, *found_out, local, remote, gate, told, found)


def _held(trace: Trace, target: float, cost: float, seed: int) -> Point:
    """What holding a target takes on a trace."""
    source = InOrder(trace, UniformBins(BINS), ConstantPrice(cost))
    gate = Gate(Target(target, bins=BINS, seed=seed), bins=FittedBins())
    return Point.of(cost, simulate({Target.name: gate}, source, len(trace), 1, seed)[Target.name])


def _error(point: Point, samples: int) -> float:
    """One standard error of a cost per sample."""
    cost = min(point.cost_per_sample, 1.0)
    return sqrt(cost * (1.0 - cost) / samples)
