"""Pictures of the trade, the live page and the demo's report for the documentation, from the images that we ship.

    python tools/screenshots.py docs/

Needs the extra `browser` and the system's Chromium.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from hinge import Classification, Device, Gate, UniformBins, fashion, trade
from hinge._html import document, plot
from hinge.confidence import max_softmax
from hinge.device.page.page import LivePage
from hinge.models.onnx import OnnxModel
from hinge.policies import Policy, build
from hinge.remotes.open_inference import OpenInference
from hinge.server import Server

PICTURES = (("page-light", 1200, 1750, "light"), ("page-dark", 1200, 1750, "dark"), ("page-phone", 390, 1900, "light"))
SAMPLES, BINS, OFFLOAD_COST = 6_000, 16, 0.15  # the price of the demo


class Account:
    """What one policy's answers cost, and what the best rule would have cost; the remote is right by definition."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.samples, self.offloads, self.cost = policy, 0, 0, 0.0
        self._in_bin, self._wrong = [0] * BINS, [0] * BINS

    def take(self, bin: int, agreed: bool, offloaded: bool) -> None:
        """Count a sample."""
        self.samples += 1
        self.offloads += offloaded
        self.cost += OFFLOAD_COST if offloaded else not agreed
        self._in_bin[bin] += 1
        self._wrong[bin] += not agreed

    def decide(self, bin: int, agreed: bool) -> None:
        """Let the policy decide, in the shadow of the device."""
        decision = self.policy.decide(bin)
        if decision.offload:
            self.policy.learn(decision, agreed, OFFLOAD_COST)
        self.take(bin, agreed, decision.offload)

    def row(self) -> dict[str, Any]:
        """The figures so far."""
        least = sum(min(wrong, OFFLOAD_COST * count) for wrong, count in zip(self._wrong, self._in_bin, strict=True))
        shares = {"offload_fraction": self.offloads / self.samples, "cost_per_sample": self.cost / self.samples}
        return {"policy": self.policy.name, **shares, "regret": self.cost - least}


def run(device: Device, live: LivePage) -> None:
    """Answer the images, and let other policies decide on the same."""
    images, labels = fashion.labelled_images()
    local, remote = (OnnxModel(path).many(images) for path in (fashion.local_model(), fashion.remote_model()))
    agreed = local.argmax(axis=1) == remote.argmax(axis=1)
    bins = UniformBins(BINS)
    own = Account(device.policy)
    names = ("hi-lcb", "always-local", "always-remote")
    beside = [Account(build(name, bins=BINS, offload_cost=OFFLOAD_COST)) for name in names]
    for place in range(SAMPLES):
        answer = device.infer(images[place])
        own.take(bins.bin(answer.confidence), bool(agreed[place]), answer.source == "remote")
        for account in beside:
            account.decide(bins.bin(max_softmax(local[place])), bool(agreed[place]))
        live.saw(answer, picture=images[place], truth=fashion.CLASSES[labels[place]])
        live.compare([account.row() for account in (own, *beside)])


def take(browser: Browser, url: str, out: Path) -> None:
    """A picture for each width and scheme."""
    for name, width, height, scheme in PICTURES:
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(url)
        page.wait_for_selector("#recent img")
        page.wait_for_timeout(500)
        page.screenshot(path=out / f"{name}.png")
        page.close()


def take_trade(browser: Browser, out: Path) -> None:
    """The picture of README: what the default policy gains at every price."""
    with TemporaryDirectory() as folder:
        drawn = Path(folder) / "trade.html"
        drawn.write_text(document("The trade", [], [plot("trade", trade("fashion").figure(columns=2))]), "utf-8")
        page = browser.new_page(viewport={"width": 1000, "height": 600}, device_scale_factor=2)
        page.goto(drawn.as_uri())
        page.wait_for_selector("#plot-trade .main-svg", timeout=30_000)
        page.locator("#plot-trade").screenshot(path=out / "gain.png")
        page.close()


def take_report(browser: Browser, out: Path) -> None:
    """A picture of the report that the demo writes."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        command = [sys.executable, "-m", "hinge", "demo", "--json", "--out", str(report)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
        page = browser.new_page(viewport={"width": 1000, "height": 1900})
        page.goto(report.as_uri())
        page.wait_for_selector(".main-svg", timeout=30_000)
        page.screenshot(path=out / "demo-report.png")
        page.close()


def main(out: Path) -> None:
    """Serve, run, and take the pictures while the page is up."""
    with Server(["fashion"], log_level="error") as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        remote = OpenInference(server.url, "fashion")
        gate = Gate(offload_cost=OFFLOAD_COST)
        local = OnnxModel(fashion.local_model())
        device = Device(local, remote, gate, task=Classification(fashion.CLASSES), deadline_s=2.0)
        with device, LivePage(device) as live:
            run(device, live)
            take(browser, live.url, out)
        take_trade(browser, out)
        take_report(browser, out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
