"""The paper reproduced: run the experiments, decide the claims, write the files and one self-contained page."""

import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from hinge._checks import did_you_mean
from hinge._files import write_csv, write_whole
from hinge._html import document, draw, need, plot, section, table
from hinge.errors import UnknownName
from hinge.paper.claims import CLAIMS, Claim
from hinge.paper.figures import EXPERIMENTS, FULL, Experiment, Figure, Lab, Scale

Progress = Callable[[str], None]


def chosen(name: str) -> Sequence[Experiment]:
    """The experiments of a name: `all`, or one of them.

    >>> [experiment.name for experiment in chosen("figure-2")]
    ['figure-2']
    """
    if name == "all":
        return EXPERIMENTS
    found = [experiment for experiment in EXPERIMENTS if experiment.name == name]
    if not found:
        known = ["all", *(experiment.name for experiment in EXPERIMENTS)]
        raise UnknownName(f"no experiment is called {name!r}{did_you_mean(name, known)}")
    return found


def reproduce(
    name: str, out: Path, scale: Scale = FULL, progress: Progress | None = None
) -> tuple[dict[Experiment, Figure], list[Claim]]:
    """Run experiments and write what they found: a CSV each, an HTML page, and for `all` the claims.

    The page is `report.html` for `all`, and named after the experiment otherwise.
    """
    need("plotly", "report", "a report")  # missed now rather than after all the work
    experiments = chosen(name)
    out.mkdir(parents=True, exist_ok=True)
    lab, found, start = Lab(scale, progress), {}, time.perf_counter()
    for experiment in experiments:
        found[experiment] = experiment.find(lab)
        found[experiment].write(out / f"{experiment.name}.csv")
    claims = [decide(lab) for decide in CLAIMS] if name == "all" else []
    if claims:
        rows = ([claim.claim, claim.paper, claim.measured, claim.holds] for claim in claims)
        write_csv(out / "claims.csv", [["claim", "paper", "measured", "holds"], *rows])
    about = [
        f"{scale.runs} runs, horizon {scale.horizon}, 16 bins, α = 0.52 unless said otherwise; shaded: 95 % intervals.",
        f"Found in {time.perf_counter() - start:.0f} s.",
    ]
    write_whole({out / page_name(name): page(found, claims, about)})
    return found, claims


def page_name(name: str) -> str:
    """The file of the page."""
    return "report.html" if name == "all" else f"{name}.html"


# -- the page ---------------------------------------------------------------------------------------------------------


STYLE = """
.claims td:nth-child(2) { color: #00664a; font-weight: 600 } .claims .fails td:nth-child(2) { color: #b03a00 }
@media (max-width: 45rem) {
  .claims tr:first-child { display: none } .claims tr, .claims td { display: block; border: 0 }
  .claims tr { border-bottom: 1px solid #ddd; padding: 0.5rem 0 } .claims td { padding: 0.1rem 0 }
  .claims td:first-child { font-weight: 600 }
}
"""


def page(found: Mapping[Experiment, Figure], claims: Sequence[Claim], about: Sequence[str]) -> str:
    """The report as HTML that needs nothing else: no network, no other file."""
    links = " ".join(f'<a href="#{experiment.name}">{escape(experiment.title)}</a>' for experiment in found)
    parts = [f'<nav aria-label="Figures">{links}</nav>']
    if claims:
        verdicts = (("holds" if each.holds else "fails", each) for each in claims)
        rows = ((holds, (each.claim, holds, each.paper, each.measured)) for holds, each in verdicts)
        parts += ['<h2 id="claims">The claims</h2>', table("claims", ("claim", "holds?", "paper", "measured"), rows)]
    for experiment, result in found.items():
        headings = [column.replace("_", " ") for column in result.columns]
        drawn = None if headings else plot(experiment.name, draw(result.panels))
        body = drawn or table("", headings, (("", row) for row in result.rows))
        parts.append(section(experiment.name, experiment.title, experiment.note, body))
    return document("The paper, reproduced", about, parts, STYLE)
