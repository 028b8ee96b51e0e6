"""The edge server: ONNX models behind the Open Inference Protocol over HTTP.

    call (one HTTP request) → Application → Service (a model under its name) → Batcher → Model
"""

from hinge.server.access import Tls
from hinge.server.limits import Limits
from hinge.server.running import Server

__all__ = ["Limits", "Server", "Tls"]
