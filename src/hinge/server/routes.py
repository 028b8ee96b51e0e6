"""Which path means what."""

from typing import NamedTuple

from hinge.server.pages import FILES


class Route(NamedTuple):
    """What a path asks for."""

    what: str
    method: str = "GET"
    open: bool = False  # needs no token
    model: str = ""
    version: str = ""
    device: str = ""


_FIXED = {
    "/v2": Route("server"),
    "/v2/": Route("server"),
    "/v2/health/live": Route("live", open=True),
    "/v2/health/ready": Route("ready", open=True),
    "/metrics": Route("metrics"),
    "/openapi.json": Route("openapi"),
    "/hinge/events": Route("events"),
    **dict.fromkeys(FILES, Route("page", open=True)),
}
_OF_MODELS = {"": ("model", "GET"), "ready": ("ready", "GET"), "infer": ("infer", "POST")}


def find_route(path: str) -> Route | None:
    """What a path asks for, if it is one of ours. Names in it are only ever looked up.

    >>> find_route("/v2/models/fashion/versions/1/infer")
    Route(what='infer', method='POST', open=False, model='fashion', version='1', device='')
    >>> find_route("/v2/models/../../secrets")
    """
    parts = path.split("/")
    if parts[:3] == ["", "hinge", "devices"] and len(parts) == 4 and parts[3]:
        return Route("report", "POST", device=parts[3])
    if parts[:3] != ["", "v2", "models"]:
        return _FIXED.get(path)
    version = ""
    if len(parts) >= 6 and parts[4] == "versions" and parts[5]:
        version = parts[5]
        parts[4:6] = []
    if not 4 <= len(parts) <= 5 or not parts[3]:
        return None
    what = _OF_MODELS.get(parts[4] if len(parts) == 5 else "")
    return Route(what[0], what[1], model=parts[3], version=version) if what else None
