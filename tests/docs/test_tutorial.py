"""A stranger's path: the tutorial's commands, run as they stand on the page, but for port 8080, which may be taken.

With HINGE_FULL set, in an empty environment into which pip installs for real; else in this one.
"""

import os
import re
import venv
from pathlib import Path

from tests.docs.tutorial import blocks, by_hand, clone, run
from tools.peers.process import free_ports

FULL = bool(os.environ.get("HINGE_FULL"))


def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    page, port = blocks(), str(free_ports(1)[0])
    commands = [block.commands.replace("8080", port) for block in page]
    printed = run(commands, clone(tmp_path), _empty_environment(tmp_path) if FULL else None)
    assert len(printed) == len(page)
    for block, output in zip(page, printed, strict=True):
        assert _begins(output, block.shown), f"{block}\n{output}"


def _empty_environment(folder: Path) -> Path:
    venv.create(folder / "environment", with_pip=True)
    return folder / "environment" / "bin"


def _begins(output: str, shown: str) -> bool:
    """Whether output begins as the page shows it, where `...` stands for anything and spaces count as one."""
    parts = [" ".join(part.split()) for part in shown.split("...")]
    return re.match(".*?".join(map(re.escape, parts)), " ".join(output.split())) is not None


def test_the_page_shows_the_program_that_it_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text("utf-8")
    shown = page.partition("```python\n")[2].partition("```")[0]
    assert shown in (Path(__file__).parents[2] / "examples" / "device.py").read_text("utf-8")


def test_what_is_not_run_here_is_triton() -> None:
    server, device = by_hand()
    assert server.startswith("tritonserver ")
    assert device == "python examples/device.py http://127.0.0.1:8000"
