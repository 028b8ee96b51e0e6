"""An ONNX model as MLServer calls it."""

from typing import Any

from mlserver import MLModel  # type: ignore[import-not-found]  # installed only in the peer's environment
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]  # likewise
from mlserver.types import InferenceResponse, MetadataTensor  # type: ignore[import-not-found]  # likewise

from tools.peers.served.onnx_model import OnnxModel


class Served(MLModel):  # type: ignore[misc]  # has no types here
    """The runtime that `model-settings.json` names."""

    async def load(self) -> bool:
        """Open the model, and say what it takes and gives."""
        self._model = OnnxModel(self.settings.parameters.uri)
        self.inputs = [MetadataTensor(**spec) for spec in self._model.inputs]
        self.outputs = [MetadataTensor(**spec) for spec in self._model.outputs]
        return True

    async def predict(self, payload: Any) -> Any:
        """Answer one request."""
        results = self._model.run({tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs})
        outputs = [NumpyCodec.encode_output(name, result) for name, result in results.items()]
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=outputs)
