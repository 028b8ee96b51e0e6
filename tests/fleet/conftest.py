"""Members of fleets that wait less than real ones do."""

import pytest

from hinge.fleet import broker, member


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "LISTEN_S", 0.3)
    monkeypatch.setattr(broker, "PAUSE_S", 0.1)
    monkeypatch.setattr(broker, "LONGEST_PAUSE_S", 0.2)
