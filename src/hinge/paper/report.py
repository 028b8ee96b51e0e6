"""One self-contained page: every figure to look into, every table, and each claim with its verdict."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from hinge._html import document, draw, need_plotly, plot, section
from hinge.paper.claims import Claim
from hinge.paper.figures import Experiment, Figure

need_plotly()  # drawn with when the page is made; a missing extra must be noticed at import

STYLE = """
.holds { color: #00664a; font-weight: 600 } .fails { color: #b03a00; font-weight: 600 }
@media (max-width: 45rem) {
  .claims tr:first-child { display: none } .claims tr, .claims td { display: block; border: 0 }
  .claims tr { border-bottom: 1px solid #ddd; padding: 0.5rem 0 } .claims td { padding: 0.1rem 0 }
  .claims td:first-child { font-weight: 600 }
}
"""


def page(found: Mapping[Experiment, Figure], claims: Sequence[Claim], about: Sequence[str]) -> str:
    """The report as HTML that needs nothing else: no network, no other file."""
    links = " ".join(f'<a href="#{experiment.name}">{escape(experiment.title)}</a>' for experiment in found)
    sections = []
    for experiment, result in found.items():
        body = table(result) if result.columns else plot(experiment.name, draw(result.panels))
        sections.append(section(experiment.name, experiment.title, experiment.note, body))
    navigation = f'<nav aria-label="Figures">{links}</nav>'
    return document("The paper, reproduced", about, [navigation, _claims(claims) if claims else "", *sections], STYLE)


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


def table(result: Figure) -> str:
    """The rows of a result."""
    head = "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in result.columns)
    rows = ["".join(_cell(value) for value in row) for row in result.rows]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _cell(value: Any) -> str:
    kind = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{kind}>{escape(str(value))}</td>"
