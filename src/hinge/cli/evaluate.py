"""The command `evaluate`: what every policy would have cost on a log, what a gate gains, and what is recommended."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hinge.bins import Bins, UniformBins
from hinge.cli import console, options
from hinge.cli.options import option
from hinge.cli.recommendation import check_settings, print_recommendation, write_settings
from hinge.cli.settings import EDGES, UsageError
from hinge.device.status import NEARLY_ALL, hardly_any
from hinge.errors import InvalidTrace
from hinge.policies import Policy, Target, policy_class, policy_names
from hinge.simulation.engine import Progress
from hinge.simulation.evaluate import Evaluation, as_recorded, evaluate
from hinge.simulation.trade import (
    DEFAULT,
    FEWEST,
    OFFLOAD_COSTS,
    Recommendation,
    Trade,
    recommend,
    runs_on_a_device,
    trade,
)
from hinge.theory import Estimate
from hinge.traces import Log, Trace

_DIPS_NAMED = 5
_POLICIES_NAMED = 4
_OPEN = 0.01  # of a cost per sample: what audits of a bin should leave open


def evaluate_command(
    trace: Annotated[
        str,
        option("A log: confidence,local,remote[,label][,cost] in .csv, .jsonl, .parquet, .npz; or a trace by name."),
    ],
    /,
    *,
    policies: Annotated[str, option("By name, your own as MODULE:CLASS, separated by commas; or 'all'.")] = "all",
    columns: Annotated[str | None, option("What columns are called: confidence=score,local=prediction.")] = None,
    target: options.Target = None,
    offload_cost: options.OffloadCost = None,
    bins: Annotated[str | None, option("How many, to be fitted; or edges, to be kept. Else 16.", metavar=EDGES)] = None,
    horizon: Annotated[int | None, option("Draw this many samples; without it: once, in order.", 1)] = None,
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    out: options.Out = None,
    write: Annotated[Path | None, option("Write the recommendation to a file, for --config.")] = None,
) -> None:
    """Without --horizon the log is replayed once, in its own order, and then in shuffled orders to show how much the
    order matters. With --horizon samples are drawn from it with replacement. The offline threshold is
    fitted on the log itself, in hindsight. A warning says where agreement falls with confidence, which misleads some
    policies. The end is a recommendation: a policy, bins and a price, chosen on one half of the log and measured on the
    other. Where the log has true labels and the price is known, it says by which offload cost to decide instead, and
    what that saves. A second table shows what the recommended gate gains at other prices, and where nothing. Of a
    production log, in which the remote answered only what was offloaded, costs have intervals, and the bins of which
    nothing is known are named.

    Example: hinge evaluate log.csv --offload-cost 0.5 --policies sentinel,hi-lcb
    """
    console.check_out(out)
    recorded = _recorded(trace, _mapping(columns))
    check_settings(write, recorded)
    named = options.policies_named(policies)
    names = [name for name in named if target is None or name != Target.name]  # which has it
    price = options.offload_cost(offload_cost)
    binning: Bins = options.binning(bins or "16")
    if bins is None and isinstance(recorded, Log):
        binning = recorded.unmixed(binning)
    with console.progress(f"policies on {trace}", lines=not as_json) as report:
        found, advice, gain, complete = _evaluated(recorded, names, price, binning, target, horizon, runs, seed, report)
    if out:
        console.write_curves(out, found, f"Policies on {trace}", gain.panels() if gain else ())
    if write and advice and isinstance(recorded, Trace):
        write_settings(write, advice, recorded)
    if as_json:
        console.print_json(_as_dict(found, trace, seed, gain, advice))
    else:
        _print_costs(found, trace, horizon, price)
        _print_gain(found, gain, advice, target, binning)
        _print_dips(found)
        _print_end(found, names, advice, write, complete)
    if write and complete and not advice:
        raise UsageError(f"--write: none of {policies} can run on a device, so that none is recommended")
    if not complete:
        console.end_interrupted("these are the runs that were done.")


def _evaluated(
    recorded: Trace | Log,
    names: Sequence[str],
    price: float | str | None,
    binning: Bins,
    target: float | None,
    horizon: int | None,
    runs: int,
    seed: int,
    report: Callable[..., None],
) -> tuple[Evaluation, Recommendation | None, Trade | None, bool]:
    """Return what policies cost, what is recommended, what is gained at every price, and whether all of it was done."""
    chosen: list[str | Policy] = [*names]
    if target is not None:
        chosen.append(Target(target, bins=binning.bins, seed=seed))
    more: dict[str, Any] = {"horizon": horizon, "seed": seed}
    found = evaluate(recorded, chosen, price, bins=binning, runs=runs, progress=report, **more)
    advice, gain, complete = None, None, found.complete
    try:
        if complete and isinstance(recorded, Trace):  # a log cannot be replayed
            start = binning.bins if isinstance(binning, UniformBins) else binning  # a number is cut finer
            more |= {"target": target, "bins": start, "progress": partial(report, part="to recommend one")}
            known = price if isinstance(price, float) else None
            advice = recommend(recorded, None if names == ["all"] else names, known, **more)
        if complete:
            each = partial(report, part="at every price")
            gain = advice.trade if advice else _trade_of(found, names, horizon, seed, each)
    except KeyboardInterrupt:
        complete = False
    return found, advice, gain, complete


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
        "warnings": found.warnings(),
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
        rule = f"with {console.counted(found.bins.bins, 'bin')}; an offload costs {paid}"
        console.say(f"cost: per sample, {rule}, an accepted answer unlike the remote's 1")
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


def _print_gain(
    found: Evaluation, gain: Trade | None, advice: Recommendation | None, target: float | None, binning: Bins
) -> None:
    """Print what the recommended gate gains at every price, or where nothing is recommended, the gate of the log."""
    if gain and advice and target is None:
        fitted = "bins fitted to the other" if isinstance(binning, UniformBins) else "these bins"
        how = f" on a random half of the log, {console.counted(advice.samples, 'sample')}, with {fitted}"
        shifted = f"{advice.told:g}: γ′, by the labels of the other half" * (advice.told != advice.offload_cost)
        console.print_trade(gain, advice.offload_cost, how, shifted)
    elif gain and not advice:
        console.print_trade(gain, found.offload_cost, f" with {console.counted(found.bins.bins, 'bin')}")
    if gain and found.estimate:
        console.say("That is by the likeliest agreement; how far it may be off, the intervals above say.")


def _print_end(
    found: Evaluation, names: Sequence[str], advice: Recommendation | None, write: Path | None, complete: bool
) -> None:
    """Print the recommendation, or why there is none."""
    if advice:
        print_recommendation(advice, found.trace, write)
    elif len(found.trace) < FEWEST:
        console.say(f"So few samples say next to nothing about a policy: record {FEWEST} or more.")
    elif complete and isinstance(found.trace, Trace):
        console.say(f"Nothing is recommended: none of {_listed(names)} can run on a device.")


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


def _trade_of(
    found: Evaluation, names: Sequence[str], horizon: int | None, seed: int, report: Progress
) -> Trade | None:
    """What the default policy gains at every price, the given one among them; or the first of those named that can run
    on a device, if there is one.
    """
    able = [DEFAULT] if {"all", DEFAULT} & {*names} else [name for name in names if runs_on_a_device(name)]
    if not able:
        return None
    given = () if found.offload_cost is None else (found.offload_cost,)
    length = len(found.trace) if isinstance(found.trace, Log) else horizon
    settings: dict[str, Any] = {"bins": found.bins, "horizon": horizon or length, "seed": seed, "progress": report}
    return trade(found.source, able[0], offload_costs=(*OFFLOAD_COSTS, *given), **settings)


def _print_dips(found: Evaluation) -> None:
    """Print a warning, on standard error, about the dip that would cost most and the policies that it may mislead."""
    if not found.dips:
        return
    worst, *others = sorted(found.dips, key=lambda dip: -dip.price * dip.rows)
    spans = found.bins.spans()
    here, below = _span(worst.bin, worst.last_bin, spans), _span(worst.below_bin, worst.below_last_bin, spans)
    shares = f"{100 * worst.agreement:.1f} % of {worst.rows} rows agree there"
    warning = f"Warning: agreement falls with confidence, most clearly in {here}: {shares},"
    warning += f" but {100 * worst.below_agreement:.1f} % of {worst.below_rows} in {below}."
    if others:
        more = [_span(dip.bin, dip.last_bin, spans) for dip in others]
        few = more if len(more) <= _DIPS_NAMED else [*more[: _DIPS_NAMED - 1], "others"]
        warning += f" It falls in {_listed(few)} too."
    console.note(warning, style="yellow")
    misled = sorted(name for name, policy in found.policies.items() if getattr(policy, "assumes_monotone", False))
    if misled:
        who = _listed(misled) if len(misled) <= _POLICIES_NAMED else f"{len(misled)} of these policies"
        assume = f"assume{'s' * (len(misled) == 1)} that it never falls, and may accept such samples wrongly"
        console.note(f"{who} {assume}, at {worst.price:.2g} each: compare the costs above.", style="yellow")
    kinds = {name: policy_class(name) for name in policy_names()}
    single = [name for name, kind in kinds.items() if kind.weighs_cost and not kind.assumes_monotone]
    alone = f"{_listed(single)} judge each bin by itself; sentinel does, too, once offloads show a fall"
    console.note(f"{alone} below break-even.", style="yellow")


def _span(first: int, last: int, spans: Sequence[tuple[str | None, float, float]]) -> str:
    confidences = f"(confidence {spans[first][1]:.3g} to {spans[last][2]:.3g})"
    return f"bin {first} {confidences}" if first == last else f"bins {first} to {last} {confidences}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
