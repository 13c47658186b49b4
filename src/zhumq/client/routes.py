"""Broker addresses: parses lists of them, and finds the push listeners behind a Kafka address."""

import logging
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType

from zhumq.client.errors import PushUnavailable, RequestFailed
from zhumq.client.retrying_admin import RetryingAdmin
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.client.waiting import Waiting
from zhumq.model import address

PUSH_SETTING: Final = "advertised.push.listener"
PUSH_OFF: Final = "off"
REQUEST_SECONDS_MAX: Final = 10.0
ENDPOINT_SECONDS_MIN: Final = 5.0  # so that a slow broker is not left out


def parse_addresses(text: str) -> list[str]:
    """The addresses of a `HOST:PORT,HOST:PORT` list, each as gRPC takes it. Raises ValueError."""
    return [str(each) for each in address.parse_addresses(text)]


def find_push_addresses(bootstrap: str, security: ClientSecurity = PLAINTEXT) -> dict[int, str]:
    """Ask the brokers behind a Kafka address for their push listeners, by broker id. Blocks: run it in
    a thread."""
    waiting = Waiting(bootstrap, security)
    admin = RetryingAdmin(
        quiet_settings(bootstrap, security, error_cb=waiting.on_error), waiting.raise_if_refused
    )
    try:
        found = admin.ask(_push_addresses)
    except KafkaException as error:
        message = waiting.explain(
            f"cannot ask {bootstrap} for push listeners: {error.args[0].str()}"
        )
        raise RequestFailed(message) from error
    if not found:
        raise PushUnavailable(
            f"the brokers at {bootstrap} do not push: is grpcio installed there"
            " (pip install 'zhumq[push]')?"
        )
    return found


def _push_addresses(admin: AdminClient, seconds: float) -> dict[int, str]:
    # Not the metadata of all topics, of which there may be many.
    nodes = admin.describe_cluster(request_timeout=seconds).result().nodes
    brokers = sorted(node.id for node in nodes)
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
    futures: list[Future[dict[str, ConfigEntry]]] = []
    retry_seconds = max(seconds, ENDPOINT_SECONDS_MIN)
    for resource in resources:  # one request each: a broker answers only for itself
        futures += admin.describe_configs([resource], request_timeout=retry_seconds).values()
    found: dict[int, str] = {}
    reason: KafkaException | None = None
    for broker, future in zip(brokers, futures, strict=True):
        try:
            entry = future.result().get(PUSH_SETTING)
        except KafkaException as error:
            reason = error  # A broker that is down delivers nothing.
            continue
        if entry is not None and entry.value and entry.value != PUSH_OFF:
            found[broker] = entry.value
    if not found and reason is not None:
        raise reason
    return found


def _silent_logger() -> logging.Logger:
    """A logger that drops librdkafka's log lines: the client raises the errors that matter."""
    logger = logging.getLogger("zhumq.client.librdkafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def _security_settings(security: ClientSecurity) -> dict[str, Any]:
    if security == PLAINTEXT:
        return {}
    # Imported here: a client without security needs no certificates and tokens.
    from zhumq.client.kafka_settings import security_settings  # noqa: PLC0415

    return security_settings(security)


def _ignore(error: Any) -> None:
    """Ignore an error: librdkafka retries by itself and raises what it gives up on."""
    del error


def quiet_settings(
    bootstrap: str, security: ClientSecurity = PLAINTEXT, **settings: Any
) -> dict[str, Any]:
    """librdkafka's settings for a client that raises errors instead of printing them."""
    return {
        **_security_settings(security),
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "error_cb": _ignore,
        "logger": _silent_logger(),
        # librdkafka's default of 10 s delays a client after a broker restart.
        "reconnect.backoff.max.ms": 1_000,
    } | settings
