"""Reports in a real browser: every figure drawn, nothing on the console, readable on a phone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from hinge.cli.app import run
from hinge.paper import reproduce
from hinge.paper.figures import EXPERIMENTS, QUICK

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
    assert page.locator("table.claims tr.holds, table.claims tr.fails").count() == 10
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("window.innerWidth")
    assert said == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "demo.html"
    assert run(["demo", "--samples", "200", "--json", "--out", str(out)]) == 0
    return out


def test_the_demo_shows_the_trade_and_what_each_policy_costs_without_scrolling_aside(demo: Path, page: Page) -> None:
    page.goto(demo.as_uri())
    for name in ("trade", "regret"):
        page.wait_for_selector(f"#plot-{name} .main-svg", timeout=30_000)
    assert page.locator("#plot-regret .legend").text_content().count("always-local") == 1
    assert page.locator(".modebar").count() == 0, "buttons over the legend"
    width = page.evaluate("window.innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for section, heading in (("trade", "saves"), ("policies", "true acc.")):
        box = page.locator(f"section:has(#{section}) th", has_text=heading).bounding_box()
        assert box["x"] + box["width"] <= width, (section, heading)
