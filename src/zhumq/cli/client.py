"""Kafka clients of the commands: settings, a reachability check, and errors that name what to do."""

import contextlib
import queue
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ClusterMetadata, NewTopic, TopicDescription

from zhumq.cli.options import CommandFailed
from zhumq.client.dial import dial
from zhumq.client.retrying_admin import AdminRequest, RetryingAdmin
from zhumq.client.routes import quiet_settings
from zhumq.model.address import Address, parse_addresses

DEFAULT_PORT = 9092
REACH_TIMEOUT_SECONDS = 3.0  # for one address to accept a connection
ANSWER_SECONDS_MAX = 4.0  # for a broker to answer the check
GRACE_SECONDS = 0.2
ANSWER_BYTES_MAX = 1 << 20
# ApiVersions in version 0, which every Kafka broker answers:
# | size i32 | api key i16 | version i16 | correlation id i32 | client id: length i16, text |
_CORRELATION_ID = 0x7A68756D
_API_VERSIONS_REQUEST = struct.pack(">ihhih9s", 19, 18, 0, _CORRELATION_ID, 9, b"zhumq-cli")
_ANSWER_HEAD = struct.Struct(">ii")  # | size i32 | correlation id i32 |

T = TypeVar("T")


def client_settings(bootstrap: str) -> dict[str, Any]:
    """librdkafka's settings for a client that prints nothing itself."""
    return quiet_settings(bootstrap, **{"client.id": "zhumq-cli"})


def check_reachable(bootstrap: str, *, seconds: float = ANSWER_SECONDS_MAX) -> None:
    """Raise CommandFailed soon if no broker answers, where librdkafka would retry silently.

    All addresses are asked at once. One broker that answers is enough.
    """
    deadline = time.monotonic() + seconds
    asked = addresses(bootstrap)
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def ask(address: Address) -> None:
        answers.put(_fault_of(address, deadline))

    for address in asked:
        # Daemon threads: a name server that does not answer must not delay the end of the command.
        threading.Thread(target=ask, args=(address,), daemon=True).start()
    fault: str | None = "no answer in time"
    with contextlib.suppress(queue.Empty):
        for _ in asked:
            fault = answers.get(timeout=max(deadline - time.monotonic(), 0) + GRACE_SECONDS)
            if fault is None:
                return
    raise CommandFailed(
        f"no broker at {bootstrap} ({fault}): start one with `zhumq start`, "
        "or name another with --bootstrap HOST:PORT"
    )


def _fault_of(address: Address, deadline: float) -> str | None:
    """Why there is no Kafka broker at an address; None: there is one."""
    try:
        seconds = min(deadline - time.monotonic(), REACH_TIMEOUT_SECONDS)
        with dial([address], seconds=max(seconds, GRACE_SECONDS)) as connection:
            connection.sendall(_API_VERSIONS_REQUEST)
            answer = b""
            while len(answer) < _ANSWER_HEAD.size:
                connection.settimeout(max(deadline - time.monotonic(), GRACE_SECONDS))
                chunk = connection.recv(_ANSWER_HEAD.size - len(answer))
                if not chunk:
                    return "the server closed the connection: it is no Kafka broker"
                answer += chunk
    except TimeoutError:
        return "no answer in time"
    except OSError as error:
        return error.strerror or str(error)
    size, correlation_id = _ANSWER_HEAD.unpack(answer)
    if correlation_id != _CORRELATION_ID or not 0 < size <= ANSWER_BYTES_MAX:
        return "the server does not speak Kafka's protocol"
    return None


def addresses(bootstrap: str) -> list[Address]:
    """The addresses of a `HOST:PORT,HOST:PORT` list. Raises CommandFailed."""
    try:
        return parse_addresses(bootstrap, default_port=DEFAULT_PORT)
    except ValueError as reason:
        raise CommandFailed(f"--bootstrap {reason}") from None


class TopicExists(CommandFailed):
    """A topic of that name exists."""


class Cluster:
    """The brokers at an address. Repeats requests while leaders change; errors become CommandFailed."""

    def __init__(self, bootstrap: str) -> None:
        check_reachable(bootstrap)
        self._admin = RetryingAdmin(client_settings(bootstrap))

    def ask(self, doing: str, request: AdminRequest[T]) -> T:
        """The answer to a request that may be repeated."""
        with kafka_errors(doing):
            return self._admin.ask(request)

    def change(self, doing: str, request: AdminRequest[T]) -> T:
        """The result of a request that must not be carried out twice."""
        with kafka_errors(doing):
            return self._admin.change(request)

    def metadata(self) -> ClusterMetadata:
        """The topics and brokers of the cluster."""
        with kafka_errors("list topics"):
            return self._admin.metadata()

    def create_topic(self, topic: NewTopic) -> None:
        """Raises TopicExists."""
        with kafka_errors(f"create {topic.topic!r}"):
            try:
                self._admin.change(
                    lambda admin, seconds: admin.create_topics([topic], request_timeout=seconds)[
                        topic.topic
                    ].result()
                )
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                raise TopicExists(
                    f"cannot create {topic.topic!r}: it exists already: see `zhumq topic describe`"
                ) from error

    def delete_topic(self, topic: str) -> None:
        self.change(
            f"delete {topic!r}",
            lambda admin, seconds: admin.delete_topics([topic], request_timeout=seconds)[
                topic
            ].result(),
        )

    def describe_topic(self, topic: str) -> TopicDescription:
        """The description of a topic. Asking never creates it."""
        names = TopicCollection([topic])
        with kafka_errors(f"describe {topic!r}"):
            try:
                found: TopicDescription = self._admin.ask(
                    lambda admin, seconds: admin.describe_topics(names, request_timeout=seconds)[
                        topic
                    ].result()
                )
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                raise CommandFailed(
                    f"there is no topic {topic!r}: see `zhumq topic list`, "
                    f"or create it with `zhumq topic create {topic}`"
                ) from error
        return found


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Turn errors of the client library into CommandFailed."""
    try:
        yield
    except KafkaException as error:
        raise CommandFailed(f"cannot {doing}: {explain(error.args[0])}") from error
    except ValueError as error:  # an argument that the library refuses
        raise CommandFailed(f"cannot {doing}: {error}") from error


def explain(error: KafkaError) -> str:
    """The error and what to do, in one line."""
    advice = {
        "_TIMED_OUT": "the broker did not answer in time: look at its log",
        "_TRANSPORT": "the connection was lost: is the broker still running?",
        "_ALL_BROKERS_DOWN": "the connection was lost: is the broker still running?",
        "_MSG_TIMED_OUT": "the broker did not take the message in time: look at its log",
        "_UNKNOWN_TOPIC": "there is no such topic: create it with `zhumq topic create`",
        "UNKNOWN_TOPIC_OR_PART": "there is no such topic or partition: see `zhumq topic list`",
        "_UNKNOWN_PARTITION": "there is no such partition: see `zhumq topic describe`",
        "GROUP_ID_NOT_FOUND": "there is no such group: see `zhumq group list`",
        "NON_EMPTY_GROUP": "the group has members: stop its consumers first",
        "UNKNOWN_MEMBER_ID": "the group has members: stop its consumers first",
        "MSG_SIZE_TOO_LARGE": "the message is larger than max.message.bytes of the topic",
    }
    return advice.get(error.name(), f"{error.str()} ({error.name().lstrip('_')})")
