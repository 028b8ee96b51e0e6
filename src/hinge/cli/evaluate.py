"""The commands that measure policies: `evaluate`, with the settings that it recommends, `simulate` and `reproduce`;
and `list`, of what they can be given.
"""

import json
import os
import shlex
import textwrap
import time
from collections.abc import Mapping, Sequence
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from rich.padding import Padding
from rich.text import Text

from hinge._checks import did_you_mean
from hinge._files import write_whole
from hinge.bins import Bins, EdgeBins, UniformBins
from hinge.cli import console, options
from hinge.cli.options import UsageError, argument, option
from hinge.errors import InvalidTrace, UnknownName
from hinge.paper import page_name, reproduce
from hinge.paper.figures import EXPERIMENTS, FULL, QUICK
from hinge.policies import Policy, Target, policy_class, policy_names
from hinge.simulation import lineup, simulate
from hinge.simulation.engine import Progress
from hinge.simulation.evaluate import Evaluation, as_recorded, as_trace, costs_for, evaluate, known_cost
from hinge.simulation.sources import Resampled
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
from hinge.traces import Log, Trace, load_trace, trace_names

_DIPS_NAMED = 5
_POLICIES_NAMED = 4
_OPEN = 0.01  # of a cost per sample: what audits of a bin should leave open
_PART = 0.25  # of the agreements that confidences promise: honest models keep more than that, however weak
_SEEN = 0.9  # of the samples: where the remote answered fewer, it was asked where local is least sure


