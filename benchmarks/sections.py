"""A benchmark in sections: each is a module of a folder, and becomes a page in the results."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def run_sections(about: str, script: str, sections: Sequence[str], report: Callable[[str, bool], str]) -> None:
    """Run the sections that the command line asks for; `report` makes the text of one, quickly if that is asked for."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="few runs, in seconds, to see that it works")
    parser.add_argument("--only", nargs="+", choices=sections, default=sections, metavar="SECTION", help=str(sections))
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write each section to a page in this folder")
    options = parser.parse_args()
    for section in options.only:
        begun = time.monotonic()
        text = report(section, options.quick)
        text += f"Written by `benchmarks/{script}.py --only {section}` in {time.monotonic() - begun:.0f} s.\n"
        print(text, flush=True)
        if options.results:
            name = f"{script}-{section.replace('_', '-')}.md"
            (options.results / name).write_text(text, encoding="utf-8")
