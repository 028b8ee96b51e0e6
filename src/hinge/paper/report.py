"""One self-contained page: every figure to look into, every table, and each claim with its verdict."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from plotly import graph_objects
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from hinge.paper.claims import Claim
from hinge.paper.figures import Curve, Experiment, Panel, Result

# Okabe and Ito's palette, which colour-blind readers can tell apart.
PALETTE = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#999999", "#000000")

STYLE = """
:root { color-scheme: light; font-family: system-ui, sans-serif; line-height: 1.45; }
body { max-width: 75rem; margin: 0 auto; padding: 1rem; color: #1a1a1a; background: #fff; }
h1 { margin-bottom: 0 } h2 { margin: 2.5rem 0 0.25rem } p.note { margin: 0 0 0.5rem; color: #555 }
div.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: 0.9rem; margin: 0.5rem 0 }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd }
td.number { text-align: right; font-variant-numeric: tabular-nums } th { border-bottom: 2px solid #888 }
.holds { color: #00664a; font-weight: 600 } .fails { color: #b03a00; font-weight: 600 }
nav a { margin-right: 0.9rem; white-space: nowrap } .plot { width: 100% }
@media (max-width: 45rem) {
  .claims tr:first-child { display: none } .claims tr, .claims td { display: block; border: 0 }
  .claims tr { border-bottom: 1px solid #ddd; padding: 0.5rem 0 } .claims td { padding: 0.1rem 0 }
  .claims td:first-child { font-weight: 600 }
}
"""


def page(found: Mapping[Experiment, Result], claims: Sequence[Claim], about: Sequence[str]) -> str:
    """The report as HTML that needs nothing else: no network, no other file."""
    links = " ".join(f'<a href="#{experiment.name}">{escape(experiment.title)}</a>' for experiment in found)
    sections = [_section(experiment, result) for experiment, result in found.items()]
    navigation = f'<nav aria-label="Figures">{links}</nav>'
    return document("The paper, reproduced", about, [navigation, _claims(claims) if claims else "", *sections])


def document(title: str, about: Sequence[str], body: Sequence[str], style: str = "") -> str:
    """A page with whatever is in its body; plots are drawn by the code that it carries."""
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>Hinge: {escape(title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}{style}</style><script>{get_plotlyjs()}</script></head><body>",
            f"<h1>{escape(title)}</h1>",
            *(f'<p class="note">{escape(line)}</p>' for line in about),
            *body,
            "</body></html>",
        ]
    )


def _claims(claims: Sequence[Claim]) -> str:
    rows = [
        f'<tr><td>{escape(claim.claim)}</td><td class="{_verdict(claim)}">{_verdict(claim)}</td>'
        f"<td>{escape(claim.paper)}</td><td>{escape(claim.measured)}</td></tr>"
        for claim in claims
    ]
    head = "<tr><th>claim</th><th>holds?</th><th>paper</th><th>measured</th></tr>"
    table = f'<div class="scroll"><table class="claims">{head}{"".join(rows)}</table></div>'
    return f'<h2 id="claims">The claims</h2>{table}'


def _verdict(claim: Claim) -> str:
    return "holds" if claim.holds else "fails"


def _section(experiment: Experiment, result: Result) -> str:
    body = table(result) if result.columns else plot(experiment.name, figure(result.panels))
    return section(experiment.name, experiment.title, experiment.note, body)


def section(name: str, title: str, note: str, body: str) -> str:
    """A part of a page, with a heading and a line about it."""
    heading = f'<h2 id="{name}">{escape(title)}</h2>'
    return f'<section>{heading}<p class="note">{escape(note)}</p>{body}</section>'


def table(result: Result) -> str:
    """The rows of a result."""
    head = "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in result.columns)
    rows = ["".join(_cell(value) for value in row) for row in result.rows]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _cell(value: Any) -> str:
    kind = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{kind}>{escape(str(value))}</td>"


def plot(name: str, drawn: graph_objects.Figure) -> str:
    """A figure, to look into."""
    config = {"responsive": True, "displaylogo": False}
    html: str = drawn.to_html(full_html=False, include_plotlyjs=False, div_id=f"plot-{name}", config=config)
    return f'<div class="plot">{html}</div>'


def figure(panels: Sequence[Panel]) -> graph_objects.Figure:
    """Panels one below the other, so that they can be read on a phone, with one legend for all."""
    titles = [panel.title for panel in panels]
    drawn = make_subplots(rows=len(panels), cols=1, subplot_titles=titles, vertical_spacing=0.35 / (len(panels) + 1))
    colours: dict[str, str] = {}
    for row, panel in enumerate(panels, start=1):
        for curve in panel.curves:
            first = curve.name not in colours
            colours.setdefault(curve.name, PALETTE[len(colours) % len(PALETTE)])
            _draw(drawn, row, curve, colours[curve.name], first)
        drawn.update_xaxes(title_text=panel.x, type="log" if panel.log_x else "linear", row=row, col=1)
        drawn.update_yaxes(title_text=panel.y, type="log" if panel.log_y else "linear", row=row, col=1)
    drawn.update_layout(
        template="plotly_white",
        height=120 + 330 * len(panels),
        margin={"l": 60, "r": 15, "t": 90, "b": 50},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0 + 0.15 / len(panels), "x": 0},
        hovermode="x unified",
    )
    return drawn


def _draw(drawn: graph_objects.Figure, row: int, curve: Curve, colour: str, legend: bool) -> None:
    if curve.half_width is not None:
        upper = [y + half for y, half in zip(curve.y, curve.half_width, strict=True)]
        lower = [y - half for y, half in zip(curve.y, curve.half_width, strict=True)]
        band = graph_objects.Scatter(
            x=[*curve.x, *reversed(curve.x)],
            y=[*upper, *reversed(lower)],
            fill="toself",
            fillcolor=colour,
            opacity=0.18,
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
            legendgroup=curve.name,
        )
        drawn.add_trace(band, row=row, col=1)
    mode = "lines+markers" if len(curve.x) <= 30 else "lines"
    line = graph_objects.Scatter(
        x=list(curve.x),
        y=list(curve.y),
        name=curve.name,
        mode=mode,
        line={"color": colour, "width": 2},
        legendgroup=curve.name,
        showlegend=legend,
    )
    drawn.add_trace(line, row=row, col=1)