@options.grouped
def evaluate_command(
    trace: str = argument(
        "A file (confidence,local,remote[,label][,cost]: .csv, .tsv, .jsonl, .csv.gz, .npz, .parquet), or a "
        "trace by name. Where remote is empty or null the sample was not offloaded.",
        default=...,
        autocompletion=trace_names,
    ),
    policies: str = option(
        "Policies by name, your own as MODULE:CLASS, separated by commas; or 'all'.",
        default="all",
        autocompletion=options.complete_policies,
        callback=options.policies_named,
    ),
    columns: str | None = option("What columns are called in the file: confidence=score,local=prediction."),
    target: options.Target = None,
    offload_cost: options.OffloadCost = None,
    alpha: options.Alpha = None,
    bins: options.LogBins = None,
    horizon: int | None = option("Draw this many samples; without it: once, in order.", min=1),
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    json: options.Json = False,
    out: options.Out = None,
    write: Path | None = option(
        "Also write the recommendation to this file, for --config of 'hinge device' and 'hinge gateway'."
    ),
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
    names = [name for name in policies.split(",") if target is None or name != Target.name]  # which has it
    price = options.offload_cost(offload_cost)
    settings = options.policy_settings(policies.split(","), alpha=alpha)
    binning: Bins = options.binning(bins or "16")
    if bins is None and isinstance(recorded, Log):
        binning = recorded.unmixed(binning)
    chosen: list[str | Policy] = [*names]
    if target is not None:
        chosen.append(Target(target, bins=binning.bins, seed=seed))
    with console.progress(f"policies on {trace}", lines=not json) as report:
        found = evaluate(
            recorded,
            chosen,
            price,
            bins=binning,
            **settings,
            horizon=horizon,
            runs=runs,
            seed=seed,
            progress=report,
        )
        gain, advice, complete = None, None, found.complete
        try:
            if complete and isinstance(found.trace, Trace):  # a log cannot be replayed
                start = binning.bins if isinstance(binning, UniformBins) else binning  # a number is cut finer
                told: dict[str, Any] = {"target": target, "bins": start, "alpha": alpha, "horizon": horizon}
                advice = recommend(
                    found.trace,
                    None if names == ["all"] else names,
                    price if isinstance(price, float) else None,
                    **told,
                    seed=seed,
                    progress=partial(report, part="to recommend one"),
                )
            if complete:
                each = partial(report, part="at every price")
                gain = advice.trade if advice else _trade_of(found, names, horizon, seed, each)
        except KeyboardInterrupt:
            complete = False
    figures, samples = found.figures(), len(found.trace)
    if out:
        console.write_curves(out, found, f"Policies on {trace}", gain.panels() if gain else ())
    if write and advice and isinstance(found.trace, Trace):
        write_settings(write, advice, found.trace)
    if json:
        settings |= {"trace": trace, "samples": samples, "bins": found.bins.bins}
        settings |= {"labelled": found.trace.labelled if isinstance(found.trace, Trace) else 0}
        settings |= {"offload_cost": found.offload_cost, "seed": seed}
        more: dict[str, Any] = {"trade": gain and gain.as_dict(), "agreement": _agreement(found)}
        more |= {"warnings": found.warnings(), "recommendation": advice and advice.as_dict()}
        console.print_json({**settings, "policies": figures, **more})
    else:
        order = "in order" if horizon is None else f"drawn {console.counted(horizon, 'time')} with replacement"
        if isinstance(found.trace, Log):
            order = f"{len(found.trace.offloads)} of them offloaded"
            audits = 0 if found.trace.audit is None else int(found.trace.audit.sum())
            order += f", {console.counted(audits, 'audit')} among them" if audits else ""
        by_cost = sorted(figures, key=lambda row: float(row["cost_per_sample"]))
        console.print_figures(f"{trace}: {console.counted(samples, 'sample')}, {order}", by_cost)
        if found.offload_cost is not None:
            both = found.trace.offloads if isinstance(found.trace, Log) else found.trace
            why = " (none was given)" if both.cost is None else " (the mean of the log's)"
            if price is not None:
                mean = both.mean_offload_cost
                why = "" if mean is None else f" (as given; in the log {mean:.4g} on average, which is not used)"
            paid = f"{found.offload_cost:g}{why}"
            rule = f"with {console.counted(found.bins.bins, 'bin')}; an offload costs {paid}"
            console.say(f"cost: per sample, {rule}, an accepted answer unlike the remote's 1")
        if any(map(console.is_informed, found)):
            console.say(
                "* knows more than a device can: fitted on this very log, told about every sample, or the truth"
            )
        if isinstance(found.trace, Trace) and 0 < found.trace.labelled < samples:
            console.say(f"true acc.: by the {found.trace.labelled} of {samples} samples whose true label is known")
        if found.shuffled is not None:
            console.say("shuffled: the cost in other orders of the log, and its standard deviation")
        _print_unknown(found)
        if gain and advice and target is None:
            fitted = "bins fitted to the other" if isinstance(binning, UniformBins) else "these bins"
            how = f" on a random half of the log, {console.counted(advice.samples, 'sample')}, with {fitted}"
            shifted = f"{advice.told:g}: γ′, by the labels of the other half" * (advice.told != advice.offload_cost)
            console.print_trade(gain, advice.offload_cost, how, shifted)
        elif gain and not advice:
            console.print_trade(gain, found.offload_cost, f" with {console.counted(found.bins.bins, 'bin')}")
        if gain and found.estimate:
            console.say("That is by the likeliest agreement; how far it may be off, the intervals above say.")
        _print_dips(found)
        if advice:
            print_recommendation(advice, found.trace, write)
        elif samples < FEWEST:
            console.say(f"So few samples say next to nothing about a policy: record {FEWEST} or more.")
        elif complete and isinstance(found.trace, Trace):
            console.say(f"Nothing is recommended: none of {_listed(names)} can run on a device.")
    if write and complete and not advice:
        raise options.UsageError(f"--write: none of {policies} can run on a device, so that none is recommended")
    if not complete:
        console.end_interrupted("these are the runs that were done.")


_NO_ANSWER = frozenset({"NA", "N/A", "NaN", "nan", "None", "null", "NULL"})  # as other programs write it


def _recorded(trace: str, columns: Mapping[str, str] | None) -> Trace | Log:
    """The log; where its answers can never agree, or say that there is none, a warning says so."""
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
    """Whether answers agree as seldom as they do where classes are called otherwise, by the test of a device.

    It is that of `hinge.device.status`: of models that keep a quarter of the agreement which their confidences promise,
    one in a hundred is suspected at most. Where the remote answered few, local may agree on the others.
    """
    if not both.agreed.any():
        return len(both) > 1
    evidence = (1.0 - _PART) * _PART * both.confidence.sum() - log(1.0 / _PART) * both.agreed.sum()
    return bool(evidence >= log(100)) and len(both) >= _SEEN * len(found)


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
        raise options.UsageError(f"--columns must be like confidence=score,local=prediction, got {text!r}")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


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
    """A warning, on standard error, about the dip that would cost most and the policies that it may mislead."""
    if not found.dips:
        return
    worst, *others = sorted(found.dips, key=lambda dip: -dip.price * dip.rows)
    spans = found.bins.spans()
    here, below = _span(worst.bin, worst.last_bin, spans), _span(worst.below_bin, worst.below_last_bin, spans)
    shares = f"{100 * worst.agreement:.1f} % of {worst.rows} rows agree there"
    lines = [f"Warning: agreement falls with confidence, most clearly in {here}: {shares},"]
    lines[0] += f" but {100 * worst.below_agreement:.1f} % of {worst.below_rows} in {below}."
    if others:
        more = [_span(dip.bin, dip.last_bin, spans) for dip in others]
        few = more if len(more) <= _DIPS_NAMED else [*more[: _DIPS_NAMED - 1], "others"]
        lines[0] += f" It falls in {_listed(few)} too."
    misled = sorted(name for name, policy in found.policies.items() if getattr(policy, "assumes_monotone", False))
    if misled:
        who = _listed(misled) if len(misled) <= _POLICIES_NAMED else f"{len(misled)} of these policies"
        lines.append(f"{who} assume{'s' * (len(misled) == 1)} that it never falls, and may accept such samples")
        lines[-1] += f" wrongly, at {worst.price:.2g} each: compare the costs above."
    kinds = {name: policy_class(name) for name in policy_names()}
    single = [name for name, kind in kinds.items() if kind.weighs_cost and not kind.assumes_monotone]
    lines.append(f"{_listed(single)} judge each bin by itself; sentinel does, too, once offloads show a fall")
    lines[-1] += " below break-even."
    for line in lines:
        console.note(line, style="yellow")


def _span(first: int, last: int, spans: Sequence[tuple[str | None, float, float]]) -> str:
    confidences = f"(confidence {spans[first][1]:.3g} to {spans[last][2]:.3g})"
    return f"bin {first} {confidences}" if first == last else f"bins {first} to {last} {confidences}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


# -- the recommendation -----------------------------------------------------------------------------------------------


_RECORDED = ("output", "remote_output", "input", "labels", "confidence", "token_file", "ca", "cert", "key")


def print_recommendation(advice: Recommendation, trace: Trace | Log, write: Path | None) -> None:
    """Say what to run, and on what evidence."""
    settings = advice.settings
    known = write is not None and isinstance(trace, Trace) and "local" in _models(trace, write.parent)
    samples = "SAMPLES" if known else "--local LOCAL --remote REMOTE SAMPLES"
    typed = {name: ",".join(map(str, each)) if isinstance(each, list) else each for name, each in settings.items()}
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in typed.items())
    console.say("")
    console.say(str(advice), prose=True)
    if write is not None:
        console.say(f"{write} is written, with the settings of 'hinge device --config' and 'hinge gateway --config'")
    if advice.alone is not None:
        console.say(f"To run it, no gate is needed: let the {advice.alone} model answer everything")
    elif trace.local is None:  # files of models are classifiers
        told = {**settings, "bins": advice.bins}
        named = ", ".join(f"{name}={value!r}" for name, value in told.items() if name != "policy")
        policy = f"build({advice.policy!r}, {named})"
        fitted = isinstance(advice.binning, EdgeBins)
        gate = f"Gate({policy}, bins={settings['bins']})" if fitted else policy
        console.say(f"To run it, in Python: Device(local, remote, {gate}, task=…)")
    elif write is None:
        console.say(f"To run it (--write hinge.toml writes these settings): hinge device {samples} {options}")
    else:
        console.say(f"To run it: hinge device --config {shlex.quote(str(write))} {samples}")


