"""The hub's page in a real browser: its numbers are those of the metrics, also with a thousand devices."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hinge.cli.fleet_view import HubServer
from hinge.fleet.broker import Broker
from hinge.fleet.hub import Hub
from hinge.fleet.messages import VERSION, Presence, build_evidence, build_presence, topic
from tests.browser.test_page import CHROMIUM, FLAGS, SOON_MS
from tests.fleet.brokers import Mosquitto, needs_mosquitto, wait_for

pytestmark = needs_mosquitto
GATE, DEVICES = "0123456789abcdef", 1000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with Mosquitto(tmp_path_factory.mktemp("broker"), "allow_anonymous true", "max_queued_messages 10000") as broker:
        with Broker("Devices", broker.url).connect("x", "none", None, 4096, lambda *_: None) as devices:
            for number in range(DEVICES):
                name = f"camera{number:03}"
                sums = ([90.0] * 4, [90.0] * 4) if number == 500 else ([9.0, 20.0, 30.0, 40.0], [1.0, 8.0, 20.0, 38.0])
                devices.publish(topic("cams", name, "evidence"), build_evidence(name, GATE, 9, 500, *sums))
                devices.publish(topic("cams", name, "status"), build_presence(Presence(VERSION, name, True, 500, 99)))
            devices.settle(20)
        with Hub(broker.url, "cams") as watching, HubServer(watching, 0) as server:
            wait_for(lambda: watching.view.totals.verdicts["kin"] == DEVICES - 1, 120)
            yield server


@pytest.fixture
def page(browser: Browser, hub: HubServer) -> Iterator[Page]:
    opened, said = browser.new_page(), list[str]()
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(f"{hub.url}/")
    expect(opened.locator("#devices caption")).to_have_text("1 000 of 1 000 devices", timeout=SOON_MS)
    yield opened
    opened.close()
    assert said == []


def test_a_thousand_devices_are_shown_with_who_is_not_believed_and_why(page: Page) -> None:
    expect(page.locator("#devices tbody tr")).to_have_count(DEVICES)
    expect(page.locator("#faults")).to_contain_text("camera500: bin 0: local agreed in 100 % of 90")
    expect(page.locator("#tiles")).to_contain_text("500\u202f000")
    expect(page.locator("#connection")).to_have_attribute("data-state", "connected")
    expect(page.locator("#groups tbody tr").first).to_contain_text("and 987 more")


def test_devices_are_found_and_sorted(page: Page) -> None:
    page.fill("#filter", "not believed")
    expect(page.locator("#devices tbody th")).to_have_text(["camera500"])
    page.fill("#filter", "camera50")
    page.click("#devices button:has-text('agreed')")
    page.click("#devices button:has-text('agreed')")
    expect(page.locator("#devices tbody th").first).to_have_text("camera500")


def test_the_page_is_as_wide_as_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
