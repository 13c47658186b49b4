"""The road from a command to a broker: quiet Kafka clients, and errors that say what to do."""

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicDescription

from zhumq.cli.options import CommandFailed

DEFAULT_PORT = 9092
REACH_TIMEOUT_SECONDS = 3.0  # how long one address may take to accept a connection
REQUEST_TIMEOUT_SECONDS = 15.0  # how long the broker may take to answer one request

T = TypeVar("T")


def client_settings(bootstrap: str) -> dict[str, Any]:
    """librdkafka's settings for a client that leaves all talking to the command."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "zhumq-cli",
        "log_level": 0,
        "error_cb": _ignore_error,
        "logger": _silent_logger(),
        # The broker is near or absent; librdkafka's 10 s ceiling only makes a person wait.
        "reconnect.backoff.max.ms": 1000,
    }


def check_reachable(bootstrap: str) -> None:
    """Fail at once, and in words, where librdkafka would go on trying in silence."""
    reason: OSError | None = None
    for host, port in addresses(bootstrap):
        try:
            socket.create_connection((host, port), timeout=REACH_TIMEOUT_SECONDS).close()
        except OSError as error:
            reason = error
        else:
            return
    detail = reason.strerror if reason is not None and reason.strerror else "no answer in time"
    raise CommandFailed(
        f"no broker at {bootstrap} ({detail}): start one with `zhumq start`, "
        "or name another with --bootstrap HOST:PORT"
    )


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """The addresses of a `HOST:PORT,HOST:PORT` list."""
    found = []
    for part in bootstrap.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon:
            host, port = port, str(DEFAULT_PORT)
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise CommandFailed(f"--bootstrap wants HOST:PORT, not {part.strip()!r}")
        found.append((host.strip("[]"), int(port)))
    return found


def connect_admin(bootstrap: str) -> AdminClient:
    """An admin client of a broker that is known to accept connections."""
    check_reachable(bootstrap)
    return AdminClient(client_settings(bootstrap))


def settle(future: Future[T], doing: str) -> T:
    """The result of one admin call, or the reason in one line."""
    with kafka_errors(doing):
        return future.result(timeout=REQUEST_TIMEOUT_SECONDS * 2)


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Whatever the client library refuses becomes the one line that a command says."""
    try:
        yield
    except KafkaException as error:
        raise CommandFailed(f"cannot {doing}: {explain(error.args[0])}") from error
    except ValueError as error:  # an argument that the library does not take
        raise CommandFailed(f"cannot {doing}: {error}") from error


def list_topics(admin: AdminClient) -> ClusterMetadata:
    """The topics and brokers that there are."""
    with kafka_errors("list topics"):
        return admin.list_topics(timeout=REQUEST_TIMEOUT_SECONDS)


def describe_topic(admin: AdminClient, topic: str) -> TopicDescription:
    """What the broker knows of a topic. Asking never creates it."""
    with kafka_errors(f"describe {topic!r}"):
        futures = admin.describe_topics(
            TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_SECONDS
        )
        try:
            found: TopicDescription = futures[topic].result(timeout=REQUEST_TIMEOUT_SECONDS * 2)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            raise CommandFailed(
                f"there is no topic {topic!r}: see `zhumq topic list`, "
                f"or make it with `zhumq topic create {topic}`"
            ) from error
    return found


def explain(error: KafkaError) -> str:
    """What went wrong and what to do, in one line."""
    advice = {
        "_TIMED_OUT": "the broker did not answer in time: look at its log",
        "_TRANSPORT": "the connection was lost: is the broker still running?",
        "_ALL_BROKERS_DOWN": "the connection was lost: is the broker still running?",
        "_MSG_TIMED_OUT": "the broker did not take the message in time: look at its log",
        "_UNKNOWN_TOPIC": "there is no such topic: make it with `zhumq topic create`",
        "UNKNOWN_TOPIC_OR_PART": "there is no such topic or partition: see `zhumq topic list`",
        "TOPIC_ALREADY_EXISTS": "it exists already: see `zhumq topic describe`",
        "_UNKNOWN_PARTITION": "there is no such partition: see `zhumq topic describe`",
        "GROUP_ID_NOT_FOUND": "there is no such group: see `zhumq group list`",
        "NON_EMPTY_GROUP": "the group has members: stop its consumers first",
        "UNKNOWN_MEMBER_ID": "the group has members: stop its consumers first",
        "MSG_SIZE_TOO_LARGE": "the message is larger than max.message.bytes of the topic",
    }
    return advice.get(error.name(), f"{error.str()} ({error.name().lstrip('_')})")


def _ignore_error(_error: KafkaError) -> None:
    """Errors that matter come back with the call that met them."""


def _silent_logger() -> logging.Logger:
    logger = logging.getLogger("zhumq.cli.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
