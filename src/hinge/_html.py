"""Self-contained HTML pages with interactive figures, for `hinge reproduce` and `hinge demo`, and pictures of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hinge._files import replacing, write_whole
from hinge.errors import InvalidValue

# Okabe and Ito's palette, which colour-blind readers can tell apart.
PALETTE = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#999999", "#000000")

STYLE = """
:root { color-scheme: light; font-family: system-ui, sans-serif; line-height: 1.45; }
body { max-width: 75rem; margin: 0 auto; padding: 1rem; color: #1a1a1a; background: #fff; }
h1 { margin-bottom: 0 } h2 { margin: 2.5rem 0 0.25rem } p.note { margin: 0 0 0.5rem; color: #555 }
div.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: 0.9rem; margin: 0.5rem 0 }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd }
td.number { text-align: right; font-variant-numeric: tabular-nums } th { border-bottom: 2px solid #888 }
nav a { margin-right: 0.9rem; white-space: nowrap } .plot { width: 100% }
"""


@dataclass(frozen=True)
class Curve:
    """A line through points, with an interval around it where there is one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    half_width: Sequence[float] | None = None
    dashed: bool = False  # so that another shows where both coincide


@dataclass(frozen=True)
class Panel:
    """One plot: curves over a common axis."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    marks: Sequence[tuple[float, str]] = ()  # vertical lines: where, and what to say there
    top: float | None = None  # where the y axis ends, with 0 at its foot; None: as the curves need


def need(package: str, extra: str, what: str) -> None:
    """Raise `ImportError`, with the remedy, if there is no such package."""
    if find_spec(package) is None:
        raise ImportError(f"{what} needs {package}: pip install 'hinge-gate[{extra}]'", name=package)


PICTURES = (".html", ".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """Raise `ValueError` for a file that `save` cannot write, and `ImportError` where it needs an extra."""
    if path.suffix.lower() not in PICTURES:
        raise InvalidValue("plot", "path", f"must end in {', '.join(PICTURES)}, got {path.name!r}")
    if path.suffix.lower() == ".html":
        need("plotly", "report", "a report")
    else:
        need("matplotlib", "plot", f"a picture as {path.suffix}, unlike one as .html,")


def save(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Write panels as a page to look into (.html, with plotly), or as a picture (with matplotlib)."""
    check_picture(path)
    if path.suffix.lower() == ".html":
        write_whole({path: document(title, [], [plot("panels", draw(panels))])})
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6 * len(panels)), layout="constrained")
    colours: dict[str, str] = {}
    for axes, panel in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        for curve in panel.curves:
            colour = colours.setdefault(curve.name, PALETTE[len(colours) % len(PALETTE)])
            axes.plot(curve.x, curve.y, "--" if curve.dashed else "-", label=curve.name, color=colour)
            if curve.half_width is not None:
                sums = zip(curve.y, curve.half_width, strict=True)
                lower, upper = zip(*((y - half, y + half) for y, half in sums), strict=True)
                axes.fill_between(curve.x, lower, upper, color=colour, alpha=0.18, linewidth=0)
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        axes.set(xscale="log" if panel.log_x else "linear", yscale="log" if panel.log_y else "linear")
        if panel.top is not None:
            axes.set_ylim(0, panel.top)
        for x, text in panel.marks:
            axes.axvline(x, color="black", linewidth=0.8, linestyle="--")
            words = f" {text}".replace("<br>", "\n ")
            axes.text(x, 0.05, words, transform=axes.get_xaxis_transform(), fontsize="small")
        axes.legend(fontsize="small")
    figure.suptitle(title)
    with replacing(path) as stream:
        figure.savefig(stream, format=path.suffix[1:].lower(), dpi=150)


def document(title: str, about: Sequence[str], body: Sequence[str], style: str = "") -> str:
    """A whole page, plotly.js included, so that it needs no network and no other file."""
    from plotly.offline import get_plotlyjs

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


def section(name: str, title: str, note: str, body: str) -> str:
    """A part of a page, with a heading and a line about it."""
    heading = f'<h2 id="{name}">{escape(title)}</h2>'
    return f'<section>{heading}<p class="note">{escape(note)}</p>{body}</section>'


def table(name: str, headings: Sequence[str], rows: Iterable[tuple[str, Sequence[Any]]]) -> str:
    """A table of that class, of rows with a class of their own each; numbers are to the right."""
    head, body = "".join(f"<th>{escape(heading)}</th>" for heading in headings), ""
    for kind, row in rows:
        numbers = (' class="number"' if isinstance(cell, int | float) else "" for cell in row)
        cells = (f"<td{number}>{escape(str(cell))}</td>" for number, cell in zip(numbers, row, strict=True))
        body += f'<tr class="{kind}">{"".join(cells)}</tr>'
    return f'<div class="scroll"><table class="{name}"><tr>{head}</tr>{body}</table></div>'


def plot(name: str, figure: Any) -> str:
    """A plotly figure as HTML, without plotly's buttons: on a phone they would lie over the legend."""
    config = {"responsive": True, "displayModeBar": False}
    html: str = figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"plot-{name}", config=config)
    return f'<div class="plot">{html}</div>'


def draw(panels: Sequence[Panel], columns: int = 1, colours: Mapping[str, str] | None = None) -> Any:
    """Panels one below the other, so that they can be read on a phone, or in columns, with one legend for all.

    `colours` are those of names that other figures of the page have, too.
    """
    from plotly.subplots import make_subplots

    rows = -(-len(panels) // columns)
    titles = [panel.title for panel in panels]
    figure = make_subplots(rows=rows, cols=columns, subplot_titles=titles, vertical_spacing=0.35 / (rows + 1))
    pens, named = dict(colours or {}), set[str]()
    for number, panel in enumerate(panels):
        place = {"row": number // columns + 1, "col": number % columns + 1}
        for curve in panel.curves:
            colour = pens.setdefault(curve.name, PALETTE[len(pens) % len(PALETTE)])
            _draw_curve(figure, place, curve, colour, curve.name not in named)
            named.add(curve.name)
        figure.update_xaxes(title_text=panel.x, type="log" if panel.log_x else "linear", **place)
        figure.update_yaxes(title_text=panel.y, type="log" if panel.log_y else "linear", **place)
        if panel.top is not None:
            figure.update_yaxes(range=[0, panel.top], **place)
        for x, text in panel.marks:
            figure.add_vline(x, line_dash="dash", line_width=1, **place)
            foot = {"yref": "y domain", "y": 0.1, "yanchor": "bottom", "xanchor": "left", "align": "left", "xshift": 3}
            figure.add_annotation(x=x, text=text, showarrow=False, **foot, **place)
    figure.update_layout(
        template="plotly_white",
        height=120 + 330 * rows,
        margin={"l": 60, "r": 15, "t": 90, "b": 50},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0 + 0.15 / rows, "x": 0},
        hovermode="x unified",
    )
    return figure


def _draw_curve(figure: Any, place: dict[str, int], curve: Curve, colour: str, legend: bool) -> None:
    from plotly import graph_objects

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
        figure.add_trace(band, **place)
    line = graph_objects.Scatter(
        x=list(curve.x),
        y=list(curve.y),
        name=curve.name,
        mode="lines+markers" if len(curve.x) <= 30 else "lines",
        line={"color": colour, "width": 2, "dash": "dash" if curve.dashed else "solid"},
        legendgroup=curve.name,
        showlegend=legend,
    )
    figure.add_trace(line, **place)