def check_settings(path: Path | None, trace: Trace | Log) -> None:
    """Refuse what `write_settings` could not write, before the work is done."""
    if path is None:
        return
    if path.exists():
        raise UsageError(f"--write: {path} is there already; remove it, or name another file")
    path.parent.stat()  # which raises the error of a folder that is not there
    if isinstance(trace, Log):
        raise UsageError("--write: a log of offloads alone cannot be replayed, and gives no recommendation")
    if len(trace) < FEWEST:
        raise UsageError(f"--write: a recommendation needs {FEWEST} samples, and {trace.name!r} has {len(trace)}")


def write_settings(path: Path, advice: Recommendation, trace: Trace) -> None:
    """Write the settings for `--config` of `hinge device`, with the models that `hinge record` asked, and a gateway."""
    lines = [str(advice), "'hinge device --config' and 'hinge gateway --config' read it; paths start from its folder."]
    lines = [textwrap.fill(line, 118, initial_indent="# ", subsequent_indent="# ") for line in lines]
    for section, models in (("device", _models(trace, path.parent)), ("gateway", {})):
        lines.append(f"[{section}]")
        for name, value in (models | advice.settings).items():
            line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
            lines.append(textwrap.fill(line, 118, subsequent_indent="  ") if isinstance(value, list) else line)
    write_whole({path: "\n".join([*lines, ""])})


def _models(trace: Trace, folder: Path) -> dict[str, str]:
    """The models that were recorded, if they are on a server or their files still there, with the options for them."""
    places = {role: trace.about.get(role, "") for role in ("local", "remote")}
    found = {role: place for role, place in places.items() if os.path.isfile(place)}
    if "remote name" in trace.about:
        found |= {"remote": places["remote"], "model": trace.about["remote name"]}
    found |= {name: trace.about[f"--{name}"] for name in _RECORDED if f"--{name}" in trace.about}
    return {name: os.path.relpath(each, folder) if os.path.isfile(each) else each for name, each in found.items()}


