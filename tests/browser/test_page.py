"""The live page in a real browser: its numbers are the device's, faults show, and it comes back by itself."""

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hinge import Breaker, Classification, Device, Gate, fashion
from hinge.device.page.page import LivePage
from hinge.device.page.snapshot import RECENT
from hinge.models.onnx import OnnxModel

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
IMAGES, LABELS = fashion.labelled_images()
SOON_MS = 15_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def said() -> list[str]:
    """What the browser complained about, other than a device that is away."""
    return []


@pytest.fixture
def opened(browser: Browser, said: list[str]) -> Iterator[Callable[..., Page]]:
    pages = []

    def complain(text: str) -> None:
        if "ERR_CONNECTION_REFUSED" not in text and "ERR_INCOMPLETE_CHUNKED_ENCODING" not in text:
            said.append(text)

    def opening(url: str, width: int = 1280, **options: Any) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("console", lambda message: complain(message.text))
        page.on("pageerror", lambda error: complain(str(error)))
        page.goto(url)
        pages.append(page)
        return page

    yield opening
    for page in pages:
        page.close()


class Watched:
    """A device with its page, whose remote can be made to fail."""

    def __init__(self, port: int = 0) -> None:
        self.fails, self._next = False, 0
        self._remote = OnnxModel(fashion.remote_model())
        gate, breaker = Gate(offload_cost=0.3), Breaker(failures=3, interval_s=2.5)
        local, task = OnnxModel(fashion.local_model()), Classification(fashion.CLASSES)
        self.device = Device(local, self._ask, gate, task=task, deadline_s=2, breaker=breaker)
        self.live = LivePage(self.device, port)
        self.url = self.live.url

    def _ask(self, image: Any) -> str:
        if self.fails:
            raise ConnectionError("unplugged")
        return fashion.CLASSES[int(self._remote(image).argmax())]

    def answer(self, samples: int) -> None:
        for _ in range(samples):
            image, label = IMAGES[self._next], LABELS[self._next]
            self.live.saw(self.device.infer(image), picture=image, truth=fashion.CLASSES[label])
            self._next += 1

    def is_well_after(self, samples: int) -> bool:
        self.answer(samples)
        return self.device.status.breaker == "closed"

    def __enter__(self) -> "Watched":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.close()
        self.device.close()


def value(page: Page, metric: str) -> float:
    return float(page.locator(f'#tiles [data-metric="{metric}"]').get_attribute("data-value") or "nan")


def wait_until(page: Page, condition: Callable[[], Any]) -> None:
    end = time.monotonic() + SOON_MS / 1000
    while not condition():
        assert time.monotonic() < end
        page.wait_for_timeout(20)


def shows_regret(page: Page, regret: float) -> bool:
    return value(page, "regret") == regret


def shows_samples(page: Page, samples: int) -> None:
    expect(page.locator('#tiles [data-metric="samples"]')).to_have_attribute(
        "data-value", str(samples), timeout=SOON_MS
    )


def test_the_numbers_are_the_devices(opened: Callable[..., Page], said: list[str]) -> None:
    with Watched() as watched:
        page = opened(watched.url)
        expect(page.locator("#connection")).to_have_text("connected", timeout=SOON_MS)
        watched.answer(400)
        shows_samples(page, 400)
        status = watched.device.status
        assert value(page, "offloads") == status.answered_by_remote
        assert value(page, "agreed") == status.agreed
        assert value(page, "offload_cost") == pytest.approx(status.offload_cost)
        assert value(page, "breaker_open") == 0
        tile = page.locator('#tiles [data-metric="samples"]')
        assert re.sub(r"\D", "", tile.inner_text().splitlines()[0]) == "400", "what is read is what is meant"
    assert said == []


def test_charts_tables_and_pictures_are_there(opened: Callable[..., Page], said: list[str]) -> None:
    with Watched() as watched:
        page = opened(watched.url)
        other = {"policy": "hi-lcb", "offload_fraction": 0.5, "cost_per_sample": 0.2, "regret": 9.0}
        for part in range(10):
            watched.live.compare([{**other, "policy": "probation", "regret": 0.5 * part}, other])
            watched.answer(60)
            shows_samples(page, 60 * (part + 1))
        expect(page.locator("#compared tbody tr")).to_have_count(2, timeout=SOON_MS)
        assert page.locator("#bins svg rect.licensed").count() >= 1
        assert "licensed" in (page.locator("#bins svg").get_attribute("aria-label") or "")
        for chart in ("offload-chart", "cost-chart", "regret-chart"):
            assert page.locator(f"#{chart} path.own").count() == 1
        for table in page.locator("details").all():
            table.locator("summary").click()
        expect(page.locator("#bins-table tbody tr")).to_have_count(16, timeout=SOON_MS)
        expect(page.locator("#course-table tbody tr").first).to_be_visible(timeout=SOON_MS)
        assert page.locator("#recent tbody tr").count() == 20
        drawn = "[...document.querySelectorAll('#recent img')].every((image) => image.naturalWidth === 28)"
        assert page.evaluate(drawn)
        assert {"local", "remote"} >= set(page.locator("#recent .who").all_inner_texts())
        assert re.match(r"Confidence [\d.]+–[\d.]+ is", page.locator("#recent .why").first.inner_text())
    assert said == []


