"""zhumq: a message queue that speaks the Kafka wire protocol; this module exports the client library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zhumq.admin.client import Admin
    from zhumq.client.caller import Caller
    from zhumq.client.claim_check import ClaimCheck
    from zhumq.client.consumer import Consumer
    from zhumq.client.file_store import FileStore
    from zhumq.client.half_message_producer import HalfMessage, HalfMessageProducer
    from zhumq.client.message import Message
    from zhumq.client.outputs import Outputs
    from zhumq.client.priority_consumer import PriorityConsumer
    from zhumq.client.producer import Producer
    from zhumq.client.push_consumer import PushConsumer
    from zhumq.client.security import ClientSecurity
    from zhumq.client.service import Service
    from zhumq.client.task import Task
    from zhumq.client.transaction_core import PreparedState
    from zhumq.client.transactional_consumer import TransactionalConsumer
    from zhumq.client.transactional_producer import TransactionalProducer
    from zhumq.client.worker import Worker

    __version__: str

__all__ = [
    "Admin", "Caller", "ClaimCheck", "ClientSecurity", "Consumer", "FileStore", "HalfMessage", "HalfMessageProducer",
    "Message", "Outputs", "PreparedState", "PriorityConsumer", "Producer", "PushConsumer", "Service", "Task",
    "TransactionalConsumer", "TransactionalProducer", "Worker",
]  # fmt: skip

# Imported on first use, so that a starting broker does not load the client library.
_HOMES = {
    "Admin": "zhumq.admin.client",
    "Caller": "zhumq.client.caller",
    "ClaimCheck": "zhumq.client.claim_check",
    "ClientSecurity": "zhumq.client.security",
    "Consumer": "zhumq.client.consumer",
    "FileStore": "zhumq.client.file_store",
    "HalfMessage": "zhumq.client.half_message_producer",
    "HalfMessageProducer": "zhumq.client.half_message_producer",
    "Message": "zhumq.client.message",
    "Outputs": "zhumq.client.outputs",
    "PreparedState": "zhumq.client.transaction_core",
    "PriorityConsumer": "zhumq.client.priority_consumer",
    "Producer": "zhumq.client.producer",
    "PushConsumer": "zhumq.client.push_consumer",
    "Service": "zhumq.client.service",
    "Task": "zhumq.client.task",
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
