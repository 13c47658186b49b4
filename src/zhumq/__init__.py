"""zhumq: a message queue that speaks the Kafka wire protocol; this module exports the client library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zhumq.admin.client import Admin
    from zhumq.client.avro import Avro
    from zhumq.client.caller import Caller
    from zhumq.client.claim_check import ClaimCheck
    from zhumq.client.consumer import Consumer
    from zhumq.client.file_store import FileStore
    from zhumq.client.half_message_producer import HalfMessage, HalfMessageProducer
    from zhumq.client.message import Message
    from zhumq.client.middleware import Middleware, OutgoingMessage, ReceivedMessage
    from zhumq.client.outputs import Outputs
    from zhumq.client.priority_consumer import PriorityConsumer
    from zhumq.client.producer import Producer
    from zhumq.client.protobuf import Protobuf
    from zhumq.client.push_consumer import PushConsumer
    from zhumq.client.security import ClientSecurity
    from zhumq.client.serializers import Bytes, Json, Serializer, Text
    from zhumq.client.service import Service
    from zhumq.client.task import Task
    from zhumq.client.tracing import Tracing
    from zhumq.client.transaction_core import PreparedState
    from zhumq.client.transactional_consumer import TransactionalConsumer
    from zhumq.client.transactional_producer import TransactionalProducer
    from zhumq.client.worker import Worker

    __version__: str

__all__ = [
    "Admin", "Avro", "Bytes", "Caller", "ClaimCheck", "ClientSecurity", "Consumer", "FileStore", "HalfMessage",
    "HalfMessageProducer", "Json", "Message", "Middleware", "OutgoingMessage", "Outputs", "PreparedState",
    "PriorityConsumer", "Producer", "Protobuf", "PushConsumer", "ReceivedMessage", "Serializer", "Service", "Task",
    "Text", "Tracing", "TransactionalConsumer", "TransactionalProducer", "Worker",
]  # fmt: skip

# Imported on first use, so that a starting broker does not load the client library.
_HOMES = {
    "Admin": "zhumq.admin.client",
    "Avro": "zhumq.client.avro",
    "Bytes": "zhumq.client.serializers",
    "Caller": "zhumq.client.caller",
    "ClaimCheck": "zhumq.client.claim_check",
    "ClientSecurity": "zhumq.client.security",
    "Consumer": "zhumq.client.consumer",
    "FileStore": "zhumq.client.file_store",
    "HalfMessage": "zhumq.client.half_message_producer",
    "HalfMessageProducer": "zhumq.client.half_message_producer",
    "Json": "zhumq.client.serializers",
    "Message": "zhumq.client.message",
    "Middleware": "zhumq.client.middleware",
    "OutgoingMessage": "zhumq.client.middleware",
    "Outputs": "zhumq.client.outputs",
    "PreparedState": "zhumq.client.transaction_core",
    "PriorityConsumer": "zhumq.client.priority_consumer",
    "Producer": "zhumq.client.producer",
    "Protobuf": "zhumq.client.protobuf",
    "PushConsumer": "zhumq.client.push_consumer",
    "ReceivedMessage": "zhumq.client.middleware",
    "Serializer": "zhumq.client.serializers",
    "Service": "zhumq.client.service",
    "Task": "zhumq.client.task",
    "Text": "zhumq.client.serializers",
    "Tracing": "zhumq.client.tracing",
    "TransactionalConsumer": "zhumq.client.transactional_consumer",
    "TransactionalProducer": "zhumq.client.transactional_producer",
    "Worker": "zhumq.client.worker",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("zhumq")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'zhumq' has no attribute {name!r}")
    unavailable = import_module("zhumq.client.errors").PushUnavailable
    try:
        return getattr(import_module(home), name)
    except unavailable as reason:
        # `from zhumq import *` works without the extra; using the class raises an error that names the extra.
        return _missing(name, unavailable, str(reason))


def _missing(name: str, error: type[Exception], reason: str) -> type:
    """A stand-in for a class whose extra is not installed."""

    def refuse(_class: type, *_arguments: Any, **_options: Any) -> None:
        raise error(reason)

    return type(name, (), {"__new__": refuse, "__doc__": reason, "__module__": __name__})


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
