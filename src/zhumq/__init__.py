"""zhumq: a message queue that speaks the Kafka wire protocol. The public face of the client library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zhumq.client.admin import Admin
    from zhumq.client.consumer import Consumer
    from zhumq.client.message import Message
    from zhumq.client.producer import Producer
    from zhumq.client.push_consumer import PushConsumer
    from zhumq.client.worker import Worker

__all__ = ["Admin", "Consumer", "Message", "Producer", "PushConsumer", "Worker"]

# Imported on first use: a broker that starts does not wait for a client library, nor a test for both.
_HOMES = {
    "Admin": "zhumq.client.admin",
    "Consumer": "zhumq.client.consumer",
    "Message": "zhumq.client.message",
    "Producer": "zhumq.client.producer",
    "PushConsumer": "zhumq.client.push_consumer",
    "Worker": "zhumq.client.worker",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'zhumq' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
