"""The topic `_schemas`: read as its caller may, and written with a fence, so that of several writers one goes first."""

import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, AlreadyExists, Refused, Unavailable
from zhumq.admin.settings import topic_settings
from zhumq.admin.topics import create_topic
from zhumq.client.brokers import Brokers, RetriableFailure, TopicMissing, name_of_error
from zhumq.client.errors import RequestFailed
from zhumq.client.transactional_producer import TransactionalProducer
from zhumq.client.wire import Connection
from zhumq.model.errors import CorruptMessage, ErrorCode, ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.records.batch import decode_payload
from zhumq.records.sections import AbortedTransactions, section_of, whole_batches
from zhumq.schemas.log_records import TOPIC

# A writer begins with this transactional id, and ends every writer before it: they need the right to write to it.
TRANSACTIONAL_ID: Final = "zhumq-schemas"
TRANSACTION_TIMEOUT_MS: Final = 10_000  # of a writer that died in the middle
READ_SECONDS_MAX: Final = 8.0
WRITE_SECONDS_MAX: Final = 15.0
FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
REPLICAS_MAX: Final = 3
_PLACE: Final = TopicPartition(TOPIC, 0)
_FETCH_VERSION: Final = 13  # with the id of the topic: one that was created again is another
_READ_COMMITTED: Final = 1
_GONE: Final = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

KeyValue = tuple[bytes | None, bytes | None]


class LogGone(ZhumqError):
    """The topic is not the one that was read before, or has lost messages: what was read of it is void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Messages of the log from an offset on, with theirs; where it goes on; and where it ends."""

    topic_id: str
    messages: list[tuple[int, KeyValue]]
    next_offset: int
    stable_offset: int  # up to which transactions have ended
    end_offset: int

    @property
    def is_at_end(self) -> bool:
        return self.next_offset >= self.stable_offset


class SchemaLink:
    """A caller's way to the log: its rights are those of the connection. One request uses it at a time."""

    def __init__(self, connection: ClusterConnection, *, client_id: str = "zhumq-schemas") -> None:
        self.connection = connection
        self._brokers = Brokers(
            connection.bootstrap,
            client_id=client_id,
            retry_seconds_max=READ_SECONDS_MAX,
            request_seconds_max=READ_SECONDS_MAX,
            security=connection.security,
        )

    def close(self) -> None:
        self._brokers.close()

    def read(self, topic_id: str | None, offset: int) -> Chunk:
        """What the log has from an offset on, at once. Raises LogGone unless it is the topic with this id.

        None: any id. Raises TopicMissing, Refused without the right to read the topic, and Unavailable.
        """
        doing = f"read {TOPIC!r}"
        try:
            return self._brokers.retrying(lambda: self._read(topic_id, offset), doing)
        except (TopicMissing, AdminError):
            raise
        except RequestFailed as error:
            raise Unavailable(str(error)) from error

    def _read(self, topic_id: str | None, offset: int) -> Chunk:
        connection = self._leader()
        found = self._brokers.topic_id(TOPIC)
        if found is None or topic_id not in (None, found):
            self._brokers.forget()
            raise LogGone
        request = FetchRequest(
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=_READ_COMMITTED,
            topics=[
                FetchTopic(
                    topic_id=uuid.UUID(found),
                    partitions=[
                        FetchPartition(fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
                    ],
                )
            ],
        )
        response = connection.ask(ApiKey.FETCH, request, _FETCH_VERSION)
        self._check(response.error_code)
        answer = response.responses[0].partitions[0]
        self._check(answer.error_code)
        aborted = AbortedTransactions(
            (each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
        )
        messages: list[tuple[int, KeyValue]] = []
        next_offset = offset
        try:
            for batch in whole_batches(bytes(answer.records or b"")):
                next_offset = batch.header.next_offset
                if aborted.hides(batch):
                    continue
                section = section_of(batch)
                messages += (
                    (each.offset, (each.key, each.value))
                    for each in decode_payload(section.header, bytes(section.payload))
                    if each.offset >= offset
                )
        except CorruptMessage as error:
            raise Unavailable(f"{TOPIC} cannot be read: {error}") from None
        return Chunk(
            topic_id=found,
            messages=messages,
            next_offset=max(next_offset, offset),
            stable_offset=answer.last_stable_offset,
            end_offset=answer.high_watermark,
        )

    def _leader(self) -> Connection:
        try:
            return self._brokers.leader(_PLACE)
        except (TopicMissing, RetriableFailure):
            raise
        except RequestFailed as error:
            if ErrorCode.TOPIC_AUTHORIZATION_FAILED.name in str(error):
                raise _refused(str(error)) from error
            raise

    def _check(self, code: int) -> None:
        if code in _GONE:
            self._brokers.forget()
            raise LogGone
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise _refused(f"cannot read {TOPIC!r}: {name_of_error(code)}")
        self._brokers.check(code, f"read {TOPIC!r}")


class SchemaWriter:
    """The one writer of the log, until another one begins. One caller uses it at a time."""

    def __init__(self, connection: ClusterConnection) -> None:
        self.security = connection.security
        self._producer = TransactionalProducer(
            connection.bootstrap,
            transactional_id=TRANSACTIONAL_ID,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            seconds_max=WRITE_SECONDS_MAX,
            security=connection.security,
        )

    def begin(self) -> None:
        """End every writer before this one: what they have not committed by now never will be."""
        try:
            self._producer.connect()
        except RequestFailed as error:
            raise _write_error(error) from error

    def write(self, messages: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write messages that appear together. Raises ProducerFenced if another writer has begun since."""
        try:
            with self._producer.transaction() as transaction:
                for key, value in messages:
                    transaction.send(TOPIC, value, key=key, partition=0)
        except RequestFailed as error:
            raise _write_error(error) from error

    def close(self) -> None:
        self._producer.close()


def prepare_topic(connection: ClusterConnection) -> None:
    """Create the topic, unless it exists. Raises Refused if it is none that schemas are safe in."""
    found = connection.metadata()
    topic = found.topics.get(TOPIC)
    if topic is None:
        with contextlib.suppress(AlreadyExists):
            create_topic(
                connection,
                TOPIC,
                partitions=1,
                replicas=min(REPLICAS_MAX, len(found.brokers)),
                settings={
                    "cleanup.policy": "compact",
                    "max.message.bytes": str(MESSAGE_BYTES_MAX),
                },
            )
        return
    if len(topic.partitions) != 1:
        raise Refused(
            f"{TOPIC!r} has {len(topic.partitions)} partitions",
            "the registry needs a topic with one: delete it, if it holds no schemas",
        )
    try:
        policy = topic_settings(connection, TOPIC)["cleanup.policy"].value
    except (AdminError, KeyError):
        return  # The caller may write schemas, and not see settings.
    if policy != "compact":
        raise Refused(
            f"cleanup.policy of {TOPIC!r} is {policy}, which deletes schemas",
            f"set it with `zhumq topic alter {TOPIC} --set cleanup.policy=compact`",
        )


def _refused(failure: str) -> Refused:
    return Refused(
        failure,
        f"the user needs the right to READ the topic {TOPIC}",
        code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
    )


def _write_error(error: RequestFailed) -> AdminError:
    words = str(error)
    for code in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ):
        if code.name in words:
            return Refused(
                words,
                f"the user needs the right to WRITE the topic {TOPIC} and the transactional id {TRANSACTIONAL_ID}",
                code=code.name,
            )
    if ErrorCode.MESSAGE_TOO_LARGE.name in words:
        return Refused(words, f"raise max.message.bytes of {TOPIC}", code="MESSAGE_TOO_LARGE")
    return Unavailable(words)
