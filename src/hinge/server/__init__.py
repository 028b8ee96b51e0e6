"""The edge server: ONNX models behind the Open Inference Protocol over HTTP.

connections → app → batching → models
"""

from hinge.server.limits import Limits
from hinge.server.server import Server, Tls

__all__ = ["Limits", "Server", "Tls"]
