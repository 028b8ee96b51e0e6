"""What the demo has found: as a table in the terminal, and as one self-contained page."""

from collections.abc import Sequence
from html import escape
from typing import Any

from plotly import graph_objects

from hinge._html import PALETTE, Curve, Panel, document, draw, plot, section
from hinge.cli import console
from hinge.cli.demo import FLAGSHIP, SHADOWS, History, Outcome
from hinge.cli.device_view import Seen
from hinge.device.reporter import data_url, small
from hinge.policies.policy import Explanation

HEADINGS = ("", "cost", "offloads", "", "true acc.", "agrees", "regret", "ms")
NAMES = {"always-local": "local only", "always-remote": "remote only", FLAGSHIP: f"{FLAGSHIP} (live)"}


def cells(row: dict[str, Any]) -> Sequence[str]:
    """A row of the table."""
    return (
        NAMES.get(row["policy"], row["policy"]),
        f"{row['cost_per_sample']:.4f}",
        f"{row['offloads']}",
        f"{row['offload_fraction']:.1%}",
        f"{row['true_accuracy']:.2%}",
        f"{row['accuracy']:.2%}",
        f"{row['regret']:.1f}",
        f"{'≈' if row['latency_estimated'] else ''}{row['latency_ms']:.3f}",
    )


def legend(outcome: Outcome) -> list[str]:
    """What the columns are, and how the live answers compare with the recorded ones."""
    compared, price = outcome.comparison, outcome.offload_cost
    lines = [
        f"cost per sample: {price:g} for an offload, 1 for an accepted answer that disagrees with the remote's",
        "true acc.: answers that are right by the labels; agrees: answers as the remote's",
        "regret: what decisions other than the oracle's cost in sum",
        f"ms per sample: measured; remote only: {outcome.timing.requests} requests; ≈: by the device's offloads",
    ]
    recorded = f"the live remote's {compared.checked} answers: {compared.differences} not as recorded"
    recorded += f"; {outcome.timing.requests} of them to measure its time"
    lines.append(recorded + (f"; {compared.elsewhere} samples in another bin" if compared.elsewhere else ""))
    if outcome.faults:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items()))
        lines.append(f"answered locally, as the remote failed: {kinds}")
    return lines


def print_outcome(outcome: Outcome) -> None:
    """The table of all policies, and what its columns mean."""
    title = f"{outcome.figures.samples:,} images in {outcome.seconds:.1f} s, over HTTP"
    table = console.table(*HEADINGS, right=True, title=title)
    for row in outcome.rows():
        table.add_row(*cells(row), style="bold" if row["policy"] == FLAGSHIP else None)
    console.print_table(table)
    for line in legend(outcome):
        console.say(line, style="dim")
    console.print_trade(outcome.trade, outcome.offload_cost)


# -- the page ---------------------------------------------------------------------------------------------------------

_WINDOWS = 50  # over which the rate of offloads is taken
_LICENSED, _UNLICENSED = PALETTE[4], PALETTE[6]

STYLE = """
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 0.75rem; padding: 0 }
.examples li { display: flex; gap: 0.75rem; border: 1px solid #ddd; padding: 0.5rem; list-style: none }
.examples img { width: 84px; height: 84px; image-rendering: pixelated; flex: none }
.examples p { margin: 0; font-size: 0.8rem; color: #555 } .examples strong { color: #1a1a1a }
.examples .remote { border-left: 4px solid #0072B2 } .examples .local { border-left: 4px solid #009E73 }
.policies { white-space: nowrap } .policies th { text-align: right } .live td { font-weight: 600 }
@media (max-width: 30rem) { .policies { font-size: 0.75rem } .policies th, .policies td { padding: 0.3rem 0.25rem } }
"""


def page_of(outcome: Outcome) -> str:
    """The report as HTML that needs nothing else: no network, no other file."""
    about = [
        f"{outcome.figures.samples:,} test images of Fashion-MNIST in {outcome.seconds:.1f} s, through a device with a "
        f"local model of 15 kB. Where {FLAGSHIP} decided so, it asked an edge server with a model of 3.5 MB over HTTP; "
        f"{', '.join(SHADOWS)} ran in shadow.",
        " ".join(outcome.trade.sentences(outcome.offload_cost)),
    ]
    parts = (_trade, _table, _regret, _offloads, _bins, _examples, _faults)
    return document("The demo", about, [part(outcome) for part in parts], STYLE)


def _trade(outcome: Outcome) -> str:
    rows, price = list(outcome.trade.rows()), f"{outcome.offload_cost:g}"
    note = f"What {FLAGSHIP} gains at every price of an offload, simulated on the 10,000 images, and where nothing is."
    table = _html_table(list(rows[0]), [(list(row.values()), row["price"] == price) for row in rows])
    return section("trade", "The trade", note, plot("trade", outcome.trade.figure()) + table)


