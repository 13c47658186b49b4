"""Where brokers are: addresses as people write them, and the push doors behind a Kafka address."""

import logging
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType

from zhumq.client.errors import PushUnavailable, RequestFailed
from zhumq.client.retrying_admin import RetryingAdmin
from zhumq.client.waiting import Waiting
from zhumq.model import address

PUSH_SETTING: Final = "advertised.push.listener"
PUSH_OFF: Final = "off"
REQUEST_SECONDS_MAX: Final = 10.0
ENDPOINT_SECONDS_MIN: Final = 5.0  # a broker that is only slow is not left out


def parse_addresses(text: str) -> list[str]:
    """The addresses of a `HOST:PORT,HOST:PORT` list, each as gRPC takes it. Raises ValueError."""
    return [str(each) for each in address.parse_addresses(text)]


def find_push_addresses(bootstrap: str) -> dict[int, str]:
    """Ask the brokers behind a Kafka address for their push listeners, by broker id. Blocks: run it in
    a thread."""
    waiting = Waiting(bootstrap)
    admin = RetryingAdmin(quiet_settings(bootstrap, error_cb=waiting.on_error))
    try:
        found = admin.ask(_push_addresses)
    except KafkaException as error:
        message = waiting.explain(f"cannot ask {bootstrap}: {error.args[0].str()}")
        raise RequestFailed(message) from error
    if not found:
        raise PushUnavailable(
            f"the brokers at {bootstrap} do not push: is grpcio installed there"
            " (pip install 'zhumq[push]')?"
        )
    return found


def _push_addresses(admin: AdminClient, seconds: float) -> dict[int, str]:
    brokers = sorted(admin.list_topics(timeout=seconds).brokers)
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
    futures: list[Future[dict[str, ConfigEntry]]] = []
    retry_seconds = max(seconds, ENDPOINT_SECONDS_MIN)
    for resource in resources:  # one request each: a broker answers for itself alone
        futures += admin.describe_configs([resource], request_timeout=retry_seconds).values()
    found: dict[int, str] = {}
    reason: KafkaException | None = None
    for broker, future in zip(brokers, futures, strict=True):
        try:
            entry = future.result().get(PUSH_SETTING)
        except KafkaException as error:
            reason = error  # One that is down has nothing to deliver anyway.
            continue
        if entry is not None and entry.value and entry.value != PUSH_OFF:
            found[broker] = entry.value
    if not found and reason is not None:
        raise reason
    return found


def _silent_logger() -> logging.Logger:
    """librdkafka's own words are for its developers; what matters is raised."""
    logger = logging.getLogger("zhumq.client.librdkafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def _ignore(error: Any) -> None:
    """librdkafka tries again by itself; what it gives up on is raised."""
    del error


def quiet_settings(bootstrap: str, **settings: Any) -> dict[str, Any]:
    """librdkafka's settings for a client that raises errors rather than print them."""
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "error_cb": _ignore,
        "logger": _silent_logger(),
        # The broker is near or absent; librdkafka's 10 s ceiling only makes a person wait.
        "reconnect.backoff.max.ms": 1_000,
    } | settings
