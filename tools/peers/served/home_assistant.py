"""A Home Assistant with its MQTT integration alone; every state of a Hinge sensor is a line of JSON on standard output.

    python -m tools.peers.served.home_assistant FOLDER MQTT-PORT HTTP-PORT
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from homeassistant import auth, bootstrap, config_entries, core, loader
from homeassistant.helpers import device_registry, entity_registry
from homeassistant.setup import async_setup_component


async def serve(folder: str, mqtt_port: int, http_port: int) -> None:
    """Run until the process is killed."""
    Path(folder, "configuration.yaml").touch()
    hass = core.HomeAssistant(folder)
    loader.async_setup(hass)
    hass.config.skip_pip = True  # the environment has all that is needed
    hass.config_entries = config_entries.ConfigEntries(hass, {})
    await bootstrap.async_load_base_functionality(hass)
    hass.auth = await auth.auth_manager_from_config(hass, [], [])
    printed = core.callback(lambda event: _print(hass, event.data["new_state"]))  # at once, in the event loop
    hass.bus.async_listen("state_changed", printed)
    for name, settings in (("homeassistant", {}), ("http", {"server_host": "127.0.0.1", "server_port": http_port})):
        if not await async_setup_component(hass, name, {name: settings}):
            raise SystemExit(f"{name} could not be set up")
    await hass.config_entries.async_add(_broker(mqtt_port))
    await hass.async_start()
    await asyncio.Event().wait()


def _broker(port: int) -> config_entries.ConfigEntry:
    """What a user enters under Settings → Devices & services → MQTT."""
    address = {"broker": "127.0.0.1", "port": port}
    return config_entries.ConfigEntry(
        version=1, minor_version=1, domain="mqtt", title="broker", data=address, source=config_entries.SOURCE_USER
    )


def _print(hass: core.HomeAssistant, state: Any) -> None:
    entity = entity_registry.async_get(hass).async_get(state.entity_id) if state else None
    if entity is None or entity.platform != "mqtt":
        return
    device = device_registry.async_get(hass).async_get(entity.device_id or "")
    line = {"entity": state.entity_id, "state": state.state, **state.attributes, "device": device and device.name}
    print(json.dumps(line, default=str), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
