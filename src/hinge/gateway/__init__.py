"""Gateways: a device behind a protocol, so that a client changes nothing but an address."""

from hinge.gateway.chat import ChatGateway as ChatGateway
from hinge.gateway.inference import InferenceGateway as InferenceGateway
from hinge.gateway.inference import ServedRows as ServedRows
from hinge.gateway.openai import ChatServer as ChatServer