# -- one policy, the paper, and what there is --------------------------------------------------------------------------


@options.grouped
def simulate_command(
    policy: options.Policy = "sentinel",
    trace: str = option(
        "A trace by name (see 'hinge list traces'), or a file.", default="cifar10-vgg16", autocompletion=trace_names
    ),
    offload_cost: options.OffloadCost = None,
    set: options.Set = [],  # noqa: B006  # Typer gives every call a list of its own
    alpha: options.Alpha = None,
    bins: options.Bins = "16",
    horizon: int = option("Samples in each run.", default=100_000, min=1),
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Samples are drawn from a trace, with replacement.

    Example: hinge simulate --policy sentinel --trace cifar10-vgg16 --offload-cost 0.5 --runs 100
    """
    if policy == "all":
        raise options.UsageError("--policy takes one policy; 'hinge evaluate' compares several")
    console.check_out(out)
    recorded = as_trace(trace)
    cost = known_cost(options.offload_cost(offload_cost), recorded)
    source = Resampled(recorded, options.binning(bins), costs_for(recorded, cost))
    settings = options.policy_settings([policy], set, alpha=alpha)
    policies = lineup([policy], source, offload_cost=cost, horizon=horizon, seed=seed, **settings)
    with console.progress(f"{policy} on {trace}", lines=not json) as report:
        results = simulate(policies, source, horizon, runs, seed, progress=report)
    figures = results[policy].summary()
    if out:
        console.write_curves(out, results, f"{policy} on {trace}")
    if json:
        console.print_json({**figures, "trace": trace, "bins": source.bins, "offload_cost": cost, **settings})
    else:
        console.print_figures(f"{trace}, horizon {horizon}, {console.counted(figures['runs'], 'run')}", [figures])
    if not results.complete:
        console.end_interrupted("these are the runs that were done.")


@options.grouped
def reproduce_command(
    what: str = argument(f"'all', or one of {', '.join(each.name for each in EXPERIMENTS)}.", default="all"),
    out: Path = option("The folder for the report and the figures' numbers.", default=Path("results")),
    quick: bool = option("Fewer runs and coarser grids.", default=False),
    json: options.Json = False,
) -> None:
    """Ours stand beside them. Writes a CSV for each figure and table and a page to look at; for 'all' the claims, too.

    Example: hinge reproduce all --out results/
    """
    start = time.perf_counter()
    with console.status("compiling") as report:
        found, claims = reproduce(what, out, QUICK if quick else FULL, report)
    taken = time.perf_counter() - start
    if json:
        verdicts = [{"claim": claim.claim, "measured": claim.measured, "holds": claim.holds} for claim in claims]
        console.print_json({"out": str(out), "seconds": taken, "claims": verdicts})
        return
    for claim in claims:
        verdict = Text("holds", "green") if claim.holds else Text("fails", "red")
        console.out.print(verdict.append(f"  {claim.claim}", "default"), soft_wrap=True)
    console.say(f"Found in {taken:.0f} s: {', '.join(experiment.name for experiment in found)}")
    console.say(f"Look at {out / page_name(what)}")


@options.grouped
def list_command(
    what: str = argument("'policies', 'traces', or nothing for both.", default=""),
    json: options.Json = False,
) -> None:
    """Traces are listed with where they come from.

    Example: hinge list traces
    """
    if what not in ("", "policies", "traces"):
        raise UnknownName(f"there is no list of {what!r}{did_you_mean(what, ['policies', 'traces'])}")
    found: dict[str, list[dict[str, Any]]] = {}
    if what != "traces":
        kinds = {name: policy_class(name).__doc__ or "" for name in policy_names()}
        found["policies"] = [{"name": name, "what": about.split("\n")[0]} for name, about in kinds.items()]
    if what != "policies":
        traces = map(load_trace, trace_names())
        found["traces"] = [{"name": each.name, "samples": len(each), "about": dict(each.about)} for each in traces]
    if json:
        console.print_json(found)
        return
    if "policies" in found:
        table = console.table("policy", "what it does")
        for policy in found["policies"]:
            table.add_row(policy["name"], policy["what"])
        console.out.print(table)
    for trace in found.get("traces", []):
        console.say(f"{trace['name']}: {console.counted(trace['samples'], 'sample')}", style="bold")
        for key, value in trace["about"].items():
            console.out.print(Padding(f"{key}: {value}", (0, 0, 0, 4)), highlight=False, markup=False)
