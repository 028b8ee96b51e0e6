"""The report in a real browser: every figure drawn, nothing on the console, readable on a phone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from hinge.paper.figures import EXPERIMENTS, QUICK
from hinge.paper.reproduce import reproduce

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    reproduce("all", out, QUICK)
    return out / "report.html"


@pytest.fixture(params=[(1280, 900), (390, 800)], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    width, height = request.param
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser.new_page(viewport={"width": width, "height": height})
        browser.close()


def test_every_figure_is_drawn_and_the_page_fits(report: Path, page: Page) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(report.as_uri())
    plots = [experiment.name for experiment in EXPERIMENTS if experiment.name != "tables"]
    for name in plots:
        page.wait_for_selector(f"#plot-{name} .main-svg", timeout=30_000)
        assert page.locator(f"#plot-{name} .scatterlayer .trace").count() >= 2, name
    assert page.locator("table.claims td.holds, table.claims td.fails").count() == 10
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("window.innerWidth")
    assert said == []
