"""Gateways: a device behind a protocol, so that a client changes nothing but an address."""

import hinge.server  # noqa: F401  # says what to install, where something is missing
from hinge.gateway.chat import ChatGateway as ChatGateway
from hinge.gateway.chat import ChatServer as ChatServer
from hinge.gateway.inference import InferenceGateway as InferenceGateway
from hinge.gateway.inference import ServedRows as ServedRows
