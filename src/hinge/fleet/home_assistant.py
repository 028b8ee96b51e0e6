"""Messages by which Home Assistant finds a device of a fleet, and shows its figures by itself.

One retained message for each figure, in the form of MQTT discovery (`homeassistant/COMPONENT/NODE/OBJECT/config`), that
points at the device's status topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hinge.fleet.messages import topic

PREFIX = "homeassistant"  # Home Assistant's default
_SENSORS: dict[str, dict[str, Any]] = {
    "samples": {"name": "Samples", "state_class": "total_increasing", "icon": "mdi:counter"},
    "offloads": {"name": "Offloads", "state_class": "total_increasing", "icon": "mdi:cloud-upload"},
    "agreement": {"name": "Agreement", "unit_of_measurement": "%", "state_class": "measurement", "icon": "mdi:equal"},
    "price": {"name": "Offload price", "state_class": "measurement", "icon": "mdi:cash"},
}


def discovery(fleet: str, device: str) -> Iterator[tuple[str, bytes]]:
    """The topics and messages for a device.

    >>> for name, _ in discovery("cams", "kitchen"):
    ...     print(name)
    homeassistant/binary_sensor/hinge_cams_kitchen/online/config
    homeassistant/sensor/hinge_cams_kitchen/samples/config
    homeassistant/sensor/hinge_cams_kitchen/offloads/config
    homeassistant/sensor/hinge_cams_kitchen/agreement/config
    homeassistant/sensor/hinge_cams_kitchen/price/config
    """
    status = topic(fleet, device, "status")
    node = f"hinge_{fleet}_{device}".replace(".", "_")  # where a dot may not stand
    about = {"identifiers": [node], "name": f"Hinge {device}", "manufacturer": "Hinge", "model": f"fleet {fleet}"}

    def message(kind: str, figure: str, more: dict[str, Any]) -> tuple[str, bytes]:
        config = {"state_topic": status, "unique_id": f"{node}_{figure}", **more}
        config |= {"device": about, "origin": {"name": "Hinge"}}
        return f"{PREFIX}/{kind}/{node}/{figure}/config", msgspec.json.encode(config)

    online = "{{ 'ON' if value_json.online else 'OFF' }}"
    yield message(
        "binary_sensor", "online", {"name": "Online", "device_class": "connectivity", "value_template": online}
    )
    there = {
        "availability_topic": status,
        "availability_template": "{{ 'online' if value_json.online else 'offline' }}",
    }
    for figure, settings in _SENSORS.items():
        value, known = f"value_json.{figure}", f"value_json.{figure} is number"
        if settings["state_class"] == "total_increasing":
            value, known = f"{value} | default(0)", "value_json.online"  # a message leaves 0 out
        elif figure == "agreement":
            value = f"(100 * {value}) | round(1)"
        template = f"{{% if {known} %}}{{{{ {value} }}}}{{% endif %}}"
        yield message("sensor", figure, {**settings, **there, "value_template": template})
