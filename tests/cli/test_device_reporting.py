"""A device that shows itself on the page of its remote's server."""

import pytest

from hinge.cli.app import run
from hinge.server import Server
from tests.server.clients import ask
from tests.support.commands import Captured

TOKEN = "0123456789abcdef"


def test_it_reports_to_the_server_of_the_remote(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(["fashion"], token=TOKEN, log_level="error") as server:
        monkeypatch.setenv("HINGE_TOKEN", TOKEN)
        arguments = ["--remote", server.url, "--report", "hall", "--limit", "50", "--deadline-s", "5", "--json"]
        assert run(["device", *arguments]) == 0
        assert f"Reporting to the live page at {server.url}/" in capsys.readouterr().err
        metrics = ask(server.url, "/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).body.decode()
        assert 'hinge_device_samples{device="hall"} 50.0' in metrics
        assert 'hinge_device_regret{device="hall"}' in metrics, "the labels are known"


def test_it_needs_a_page_to_report_to(capsys: Captured) -> None:
    assert run(["device", "--report", "hall"]) == 2
    assert "--report needs a --remote that begins with http" in capsys.readouterr().err
