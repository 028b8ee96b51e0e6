"""What the pages name is there: metrics, tests, lines of an example; and README's figures are what is computed."""

import json
import re
from pathlib import Path

import yaml  # type: ignore[import-untyped]  # its types are a package of their own
from prometheus_client import CollectorRegistry

from hinge import Device, trade
from hinge.device.metrics import DeviceCollector
from hinge.server.observability import Metrics

ROOT = Path(__file__).parents[2]


def words(page: str) -> str:
    return " ".join((ROOT / page).read_text("utf-8").split())


def exported() -> set[str]:
    """Every series that a device or a server can show, without its labels."""
    registry, server = CollectorRegistry(), Metrics()
    with Device(list, max, offload_cost=0.5) as device:  # it is never asked anything
        registry.register(DeviceCollector(device))
        found = [*registry.collect(), *server.registry.collect()]
    counted = {family.name + "_total" for family in found if family.type == "counter"}
    spread = {family.name for family in found if family.type == "histogram"}
    now = {family.name for family in found if family.type == "gauge"}
    return counted | now | {name + end for name in spread for end in ("_bucket", "_sum", "_count")}


def test_prometheus_is_asked_for_metrics_that_there_are() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    _, ruling = (yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S))
    rules = [rule["expr"] for rule in ruling["groups"][0]["rules"]]
    for text in [*rules, *re.findall(r"`([^`]*\bhinge_[^`]*)`", page)]:
        assert set(re.findall(r"\bhinge_\w+", text)) <= exported(), text


def test_grafana_is_given_a_dashboard_of_metrics_that_there_are() -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "hinge.json").read_text("utf-8"))
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(shown) > 10
    for text in shown:
        metrics = set(re.findall(r"\bhinge_\w+", text))
        assert metrics
        assert metrics <= exported(), text


def test_the_readme_says_what_is_gained() -> None:
    assert trade("fashion", machine_code=False).sentence in words("README.md")


def test_the_readme_says_what_a_language_model_gains() -> None:
    found = trade("intents-smollm2", machine_code=False)
    assert found.headline
    agreed = f"gives {100 * found.headline.agreement:.1f} % of the remote's answers."
    assert f"{agreed} {found.sentence}" in words("README.md")


def test_the_policy_on_the_page_is_the_one_that_is_tested() -> None:
    page = (ROOT / "docs" / "policies.md").read_text("utf-8")
    source = (ROOT / "examples" / "own_policy.py").read_text("utf-8")
    written = {line.partition("  #")[0].strip() for line in source.splitlines()}
    for block in re.findall(r"^```python\n(?!>>>)(.*?)^```", page, re.M | re.S):
        for line in block.splitlines():
            assert line.strip() in written or line.startswith((">>>", "...")) or not line.strip(), line


def test_the_tests_that_the_promises_name_are_there() -> None:
    named = re.findall(r"`((?:[\w]+/)+(?:\w+\.py)?)`", words("docs/promises.md"))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "tests" / name.removeprefix("tests/")).exists()] == []