def _table(outcome: Outcome) -> str:
    table = _html_table(HEADINGS, [(cells(row), row["policy"] == FLAGSHIP) for row in outcome.rows()])
    notes = "".join(f'<p class="note">{escape(line)}</p>' for line in legend(outcome))
    return section("policies", "Side by side", f"At {outcome.offload_cost:g} for an offload.", table + notes)


def _html_table(headings: Sequence[str], rows: Sequence[tuple[Sequence[str], bool]]) -> str:
    """Rows of cells, with those that stand out marked."""
    head, body = "".join(f"<th>{escape(heading)}</th>" for heading in headings), ""
    for (name, *numbers), marked in rows:
        columns = "".join(f'<td class="number">{number}</td>' for number in numbers)
        row = '<tr class="live">' if marked else "<tr>"
        body += f"{row}<td>{escape(name)}</td>{columns}</tr>"
    return f'<div class="scroll"><table class="policies"><tr>{head}</tr>{body}</table></div>'


def _regret(outcome: Outcome) -> str:
    compared = [("local only", outcome.comparison.histories["always-local"]), *_compared(outcome)]
    curves = [Curve(name, history.times, history.regrets) for name, history in compared]
    note = "What decisions other than the oracle's have cost so far. The oracle knows how often both agree in each bin."
    return section("regret", "Regret", note, plot("regret", draw([Panel("", "samples", "regret", curves)])))


def _offloads(outcome: Outcome) -> str:
    curves = [_rate(name, history) for name, history in _compared(outcome)]
    panel = Panel("", "samples", "share offloaded", curves)
    note = "The share of the samples that each policy offloaded, window by window."
    return section("offloads", "Offloads", note, plot("offloads", draw([panel])))


def _compared(outcome: Outcome) -> list[tuple[str, History]]:
    return [(name, outcome.comparison.histories[name]) for name in (FLAGSHIP, *SHADOWS)]


def _rate(name: str, history: History) -> Curve:
    step = max(1, len(history.times) // _WINDOWS)
    times, counts = [0, *history.times[step - 1 :: step]], [0, *history.offloads[step - 1 :: step]]
    spans = list(zip(times, times[1:], counts, counts[1:], strict=False))
    return Curve(name, times[1:], [(after - before) / (end - start) for start, end, before, after in spans])


def _bins(outcome: Outcome) -> str:
    known = [each for each in outcome.licences if each.offloads]
    drawn = graph_objects.Figure()
    for title, colour, licensed in (("accepted", _LICENSED, True), ("offloaded", _UNLICENSED, False)):
        chosen = [each for each in known if (each.offload_probability == 0.0) == licensed]
        drawn.add_trace(_bars(title, colour, chosen, len(outcome.licences)))
    even, said = 1.0 - outcome.offload_cost, "above, accepting is cheaper"
    drawn.add_hline(y=even, line_dash="dash", annotation_text=said, annotation_position="top left")
    drawn.update_xaxes(title_text="confidence of the local model", range=[0, 1])
    drawn.update_yaxes(title_text="local agreed with remote", range=[0, 1], tickformat=".0%")
    margin = {"l": 60, "r": 15, "t": 40, "b": 50}
    drawn.update_layout(template="plotly_white", height=420, margin=margin, legend={"orientation": "h", "y": 1.12})
    note = "What the device learned from its offloads, and in the end accepts. In each bar: the offloads behind it."
    return section("bins", "Agreement and licences", note, plot("bins", drawn))


def _bars(title: str, colour: str, known: Sequence[Explanation], bins: int) -> graph_objects.Bar:
    return graph_objects.Bar(
        name=title,
        x=[(each.bin + 0.5) / bins for each in known],
        y=[each.agreement for each in known],
        width=0.9 / bins,
        marker_color=colour,
        text=[f"{each.offloads:g}" for each in known],
        textposition="inside",
        insidetextanchor="start",
        hovertext=[each.reason for each in known],
        hoverinfo="text",
    )


def _examples(outcome: Outcome) -> str:
    cards = "".join(_card(*example) for example in outcome.examples.kept)
    note = "Some of the answers, with the reason that held when they were given; most are from the beginning."
    return section("examples", "Answers", note, f'<ul class="examples">{cards}</ul>')


def _card(seen: Seen, reason: str) -> str:
    number, case, answer = seen
    pixels = small(case.sample)
    picture = "" if pixels is None else f'<img src="{data_url(pixels)}" alt="image {number}">'
    verdict = "right" if answer.label == case.truth else f"wrong: it is {case.truth}"
    said = f"<strong>{escape(answer.label)}</strong>, says {answer.source} ({verdict})"
    sure = f"No. {number}, local confidence {answer.confidence:.2f}"
    return f'<li class="{answer.source}">{picture}<div><p>{said}</p><p>{sure}</p><p>{escape(reason)}</p></div></li>'


def _faults(outcome: Outcome) -> str:
    if not outcome.faults:
        return ""
    lines = "".join(f"<li>{escape(kind)}: {count}</li>" for kind, count in sorted(outcome.faults.items()))
    return section("faults", "Faults", "Samples that got the local answer, as the remote failed.", f"<ul>{lines}</ul>")
