"""Hinge, the Hierarchical INference Gate for the Edge.

A small local model answers every sample; a policy compares its confidence with what it has learned and either accepts
the answer or offloads the sample to a large remote model. It learns online, from the offloads alone.

>>> import hinge
>>> gate = hinge.Gate(offload_cost=0.5)
>>> decision = gate.decide(confidence=0.83)
>>> decision.offload  # nothing is known yet
True
>>> gate.learn(decision, agreed=True)

Names and modules are imported on first use (PEP 562), so that `import hinge` is quick, a policy runs without numpy, and
a missing extra matters only to the part that needs it.
"""

__version__ = "0.2.0"

TYPE_CHECKING = False  # type checkers take it for true; importing typing would double the time of `import hinge`

_NAMES = {
    "hinge.bins": ("Bins", "EdgeBins", "FittedBins", "UniformBins"),
    "hinge.confidence": ("entropy", "margin", "max_softmax"),
    "hinge.costs": ("CostMatrix", "FixedCost", "MeasuredCost"),
    "hinge.device.answer": ("Answer",),
    "hinge.device.async_device": ("AsyncDevice",),
    "hinge.device.device": ("Device",),
    "hinge.device.record": ("record",),
    "hinge.device.breaker": ("Breaker",),
    "hinge.errors": ("HingeError", "InvalidState", "RemoteFailed"),
    "hinge.gate": ("Gate", "restore"),
    "hinge.models": ("LocalModel",),
    "hinge.models.litert": ("LiteRTModel",),
    "hinge.models.onnx": ("OnnxModel",),
    "hinge.models.openvino": ("OpenVINOModel",),
    "hinge.policies.expiry": ("ExpiryPolicy",),
    "hinge.policies.hi_lcb": ("HILCB", "HILCBLite"),
    "hinge.policies": ("Decision", "Policy", "build"),
    "hinge.policies.probation": ("Probation",),
    "hinge.policies.target": ("Target",),
    "hinge.policies.thompson": ("Thompson",),
    "hinge.policies.threshold": ("Threshold",),
    "hinge.remotes": ("AsyncRemote", "Deadline", "Remote", "Reply"),
    "hinge.remotes.open_inference": ("OpenInference",),
    "hinge.simulation": ("evaluate", "simulate"),
    "hinge.simulation.trade": ("trade",),
    "hinge.tasks": ("Classification",),
    "hinge.traces": ("Trace", "load_trace", "read_trace", "write_trace"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = (
    *("bins", "confidence", "costs", "device", "embedded", "errors", "fashion", "gate", "models", "paper", "policies"),
    *("remotes", "server", "simulation", "tasks", "testing", "theory", "traces"),
)

__all__ = [*_HOMES]

if TYPE_CHECKING:
    # isort: off
    from hinge import (
        bins as bins, confidence as confidence, costs as costs, device as device, embedded as embedded,
        errors as errors, fashion as fashion, gate as gate, models as models, paper as paper,
        policies as policies, remotes as remotes, server as server, simulation as simulation, tasks as tasks,
        testing as testing, theory as theory, traces as traces
    )
    from hinge.bins import Bins as Bins, EdgeBins as EdgeBins, FittedBins as FittedBins, UniformBins as UniformBins
    from hinge.confidence import entropy as entropy, margin as margin, max_softmax as max_softmax
    from hinge.costs import CostMatrix as CostMatrix, FixedCost as FixedCost, MeasuredCost as MeasuredCost
    from hinge.device.answer import Answer as Answer
    from hinge.device.async_device import AsyncDevice as AsyncDevice
    from hinge.device.device import Device as Device
    from hinge.device.record import record as record
    from hinge.device.breaker import Breaker as Breaker
    from hinge.errors import HingeError as HingeError, InvalidState as InvalidState, RemoteFailed as RemoteFailed
    from hinge.gate import Gate as Gate, restore as restore
    from hinge.models import LocalModel as LocalModel
    from hinge.models.litert import LiteRTModel as LiteRTModel
    from hinge.models.onnx import OnnxModel as OnnxModel
    from hinge.models.openvino import OpenVINOModel as OpenVINOModel
    from hinge.policies import Decision as Decision, Policy as Policy, build as build
    from hinge.policies.expiry import ExpiryPolicy as ExpiryPolicy
    from hinge.policies.hi_lcb import HILCB as HILCB, HILCBLite as HILCBLite
    from hinge.policies.probation import Probation as Probation
    from hinge.policies.target import Target as Target
    from hinge.policies.thompson import Thompson as Thompson
    from hinge.policies.threshold import Threshold as Threshold
    from hinge.remotes import AsyncRemote as AsyncRemote, Deadline as Deadline, Remote as Remote, Reply as Reply
    from hinge.remotes.open_inference import OpenInference as OpenInference
    from hinge.simulation import evaluate as evaluate, simulate as simulate
    from hinge.simulation.trade import trade as trade
    from hinge.tasks import Classification as Classification
    from hinge.traces import (
        Trace as Trace, load_trace as load_trace, read_trace as read_trace, write_trace as write_trace
    )
else:  # hidden from type checkers, which would take every unknown name for defined

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        elif name in _MODULES:
            found = import_module(f"hinge.{name}")
        else:
            raise AttributeError(f"module 'hinge' has no attribute {name!r}")
        globals()[name] = found  # found at once from now on
        return found

    def __dir__() -> list[str]:
        return [*_HOMES, *_MODULES, "__version__"]
