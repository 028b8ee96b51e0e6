"""Programs on the pages without a prompt run too; what a page shows below one is what it prints."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hinge import Device, Gate, OnnxModel, OpenInference, fashion
from hinge.server import Server

PAGES = Path(__file__).parents[2] / "docs"
ELSEWHERE = {"policies.md", "tutorial.md"}  # parts of examples: test_figures.py, test_tutorial.py
_PROGRAM = re.compile(r"^```python\n(?!>>>)(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def programs() -> dict[str, list[tuple[str, str]]]:
    """By page: programs in their order, each with what it is said to print."""
    found = {path.name: _PROGRAM.findall(path.read_text("utf-8")) for path in sorted(PAGES.glob("*.md"))}
    return {name: blocks for name, blocks in found.items() if blocks and name not in ELSEWHERE}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Server(["fashion"], log_level="error") as server:
        yield server.url


@pytest.fixture
def names(url: str) -> Iterator[dict[str, Any]]:
    """What pages take for given: a device, and samples with their labels."""
    remote = OpenInference(url, model="fashion")
    with Device(OnnxModel(fashion.local_model()), remote, Gate(offload_cost=0.5), deadline_s=10) as device:
        images, labels = fashion.labelled_images()
        samples = list(zip(images[:20], labels[:20].tolist(), strict=True))
        yield {"device": device, "url": url, "token": None, "samples": samples}


@pytest.mark.parametrize("page", programs())
def test_the_programs_of_a_page_run(page: str, url: str, names: dict[str, Any]) -> None:
    for program, shown in programs()[page]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(program.replace("http://127.0.0.1:8080", url), {**names})  # a page may close its device
        if shown:
            assert out.getvalue() == shown
