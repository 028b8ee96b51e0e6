"""The edge server: ONNX models behind the Open Inference Protocol over HTTP."""

try:
    import h11  # noqa: F401  # uvicorn would miss it only when it starts

    from hinge.server.app import Limits
    from hinge.server.server import Server, Tls
except ModuleNotFoundError as error:
    raise ImportError(f"serving needs the extra 'server' ({error}): pip install 'hinge-gate[server]'") from error

__all__ = ["Limits", "Server", "Tls"]
