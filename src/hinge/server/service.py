"""A model under its name: what clients are told of it, its queue, and how a new file takes its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hinge import fashion
from hinge._checks import did_you_mean
from hinge.errors import InvalidMessage, InvalidModel, UnknownName
from hinge.oip.json import Message, model_name
from hinge.oip.messages import ModelMetadata, build_model_metadata
from hinge.server.batching import Batcher
from hinge.server.limits import Limits
from hinge.server.metrics import Metrics
from hinge.server.model import Model

VERSION = "1"  # the only one of each model: a new file replaces the old
SHIPPED = {"fashion": fashion.remote_model, "fashion-local": fashion.local_model}


@dataclass(frozen=True)
class Place:
    """A model's name, and where its file is."""

    name: str
    path: Path

    @classmethod
    def parse(cls, text: str | Path) -> Place:
        """Read NAME=PATH; or PATH, whose stem is the name; or the name of a model that comes with the package.

        >>> Place.parse("digits=models/v2.onnx")
        Place(name='digits', path=PosixPath('models/v2.onnx'))
        >>> Place.parse("models/digits.onnx").name, Place.parse("fashion").name
        ('digits', 'fashion')
        """
        named = re.fullmatch(r"([^/\\]*?)=(.*)", text, re.DOTALL) if isinstance(text, str) else None
        path = Path(named[2] if named else text)
        name = named[1] if named else path.stem
        if not named and not path.suffix and len(path.parts) <= 1 and not path.is_file():
            if path.name not in SHIPPED:
                raise UnknownName(f"there is no model {path.name!r}{did_you_mean(path.name, SHIPPED)}")
            name, path = path.name, SHIPPED[path.name]()
        try:
            return cls(model_name(name), path)
        except InvalidMessage as error:
            raise InvalidModel(f"{text}: {error}; give it one: NAME=PATH") from None


def parse_places(texts: Sequence[str | Path]) -> tuple[Place, ...]:
    """Read several, of different names."""
    places = tuple(Place.parse(text) for text in texts)
    if not places:
        raise ValueError("there must be a model to serve")
    names = [place.name for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two models have the name {twice[0]!r}; give one another: NAME=PATH")
    return places


class Service:
    """A model that is served. Made and used in the event loop."""

    def __init__(self, place: Place, model: Model, *, workers: int, limits: Limits, metrics: Metrics) -> None:
        self.place = place
        self.name = place.name
        observe = metrics.watch_model(self.name, lambda: self.batcher.queued)
        self.batcher = Batcher(model, workers=workers, batch=limits.batch, observe=observe)
        self.output_names = {spec.name for spec in model.outputs}

    @property
    def model(self) -> Model:
        """The model that the next requests are run on."""
        return self.batcher.model

    def replace(self, model: Model) -> None:
        """Let another model answer from now on, if clients can use it without noticing."""
        if not model.fits(self.model):
            raise InvalidModel(f"{self.place.path}: its inputs or outputs are not those of the model it would replace")
        self.batcher.model = model

    def metadata(self) -> Message:
        """What clients are told of the model."""
        model = self.model
        return build_model_metadata(
            ModelMetadata(self.name, "onnxruntime_onnx", model.inputs, model.outputs, (VERSION,))
        )