def test_a_fault_becomes_visible_and_passes(opened: Callable[..., Page], said: list[str]) -> None:
    with Watched() as watched:
        page = opened(watched.url)
        watched.answer(20)
        expect(page.locator("#faults")).to_have_text("No faults.", timeout=SOON_MS)
        watched.fails = True
        watched.answer(200)
        expect(page.locator("#faults")).to_contain_text("The breaker is open", timeout=SOON_MS)
        expect(page.locator("#faults")).to_contain_text("fell back to local answers")
        expect(page.locator("#faults > ul")).to_contain_text(re.compile(r"Alarm: the breaker opened, since \d?\d:\d\d"))
        expect(page.locator("#faults")).to_have_attribute("role", "status")
        expect(page.locator('#tiles [data-metric="breaker_open"]')).to_contain_text("open")
        assert value(page, "fell_back") == sum(watched.device.status.fell_back.values()) > 0
        watched.fails = False
        wait_until(page, lambda: watched.is_well_after(1))
        watched.answer(RECENT)
        expect(page.locator("#faults")).not_to_contain_text("The breaker is open", timeout=SOON_MS)
        expect(page.locator("#faults")).to_contain_text("Alarm: the breaker opened")
        expect(page.locator("#faults > ul")).to_have_count(0)
        expect(page.locator("#faults")).to_contain_text("No faults now.")
        expect(page.locator("#faults details")).to_contain_text(re.compile(r"the breaker opened, \d?\d:\d\d"))
        expect(page.locator("#faults details li").first).to_be_hidden()
        page.locator("#faults summary").click()
        expect(page.locator("#faults details li").first).to_be_visible()
    assert said == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_fault_is_told_to_its_end_and_nothing_is_cut(
    opened: Callable[..., Page], said: list[str], width: int
) -> None:
    with Watched() as watched:
        watched.fails = True
        page = opened(watched.url, width)
        watched.answer(RECENT)
        shows_samples(page, RECENT)
        expect(page.locator("#recent .why").last).to_contain_text("unplugged; the local one stands.")
        cells = "[...document.querySelectorAll('#recent td, #faults li')]"
        assert not page.evaluate(f"{cells}.some((cell) => cell.scrollWidth > cell.clientWidth + 1)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said == []


@pytest.mark.parametrize("width", [390, 1280])
def test_true_labels_are_in_the_table(opened: Callable[..., Page], said: list[str], width: int) -> None:
    with Watched() as watched:
        page = opened(watched.url, width)
        answer = watched.device.infer(IMAGES[0])
        other = next(name for name in fashion.CLASSES if name != answer.label)
        for truth in (answer.label, other, None):
            watched.live.saw(answer, picture=IMAGES[0], truth=truth)
        expect(page.locator("#recent tbody tr")).to_have_count(3, timeout=SOON_MS)
        cells = page.locator("#recent td:nth-child(2)")
        told = [f"{answer.label}", f"{answer.label} (is {other})", f"{answer.label} ✓"]  # the newest first
        assert cells.all_inner_texts() == told
        assert all(cell.is_visible() for cell in cells.all())
        assert page.get_by_role("img", name="right").count() == 1
    assert said == []


def test_a_line_far_above_is_named_and_does_not_squash_the_others(opened: Callable[..., Page], said: list[str]) -> None:
    with Watched() as watched:
        page = opened(watched.url)
        for part in range(1, 6):
            rows = [("probation", 2.0), ("hi-lcb", 6.0), ("always-remote", 300.0)]
            watched.live.compare(
                [{"policy": name, "cost_per_sample": high / 1000, "regret": high * part / 5} for name, high in rows]
            )
            watched.answer(20)
            shows_samples(page, 20 * part)
            wait_until(page, partial(shows_regret, page, 2.0 * part / 5))
        for chart, told in (("regret-chart", "300"), ("cost-chart", "0.30")):
            assert page.locator(f"#{chart} path.course").count() == 3
            expect(page.locator(f"#{chart} .beyond")).to_have_text(f"Far above: always-remote {told}")
            drawn = page.locator(f"#{chart} svg[role=img]")
            assert f"always-remote {told}" in (drawn.get_attribute("aria-label") or "")
            path = page.locator(f"#{chart} path.own").get_attribute("d") or ""
            height, y = float(drawn.get_attribute("height") or "nan"), float(path.split()[-1])
            assert y < 0.75 * height, "the device's own line is well above the axis"
    assert said == []


def test_it_comes_back_after_the_device_did(opened: Callable[..., Page], said: list[str]) -> None:
    with Watched() as watched:
        port = int(watched.url.rstrip("/").rpartition(":")[2])
        watched.answer(50)
        page = opened(watched.url)
        shows_samples(page, 50)
    expect(page.locator("#connection")).to_have_text("not connected, retrying …", timeout=SOON_MS)
    assert page.locator("#watched").is_visible(), "what was known stays"
    with Watched(port) as watched:
        watched.answer(30)
        expect(page.locator("#connection")).to_have_text("connected", timeout=SOON_MS)
        shows_samples(page, 30)
    assert said == []


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_stale_looks_stale(opened: Callable[..., Page], said: list[str], scheme: str, paused: bool) -> None:
    with Watched() as watched:
        port = int(watched.url.rstrip("/").rpartition(":")[2])
        watched.answer(50)
        page = opened(watched.url, color_scheme=scheme)
        shows_samples(page, 50)
        expect(page.locator("#faults")).to_have_text("No faults.")
        now, faults = page.locator("#now-title"), page.locator("#faults")
        expect(now).to_have_text("Now")
        well = faults.evaluate(BORDER)
        if paused:
            page.locator("#pause").click()
    expect(now).to_have_text("Last known", timeout=SOON_MS)
    assert faults.evaluate(BORDER) != well
    if not paused:
        expect(faults).to_have_text(re.compile(r"^Not connected to the device since \d?\d:\d\d"))
    for part in ("now-title", "bins-title", "course-title", "recent-title"):
        section = page.locator(f"section[aria-labelledby={part}]")
        assert section.evaluate("(element) => getComputedStyle(element).filter") == "grayscale(1)", part
    for place in ("#tiles dd", "#tiles dt", "#recent td", "#faults", "h2"):
        assert page.evaluate(CONTRAST, place) > 4.5, place
    with Watched(port):
        expect(now).to_have_text("Now", timeout=SOON_MS)
        if paused:
            page.locator("#pause").click()
        expect(faults).to_have_text("No faults.", timeout=SOON_MS)
        assert faults.evaluate(BORDER) == well
    assert said == []


EDGES = [0.3812, 0.4188, 0.4213, 0.4231, 0.4604, 0.6]


@pytest.mark.parametrize("width", [390, 1280])
def test_bins_that_are_licensed_by_others_say_so(opened: Callable[..., Page], said: list[str], width: int) -> None:
    gate = Gate("hi-lcb", offload_cost=0.4, bins=EDGES)
    seen = [(3, 1.0)] * 30 + [(4, 0.0), (5, 0.0), (5, 1.0), (6, 0.0), (2, 0.0), (2, 0.0)]
    gate.policy.learn_log(*zip(*seen, strict=True))
    device = Device(lambda sample: [0.0, sample], lambda _: 1, gate)
    with device, LivePage(device) as watched:
        page = opened(watched.url, width)
        rows = page.locator("#bins svg > g")
        expect(rows).to_have_count(7, timeout=SOON_MS)
        words = [" ".join(row.locator("text").all_text_contents()) for row in rows.all()]
        edges = ["0.000", "0.381", "0.419", "0.421", "0.423", "0.460", "0.600", "1.000"]
        spans = [f"{low} – {high}" for low, high in pairwise(edges)]
        assert [word[:13] for word in words] == spans[::-1], "no two edges look alike"
        assert [span for span, word in zip(spans[::-1], words, strict=True) if "*" in word] == [
            spans[6], spans[5], spans[4]
        ]  # fmt: skip  # several to a line
        note = page.locator("#bins .beyond")
        assert "Confidence 0.46–0.6 is accepted: 1 of 2 agreed; checked again in" in note.inner_text()
        assert "30 of 30" not in note.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        label = "[...document.querySelectorAll('#bins text')].every((text) => text.getBBox().x >= 0)"
        assert page.evaluate(label), "no confidence is cut"
        page.locator("summary", has_text="Agreement and licences").click()
        row = page.locator("#bins-table tbody tr").nth(2)
        expect(row).to_contain_text("Confidence 0.419–0.421 is offloaded: 0 of 2 agreed", timeout=SOON_MS)
        expect(row).to_contain_text(spans[2])
    assert said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_and_can_be_read(opened: Callable[..., Page], said: list[str], width: int, scheme: str) -> None:
    with Watched() as watched:
        page = opened(watched.url, width, color_scheme=scheme)
        watched.answer(300)
        watched.live.compare([{"policy": "hi-lcb", "offload_fraction": 0.5, "cost_per_sample": 0.2, "regret": 9.0}])
        shows_samples(page, 300)
        expect(page.locator("#compared tbody tr")).to_have_count(2, timeout=SOON_MS)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = "[...document.querySelectorAll('.chart svg')].some((s) => s.clientWidth > s.parentElement.clientWidth)"
        assert not page.evaluate(cut)
        assert page.evaluate(CONTRAST, "body") > 12
        for place in (".note", "#tiles dt", "#recent .why", "figcaption", "#faults", "summary"):
            assert page.evaluate(CONTRAST, place) > 4.5, place
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")
    assert said == []


def test_it_can_be_used_from_the_keyboard(opened: Callable[..., Page], said: list[str]) -> None:
    with Watched() as watched:
        page = opened(watched.url)
        watched.answer(20)
        shows_samples(page, 20)
        order = []
        for _ in range(4):
            page.keyboard.press("Tab")
            order.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
            assert outline == "3px", order
        tables = ["Agreement and licences as a table", "The three charts as a table"]
        assert order == ["Skip to the figures", "pause", *tables]
        page.locator("#pause").focus()
        page.keyboard.press("Space")
        expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
        page.evaluate(HEARD)
        watched.answer(5)
        wait_until(page, lambda: page.evaluate("window.heard.includes(25)"))
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        assert value(page, "samples") == 20, "it stands still"
        page.keyboard.press("Space")
        shows_samples(page, 25)
    assert said == []


def test_everything_has_a_name_for_those_who_listen(opened: Callable[..., Page]) -> None:
    with Watched() as watched:
        page = opened(watched.url)
        watched.answer(50)
        shows_samples(page, 50)
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.locator("h1").count() == 1
        for image in page.locator("svg[role=img], img").all()[:10]:
            assert image.get_attribute("aria-label") or image.get_attribute("alt")
        assert page.get_by_role("button", name="Pause").count() == 1
        for heading in ("Now", "Over time", "Recent samples"):
            assert page.get_by_role("region", name=heading).count() == 1
        headed = "[...document.querySelectorAll('table')].every((t) => t.caption && t.querySelector('th[scope=col]'))"
        assert page.evaluate(headed)
        phone = opened(watched.url, 360)
        shows_samples(phone, 50)
        assert phone.get_by_role("table", name="The newest first").get_by_role("cell").count() > 50


def test_no_number_stops_the_page(opened: Callable[..., Page], said: list[str]) -> None:
    with Watched() as watched:
        page = opened(watched.url)
        for regret in (-1e12, -1e10, -1e-9, 1e12):
            watched.live.compare([{"policy": "probation", "cost_per_sample": regret, "regret": regret}])
            watched.answer(5)
            shows_samples(page, watched.device.status.samples)
            wait_until(page, partial(shows_regret, page, regret))
            for chart in ("regret-chart", "cost-chart"):
                assert 2 <= page.locator(f"#{chart} line.grid").count() <= 8
                assert "NaN" not in (page.locator(f"#{chart} path.own").get_attribute("d") or "")
    assert said == []


# Keeps the samples of each report that the page is told of, before it is drawn.
HEARD = """() => {
  const parse = JSON.parse;
  window.heard = [];
  JSON.parse = (text) => {
    const data = parse(text);
    window.heard.push(data.status.samples);
    return data;
  };
}"""

BORDER = "(element) => getComputedStyle(element).borderLeftColor"

# The contrast of an element's text with what lies behind it, as WCAG counts it.
CONTRAST = """(place) => {
  const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const luminance = (colour) => {
    const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = numbers(colour).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(place);
  let behind = element;
  while (numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const ink = luminance(getComputedStyle(element).color), back = luminance(getComputedStyle(behind).backgroundColor);
  return (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05);
}"""
