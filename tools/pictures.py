"""Pictures of the report's figures, for README and docs.

    python tools/pictures.py results/report.html results/

Needs the extra `browser` and the system's Chromium.
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FIGURES = ("figure-2", "figure-4a", "figure-4b", "figure-4c", "figure-4d", "bounds")


def main(report: Path, out: Path) -> None:
    """A PNG of each figure."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 900, "height": 900})
        page.goto(report.resolve().as_uri())
        for name in FIGURES:
            page.wait_for_selector(f"#plot-{name} .main-svg", timeout=30_000)
            page.locator(f"#plot-{name}").screenshot(path=out / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
