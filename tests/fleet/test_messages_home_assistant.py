"""Home Assistant finds a device and its figures; its rules, as of 2024.3, are written out here."""

import json
import re
from typing import Any

import jinja2
import pytest

from hinge.fleet.messages import Presence, build_presence, discovery

TOPIC = re.compile(r"(\w+)/(?:([a-zA-Z0-9_-]+)/)?([a-zA-Z0-9_-]+)/config")  # homeassistant/components/mqtt/discovery.py
COMMON = {"state_topic", "value_template", "unique_id", "name", "icon", "device", "origin", "device_class"}
COMMON |= {"availability_topic", "availability_template", "qos", "expire_after", "entity_category"}
ALLOWED = {"binary_sensor": COMMON | {"payload_on", "payload_off"}}
ALLOWED["sensor"] = COMMON | {"state_class", "unit_of_measurement", "suggested_display_precision"}
DEVICE = {"identifiers", "name", "manufacturer", "model", "sw_version", "serial_number"}

CONFIGS = {topic: json.loads(payload) for topic, payload in discovery("cams", "kitchen.2")}


def shown(status: Presence) -> dict[str, str]:
    """What Home Assistant makes of a status, by the name of the figure."""
    values = {"value_json": json.loads(build_presence(status))}
    render = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string
    found = {config["name"]: render(config["value_template"]).render(values) for config in CONFIGS.values()}
    there = {render(c["availability_template"]).render(values) for c in CONFIGS.values() if "icon" in c}
    return {**found, "available": there.pop()}


@pytest.mark.parametrize("topic", CONFIGS)
def test_a_message_is_what_the_integration_accepts(topic: str) -> None:
    prefix, _, rest = topic.partition("/")
    found = TOPIC.fullmatch(rest)
    assert prefix == "homeassistant"
    assert found is not None
    config: dict[str, Any] = CONFIGS[topic]
    assert config.keys() <= ALLOWED[found[1]]
    assert config["state_topic"] == "hinge/1/cams/kitchen.2/status"
    assert config["device"].keys() <= DEVICE
    assert config["device"]["identifiers"]
    assert config["origin"].keys() <= {"name", "sw_version", "support_url"}
    assert config.get("state_class") in (None, "measurement", "total_increasing")
    assert len(json.dumps(config)) < 1024


def test_all_are_of_one_device_and_each_has_an_identity() -> None:
    assert len({json.dumps(config["device"]) for config in CONFIGS.values()}) == 1
    assert len({config["unique_id"] for config in CONFIGS.values()}) == len(CONFIGS) == 5


def test_figures_are_shown_as_they_are_told() -> None:
    assert shown(Presence(1, "kitchen.2", True, 90, 12, 0.8166, 0.5)) == {
        "Online": "ON",
        "Samples": "90",
        "Offloads": "12",
        "Agreement": "81.7",
        "Offload price": "0.5",
        "available": "online",
    }


def test_a_device_that_has_just_begun_has_counted_nothing_yet() -> None:
    seen = shown(Presence(1, "kitchen.2", True))
    assert (seen["Samples"], seen["Offloads"], seen["Agreement"]) == ("0", "0", "")


def test_what_is_not_told_is_left_as_it_was() -> None:
    """A numeric sensor ignores an empty state."""
    seen = shown(Presence(1, "kitchen.2", False))
    assert (seen["Online"], seen["available"]) == ("OFF", "offline")
    assert {seen[name] for name in ("Samples", "Agreement", "Offload price")} == {""}
