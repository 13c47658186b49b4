"""The async client: producers, consumers and workers for programs with an event loop, named as in `zhumq`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zhumq.client.async_consumer import Consumer
    from zhumq.client.async_producer import Producer, RecordMetadata
    from zhumq.client.async_worker import Worker
    from zhumq.client.push_consumer import PushConsumer

__all__ = ["Consumer", "Producer", "PushConsumer", "RecordMetadata", "Worker"]

# Imported on first use, as those of `zhumq`.
_HOMES = {
    "Consumer": "zhumq.client.async_consumer",
    "Producer": "zhumq.client.async_producer",
    "RecordMetadata": "zhumq.client.async_producer",
    "Worker": "zhumq.client.async_worker",
}


def __getattr__(name: str) -> Any:
    if name == "PushConsumer":
        return import_module("zhumq").PushConsumer  # It is async, and a stand-in without grpcio.
    if name not in _HOMES:
        raise AttributeError(f"module 'zhumq.aio' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
