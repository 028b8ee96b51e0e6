"""The command `evaluate`: what every policy would have cost on a log, what a gate gains, and what is recommended."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hinge.cli import console, options
from hinge.cli.options import option
from hinge.cli.recommendation import check_settings, print_recommendation, write_settings
from hinge.cli.settings import EDGES, UsageError
from hinge.device.status import NEARLY_ALL, hardly_any
from hinge.errors import InvalidTrace
from hinge.simulation.engine import Progress
from hinge.simulation.evaluate import Evaluation, as_recorded, evaluate
from hinge.simulation.trade import FEWEST, OFFLOAD_COSTS, Recommendation, Trade, recommend, trade
from hinge.theory import Estimate
from hinge.traces import Log, Trace

_OPEN = 0.01  # of a cost per sample: what audits of a bin should leave open


def evaluate_command(
    trace: Annotated[
        str,
        option("A log: confidence,local,remote[,label][,cost] in .csv, .jsonl, .parquet, .npz; or a trace by name."),
    ],
    /,
    *,
    policies: Annotated[str | None, option("Names, or MODULE:CLASS, separated by commas; or 'all'.")] = None,
    columns: Annotated[str | None, option("What columns are called: confidence=score,local=prediction.")] = None,
    target: options.Target = None,
    offload_cost: options.OffloadCost = None,
    bins: Annotated[str | None, option("How many; or the edges. Else they fit themselves.", metavar=EDGES)] = None,
    horizon: Annotated[int | None, option("Draw this many samples; without it: once, in order.", 1)] = None,
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    out: options.Out = None,
    write: Annotated[Path | None, option("Write the recommendation to a file, for --config.")] = None,
) -> None:
    """Without --horizon the log is replayed once, in its own order, and then in shuffled orders to show how much the
    order matters. With --horizon samples are drawn from it with replacement. Costs stand beside the best fixed
    threshold in hindsight. The end is a recommendation: a price for the default policy, or what is cheaper, measured on
    a half of the log on which nothing was chosen. Where the log has true labels and the price is known, it says by
    which offload cost to decide instead, and what that saves. A second table shows what the gate gains at other prices,
    and where nothing. Of a production log, in which the remote answered only what was offloaded, costs have intervals,
    and the bins of which nothing is known are named.

    Example: hinge evaluate log.csv --offload-cost 0.5
    """
    console.check_out(out)
    recorded = _recorded(trace, _mapping(columns))
    check_settings(write, recorded)
    names = None if policies is None else options.policies_named(policies)
    price = options.offload_cost(offload_cost)
    binning = None if bins is None else options.binning(bins)
    with console.progress(f"policies on {trace}", lines=not as_json) as report:
        found = evaluate(
            recorded,
            names,
            price,
            bins=binning,
            target=target,
            horizon=horizon,
            runs=runs,
            seed=seed,
            progress=report,
        )
        advice, gain, complete = _advised(found, price, target, horizon, seed, report)
    if out:
        console.write_curves(out, found, f"Policies on {trace}", gain.panels() if gain else ())
    if write and advice and isinstance(recorded, Trace):
        write_settings(write, advice, recorded)
    if as_json:
        console.print_json(_as_dict(found, trace, seed, gain, advice))
    else:
        _print_costs(found, trace, horizon, price)
        _print_gain(found, gain, advice, target)
        _print_end(found, advice, write)
    if not complete:
        console.end_interrupted("these are the runs that were done.")


def _advised(
    found: Evaluation,
    price: float | str | None,
    target: float | None,
    horizon: int | None,
    seed: int,
    report: Callable[..., None],
) -> tuple[Recommendation | None, Trade | None, bool]:
    """Return what is recommended, what is gained at every price, and whether all of it was done."""
    advice = None
    if not found.complete:
        return None, None, False
    try:
        if isinstance(found.trace, Trace):  # a log cannot be replayed
            known, part = price if isinstance(price, float) else None, partial(report, part="to recommend one")
            advice = recommend(found.trace, known, target=target, seed=seed, progress=part)
        return advice, advice.trade if advice else _trade_of(found, horizon, seed, report), True
    except KeyboardInterrupt:
        return advice, None, False


# -- the log ----------------------------------------------------------------------------------------------------------


def _recorded(trace: str, columns: Mapping[str, str] | None) -> Trace | Log:
    """Return the log; where its answers can never agree, or say that there is none, a warning says so."""
    try:
        found = as_recorded(trace, columns=columns)
    except InvalidTrace as error:
        if "needed are" not in str(error):
            raise
        samples = "; 'hinge record' makes a log of samples" if trace.lower().endswith(".npz") else ""
        raise InvalidTrace(f"{error}; name them by --columns, as confidence=score{samples}") from None
    both = found.offloads if isinstance(found, Log) else found
    if "agreed" not in both.columns and _hardly_agree(found, both):
        first = int(np.argmin(both.agreed))
        said = "local says {!s:.40}, remote {!s:.40}".format(*(answers[first] for answers in both.answers))
        where = f"{said} in {f'row {first} of those that the remote answered' if first else 'the first'}"
        agreed, promised = int(both.agreed.sum()), both.confidence.sum()
        often = f"in {agreed} of {len(both)} samples, though the confidences promise {promised:.0f}"
        some = f"agree {often}: {where}" if agreed else f"agree on no sample: {where}"
        console.warn(f"{trace}: local and remote {some}. Are classes called alike?")
    for answer in _no_answers(both):
        problem = f"{trace}: remote is {answer!r} in some rows, as no local answer is, and counts as a class"
        console.warn(f"{problem}. Where the remote was not asked, leave its cell empty")
    return found


def _hardly_agree(found: Trace | Log, both: Trace) -> bool:
    """Return whether answers agree as seldom as where classes are called otherwise.

    Where the remote answered few, local may agree on the others.
    """
    if not both.agreed.any():
        return len(both) > 1
    seldom = hardly_any(float(both.agreed.sum()), float(both.confidence.sum()))
    return seldom and len(both) >= NEARLY_ALL * len(found)


_NO_ANSWER = frozenset({"NA", "N/A", "NaN", "nan", "None", "null", "NULL"})  # as other programs write it


def _no_answers(both: Trace) -> list[Any]:
    """What remote says, local never, and other programs write where there is no answer."""
    if both.local is None or both.remote is None:
        return []
    own = sorted({*both.remote.tolist()} - {*both.local.tolist()})
    return [answer for answer in own if answer in _NO_ANSWER or (isinstance(answer, int) and answer < 0)]


def _mapping(text: str | None) -> dict[str, str] | None:
    """The value of `--columns`."""
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(ours.strip() and theirs.strip() for ours, _, theirs in pairs):
        raise UsageError(f"--columns must be like confidence=score,local=prediction, got {text!r}")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


# -- what is printed --------------------------------------------------------------------------------------------------


def _as_dict(
    found: Evaluation, trace: str, seed: int, gain: Trade | None, advice: Recommendation | None
) -> dict[str, Any]:
    return {
        "trace": trace,
        "samples": len(found.trace),
        "bins": found.bins.bins,
        "labelled": found.trace.labelled if isinstance(found.trace, Trace) else 0,
        "offload_cost": found.offload_cost,
        "seed": seed,
        "policies": found.figures(),
        "trade": gain and gain.as_dict(),
        "agreement": _agreement(found),
        "best_threshold": found.best and {"threshold": found.best[0], "cost_per_sample": found.best[1]},
        "recommendation": advice and advice.as_dict(),
    }


def _print_costs(found: Evaluation, trace: str, horizon: int | None, price: float | str | None) -> None:
    """Print the table of all policies, and what its columns mean."""
    samples = len(found.trace)
    order = "in order" if horizon is None else f"drawn {console.counted(horizon, 'time')} with replacement"
    if isinstance(found.trace, Log):
        order = f"{len(found.trace.offloads)} of them offloaded"
        audits = 0 if found.trace.audit is None else int(found.trace.audit.sum())
        order += f", {console.counted(audits, 'audit')} among them" if audits else ""
    by_cost = sorted(found.figures(), key=lambda row: float(row["cost_per_sample"]))
    console.print_figures(f"{trace}: {console.counted(samples, 'sample')}, {order}", by_cost)
    if found.offload_cost is not None:
        paid = f"{found.offload_cost:g}{_origin(found, price)}"
        console.say(f"cost: per sample; an offload costs {paid}, an accepted answer unlike the remote's 1")
    if found.best is not None:
        best = f"{found.best[0]}, the best one in hindsight, which costs {found.best[1]:.4f}"
        console.say(f"over threshold: the cost as a multiple of that of a fixed threshold of {best}")
    if any(map(console.is_informed, found)):
        console.say("* cannot be deployed: fitted on this very log, told about every sample, or the truth")
    if isinstance(found.trace, Trace) and 0 < found.trace.labelled < samples:
        console.say(f"true acc.: by the {found.trace.labelled} of {samples} samples whose true label is known")
    if found.shuffled is not None:
        console.say("shuffled: the cost in other orders of the log, and its standard deviation")
    _print_unknown(found)


def _origin(found: Evaluation, price: float | str | None) -> str:
    """Return where the offload cost is from."""
    mean = (found.trace.offloads if isinstance(found.trace, Log) else found.trace).mean_offload_cost
    if price is None:
        return " (none was given)" if mean is None else " (the mean of the log's)"
    return "" if mean is None else f" (as given; in the log {mean:.4g} on average, which is not used)"


def _print_gain(found: Evaluation, gain: Trade | None, advice: Recommendation | None, target: float | None) -> None:
    """Print what the default gate gains at every price."""
    if gain and advice and target is None:
        how = f" on a random half of the log, {console.counted(advice.samples, 'sample')}"
        shifted = f"{advice.told:g}: γ′, by the labels of the other half" * (advice.told != advice.offload_cost)
        console.print_trade(gain, advice.offload_cost, how, shifted)
    elif gain and not advice:
        console.print_trade(gain, found.offload_cost)
    if gain and found.estimate:
        console.say("That is by the likeliest agreement; how far it may be off, the intervals above say.")


def _print_end(found: Evaluation, advice: Recommendation | None, write: Path | None) -> None:
    """Print the recommendation, or why there is none."""
    if advice:
        print_recommendation(advice, found.trace, write)
    elif len(found.trace) < FEWEST:
        console.say(f"So few samples say next to nothing about a policy: record {FEWEST} or more.")


def _agreement(found: Evaluation) -> list[dict[str, Any]] | None:
    """What a log of offloads alone says about every bin that has samples."""
    if found.estimate is None:
        return None
    known, (low, high) = found.estimate, found.estimate.bounds
    columns = zip(known.samples, known.offloads, known.agreements, known.agreement, low, high, strict=True)
    names = ("samples", "offloads", "agreements", "agreement", "agreement_low", "agreement_high")
    rows = [dict(zip(names, (each.item() for each in row), strict=True)) for row in columns]
    return [{"bin": bin, **row, "audits": known.audits(bin, _OPEN)} for bin, row in enumerate(rows) if row["samples"]]


def _print_unknown(found: Evaluation) -> None:
    """The bins of which nothing is known, the one that makes intervals widest, and what auditing them would cost."""
    estimate, cost = found.estimate, found.offload_cost
    if estimate is None or cost is None:
        return
    console.say("from … to: the cost of a policy by every agreement that the offloads of the log leave possible")
    spans = found.bins.spans()
    for first, last in _runs(estimate.unknown):
        bins = [*range(first, last + 1)]
        samples = console.counted(int(estimate.samples[bins].sum()), "sample")
        where, audits = _span(first, last, spans), _audit(estimate, cost, bins)
        console.say(f"Nothing is known of {where}: {samples}, none offloaded. {audits}")
    seen = [bin for bin in range(found.bins.bins) if estimate.offloads[bin]]
    widest = max(seen, key=estimate.open)
    if estimate.open(widest) > _OPEN:
        low, high = (float(bound[widest]) for bound in estimate.bounds)
        of = f"{estimate.offloads[widest]} of {console.counted(int(estimate.samples[widest]), 'sample')} offloaded"
        possible = f"which leaves an agreement from {low:.3f} to {high:.3f}"
        where, audits = _span(widest, widest, spans), _audit(estimate, cost, [widest])
        console.say(f"Least is known of {where}: {of}, {possible}. {audits}")


def _audit(estimate: Estimate, cost: float, bins: Sequence[int]) -> str:
    """How many audits of bins would leave little open; or that all of the log's samples there would not do."""
    offloads, each = [estimate.audits(bin, _OPEN) for bin in bins], " in each" * (len(bins) > 1)
    if any(offloads > (estimate.samples - estimate.offloads)[bins]):
        longer = f"a log would have to be longer to leave {_OPEN:g} of a cost per sample open{each}"
        return f"By what this log says, offloading all of them would not settle it: {longer}."
    paid = f"{console.counted(sum(offloads), 'offload')} more ({sum(offloads) * cost:.4g} at {cost:g} each)"
    return f"About {paid} would leave {_OPEN:g} of a cost per sample open{each}."


def _runs(bins: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring bins as the first and the last of them.

    >>> _runs([1, 2, 3, 7])
    [(1, 3), (7, 7)]
    """
    starts = [bin for bin in bins if bin - 1 not in bins]
    return list(zip(starts, (bin for bin in bins if bin + 1 not in bins), strict=True))


def _trade_of(found: Evaluation, horizon: int | None, seed: int, report: Progress) -> Trade:
    """What the default policy gains at every price, the given one among them."""
    given = () if found.offload_cost is None else (found.offload_cost,)
    length = horizon or (len(found.trace) if isinstance(found.trace, Log) else None)
    return trade(found.source, offload_costs=(*OFFLOAD_COSTS, *given), horizon=length, seed=seed, progress=report)


def _span(first: int, last: int, spans: Sequence[tuple[float, float]]) -> str:
    confidences = f"(confidence {spans[first][0]:.3g} to {spans[last][1]:.3g})"
    return f"bin {first} {confidences}" if first == last else f"bins {first} to {last} {confidences}"
