"""What `deploy/` holds, as far as it can be run without systemd as the first process and without a container engine."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.commands import INSTALLED

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy/hinge-serve.service").read_text()
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text()
TOKEN = "correct-horse-battery-staple"
WAIT_S = 30

MDWE = """
import ctypes, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, which MemoryDenyWriteExecute stands for
    sys.exit(77)
from hinge.cli import main
main()
"""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with the command where it is here."""
    path = tmp_path / "hinge-serve.service"
    path.write_text(UNIT.replace("/opt/hinge/bin/hinge", str(INSTALLED)))
    return path


def analysed(*arguments: str) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze")
    command = [program, "--no-pager", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_takes_every_line_of_the_unit(unit: Path) -> None:
    assert analysed("verify", str(unit)) == ""


def test_the_unit_is_as_little_exposed_as_the_page_says(unit: Path) -> None:
    found = re.search(r"Overall exposure level .*: ([\d.]+)", analysed("security", "--offline=true", str(unit)))
    assert found is not None
    assert "an exposure below 2 (10 is the worst)" in (ROOT / "docs/deploy.md").read_text()
    assert float(found[1]) < 2


def served(command: list[str], **variables: str) -> None:
    """Start a server on a free port, ask whether it is well as the container does, and end it as systemd does."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r":(\d+)$", line.strip())
            if found is None:
                assert server.wait(WAIT_S) == 77, line
                pytest.skip("this kernel has no PR_SET_MDWE")
            _, *check, program = json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2])
            words = [sys.executable, *check, program.replace("8080", found[1])]
            assert subprocess.run(words, check=False, timeout=WAIT_S).returncode == 0
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(WAIT_S) in (0, 77)


@pytest.mark.server
def test_the_units_command_serves_without_executable_memory(tmp_path: Path) -> None:
    (tmp_path / "hinge.toml").write_text('[serve]\nmodels = ["fashion-local"]\nhost = "0.0.0.0"\n')
    (tmp_path / "token").write_text(TOKEN)
    command = re.findall(r"^ExecStart=\S+ (.*)$", UNIT, re.MULTILINE)[0]
    command = command.replace("${CREDENTIALS_DIRECTORY}", str(tmp_path)).replace("/etc/hinge", str(tmp_path))
    served([sys.executable, "-c", MDWE, *command.split()])


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", CONTAINERFILE, re.MULTILINE)


def test_the_container_copies_what_is_there_and_installs_extras_that_exist() -> None:
    for line in instructions("COPY"):
        if not line.startswith("--from"):
            assert all((ROOT / source).exists() for source in line.split()[:-1])
    install = next(line for line in instructions("RUN") if "pip install" in line)
    extras = re.findall(r"\.\[(.*)\]", install)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= project["optional-dependencies"].keys()
    assert {project["readme"], *project["license-files"]} <= set(instructions("COPY")[0].split())


@pytest.mark.server
def test_the_containers_command_serves_and_is_found_well() -> None:
    entry, words = (json.loads(instructions(name)[-1]) for name in ("ENTRYPOINT", "CMD"))
    assert entry == ["hinge"]
    served([str(INSTALLED), *words], HINGE_TOKEN=TOKEN)
