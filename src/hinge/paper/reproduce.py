"""Everything at once: run the experiments, decide the claims, write the files."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hinge._checks import did_you_mean
from hinge._files import write_csv, write_whole
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
    from hinge.paper.report import page  # the extra `report`: missed now rather than after all the work

    experiments = chosen(name)
    out.mkdir(parents=True, exist_ok=True)
    lab, found, start = Lab(scale, progress), {}, time.perf_counter()
    for experiment in experiments:
        found[experiment] = experiment.find(lab)
        found[experiment].write(out / f"{experiment.name}.csv")
    claims = [decide(lab) for decide in CLAIMS] if name == "all" else []
    if claims:
        _write_claims(out / "claims.csv", claims)
    about = [
        f"{scale.runs} runs, horizon {scale.horizon}, 16 bins, α = 0.52 unless said otherwise; shaded: 95 % intervals.",
        f"Found in {time.perf_counter() - start:.0f} s.",
    ]
    write_whole({out / page_name(name): page(found, claims, about)})
    return found, claims


def page_name(name: str) -> str:
    """The file of the page."""
    return "report.html" if name == "all" else f"{name}.html"


def _write_claims(path: Path, claims: Sequence[Claim]) -> None:
    rows = ([claim.claim, claim.paper, claim.measured, claim.holds] for claim in claims)
    write_csv(path, [["claim", "paper", "measured", "holds"], *rows])
