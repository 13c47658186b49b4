"""The transactional producer: messages and offsets that appear together or not at all, in one phase or in two."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, Protocol, Self

from zhumq.client.batch_sender import VERSION_WITHOUT_ADDING, BatchSender
from zhumq.client.brokers import Brokers, CoordinatorKind, name_of_error
from zhumq.client.errors import (
    ClientError,
    ClusterFailed,
    OutcomeUnknown,
    ProducerFenced,
    RequestFailed,
    TransactionAborted,
    TransactionMisuse,
)
from zhumq.client.group_metadata import GroupMetadata
from zhumq.client.message import HeaderPairs
from zhumq.client.security import Security, as_security
from zhumq.client.transaction_core import (
    Outcome,
    Phase,
    PreparedState,
    TransactionCore,
    TransactionRefused,
    Verdict,
    verdict_of,
    worst,
)
from zhumq.client.transaction_writer import TransactionWriter
from zhumq.client.wire import BrokerUnusable, Connection
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.records.codecs import Compression

logger = logging.getLogger("zhumq.client")

TIMEOUT_MS_DEFAULT: Final = 60_000  # of an open transaction
SECONDS_MAX_DEFAULT: Final = 60.0
TRANSACTION_VERSION: Final = "transaction.version"
# KIP-890: the first version of EndTxn that raises the epoch, and of TxnOffsetCommit that needs no AddOffsetsToTxn.
VERSION_TWO: Final = 5
INIT_VERSION_TWO_PHASE: Final = 6  # KIP-939

FAILURES: Final = (TransactionRefused, ClusterFailed)
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class Reading(Protocol):
    """A consumer whose positions are committed with a transaction."""

    def metadata(self) -> GroupMetadata: ...

    def positions(self) -> Mapping[TopicPartition, int]:
        """The offsets after the messages that the program got since the last transaction."""

    def mark_committed(self) -> None: ...

    def rewind(self) -> None:
        """Read again what was not committed."""


class Transaction:
    """An open transaction: what is sent into it appears with its commit, or never."""

    def __init__(
        self, producer: "TransactionalProducer", core: TransactionCore, writer: TransactionWriter
    ) -> None:
        self._producer = producer
        self._core = core
        self._writer = writer

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a message. Its partition is the given one, else the key's, else any."""
        self._core.check_open()
        pairs = _encoded(headers) if headers else ()
        try:
            self._writer.append(topic, value, key, pairs, partition, timestamp_ms)
        except FAILURES as error:
            raise self._producer.fail(error) from error

    def send_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Add many messages, with as many keys or without keys: faster than one by one."""
        self._core.check_open()
        try:
            self._writer.extend(topic, values, keys, partition, timestamp_ms)
        except FAILURES as error:
            raise self._producer.fail(error) from error

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction, if the member still has its generation (KIP-447)."""
        self._producer.send_offsets(offsets, metadata)


class TransactionalProducer:
    """Sends messages in transactions: all messages of a block appear at its end, in all topics, or none does.

    An exception in the block aborts. With a consumer, its positions are part of the transaction: a message is
    read, processed and answered exactly once. A second producer with the same `transactional_id` fences the
    first one. For one thread at a time.

    >>> import zhumq
    >>> with zhumq.TransactionalProducer(bootstrap, transactional_id="docs-orders") as producer:
    ...     with producer.transaction() as transaction:
    ...         transaction.send("orders", b"one order", key=b"customer-7")
    ...         transaction.send("bills", b"and its bill", key=b"customer-7")

    In two phases (KIP-939) `prepare()` makes the transaction durable, and a database decides about it: `complete`
    commits it if the given state is that of the prepared transaction, and aborts it otherwise, after a crash as well.
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        transactional_id: str,
        two_phase: bool = False,
        transaction_timeout_ms: int = TIMEOUT_MS_DEFAULT,
        compression: CompressionName = "none",
        seconds_max: float = SECONDS_MAX_DEFAULT,
        security: Security = None,
    ) -> None:
        """The brokers abort a transaction that is open for `transaction_timeout_ms`, unless it is of a producer with
        `two_phase`. `seconds_max` is how long a call waits for brokers that do not answer."""
        if not transactional_id:
            raise ValueError("transactional_id is empty")
        if transaction_timeout_ms < 1 or seconds_max <= 0:
            raise ValueError("transaction_timeout_ms is at least 1, and seconds_max above 0")
        if compression.upper() not in Compression.__members__:
            raise ValueError(f"compression is none, gzip, snappy, lz4 or zstd, not {compression!r}")
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._two_phase = two_phase
        self._brokers = Brokers(
            bootstrap,
            client_id="zhumq-transactions",
            retry_seconds_max=seconds_max,
            request_seconds_max=seconds_max,
            security=as_security(security),
            creates_topics=True,
        )
        self._core = TransactionCore(
            transactional_id, timeout_ms=transaction_timeout_ms, two_phase=two_phase
        )
        self._reading: Reading | None = None  # of the open transaction
        self._sender = BatchSender(
            self._brokers,
            transactional_id=transactional_id,
            seconds_max=seconds_max,
            before_sending=self._add_partitions,
        )
        self._writer = TransactionWriter(
            self._brokers,
            self._core,
            self._sender,
            compression=Compression[compression.upper()],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. A prepared transaction stays prepared."""
        if self._core.phase in (Phase.OPEN, Phase.FAILED):
            self._abort_quietly()
        self._sender.close()
        self._brokers.close()

    def connect(self, *, keep_prepared: bool = False) -> PreparedState | None:
        """Fence earlier producers with this transactional id, and abort what they left open, prepared or not.
        Otherwise the first transaction does.

        `keep_prepared` leaves it open and returns its state: only `complete` may follow. None: nothing is open.
        """
        if self._core.phase is Phase.NEW:
            self._initialize(keep_prepared=keep_prepared)
        return self._core.prepared

    # Transactions

    @contextmanager
    def transaction(self, consumer: Reading | None = None) -> Iterator[Transaction]:
        """A block whose messages are committed together at its end, or aborted if it raises.

        With a consumer, the offsets of the messages that it returned since its last transaction are committed
        together with them; after an abort the consumer returns these messages again. A block that has called
        `prepare()` ends with its transaction prepared.
        """
        self.connect()
        self._core.begin()
        self._writer.begin()
        self._reading = consumer
        try:
            yield Transaction(self, self._core, self._writer)
        except BaseException:
            self._abort_quietly()
            if consumer is not None and self._core.phase is not Phase.PREPARED:
                consumer.rewind()
            raise
        if self._core.phase is not Phase.PREPARED:
            self._commit(consumer)

    def prepare(self) -> PreparedState:
        """Make the open transaction durable: from now on only `complete` ends it, whatever fails."""
        if self._reading is not None:
            raise TransactionMisuse(
                "a prepared transaction takes offsets by transaction.commit_offsets, not a consumer"
            )
        self._flush()
        return self._core.prepare()

    def complete(self, state: PreparedState | None) -> Outcome:
        """Commit the prepared transaction if `state` is its state, else abort it; None aborts it.

        This is safe to repeat, and in another process with the same transactional id, which fences this one.
        """
        self.connect(keep_prepared=True)
        if self._core.phase is Phase.READY:
            return Outcome.NOTHING
        is_commit = self._core.is_commit(state)
        self._end(is_commit=is_commit)
        return Outcome.COMMITTED if is_commit else Outcome.ABORTED

    # Of an open transaction, called by Transaction

    def fail(self, error: TransactionRefused | ClusterFailed) -> ClientError:
        """The open transaction can only be aborted. The error to raise."""
        if isinstance(error, TransactionRefused) and error.verdict is Verdict.FENCED:
            return self._after_fencing(error)
        self._core.fail(str(error), is_sequence_unsure=True)
        if isinstance(error, TransactionRefused) and error.verdict is Verdict.REFUSED:
            return RequestFailed(str(error))
        return TransactionAborted(str(error))

    def send_offsets(self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata) -> None:
        self._core.check_open()
        if not offsets:
            return
        try:
            adding = self._core.add_offsets_request(metadata.group)
            if adding is not None:
                self._ask(ApiKey.ADD_OFFSETS_TO_TXN, adding, "add offsets", _code)
                self._core.on_group_added(metadata.group)
            request = self._core.offsets_request(metadata, offsets)
            doing = f"commit offsets of the group {metadata.group!r}"
            self._ask(ApiKey.TXN_OFFSET_COMMIT, request, doing, _offset_code, group=metadata.group)
        except FAILURES as error:
            raise self.fail(error) from error

    # Ends

    def _flush(self) -> None:
        self._core.check_open()
        try:
            self._writer.seal_all()
            self._sender.flush()
        except FAILURES as error:
            raise self.fail(error) from error

    def _commit(self, consumer: Reading | None) -> None:
        try:
            self._core.check_open()
            if consumer is not None:
                positions = consumer.positions()
                if positions:
                    self.send_offsets(positions, consumer.metadata())
            self._flush()
            self._end(is_commit=True)
        except BaseException as error:
            if not isinstance(error, OutcomeUnknown):
                self._abort_quietly()
            if consumer is not None:
                consumer.rewind()  # to what is committed
            raise
        if consumer is not None:
            consumer.mark_committed()

    def _abort_quietly(self) -> None:
        """Abort what is open. An error is logged: the one that led here is raised."""
        self._writer.clear()
        if self._sender.give_up():
            self._core.fail("batches were given up", is_sequence_unsure=True)
        if self._core.phase not in (Phase.OPEN, Phase.FAILED):
            return
        try:
            self._end(is_commit=False)
        except ClientError as error:
            logger.warning("a transaction of %s was not aborted: %s", self._transactional_id, error)

    def _end(self, *, is_commit: bool) -> None:
        request = self._core.end_request(is_commit=is_commit)
        if request is None:
            self._core.on_end(None)
            return
        doing = "commit a transaction" if is_commit else "abort a transaction"
        was_prepared = self._core.phase is Phase.PREPARED
        attempts = _Attempts()
        try:
            response = self._ask(ApiKey.END_TXN, request, doing, _code, attempts=attempts)
        except ClusterFailed as error:
            if not was_prepared:
                self._core.on_end_unknown()
            raise OutcomeUnknown(str(error)) from error
        except TransactionRefused as refusal:
            if was_prepared:  # It is not this producer's to abort.
                if refusal.verdict is Verdict.FENCED:
                    raise self._core.on_fenced() from refusal
                raise RequestFailed(str(refusal)) from refusal
            self._core.on_end_unknown()
            if refusal.verdict is Verdict.FENCED:
                self._initialize()  # Raises ProducerFenced, unless the transaction's time was up (KIP-588).
            if refusal.verdict is Verdict.REFUSED:
                raise RequestFailed(str(refusal)) from refusal
            if is_commit and attempts.count > 1:
                raise OutcomeUnknown(str(refusal)) from refusal
            raise TransactionAborted(str(refusal)) from refusal
        self._core.on_end(response)

    # Requests

    def _initialize(self, *, keep_prepared: bool = False) -> None:
        doing = f"begin with the transactional id {self._transactional_id!r}"
        request = self._core.init_request(keep_prepared=keep_prepared)
        had_id = self._core.producer_id >= 0
        try:
            response = self._ask(ApiKey.INIT_PRODUCER_ID, request, doing, _code)
        except TransactionRefused as refusal:
            if refusal.verdict is Verdict.FENCED or (had_id and refusal.verdict is Verdict.ABORT):
                raise self._core.on_fenced() from None
            hint = ""
            if self._two_phase and refusal.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                hint = "; two_phase needs transaction.two.phase.commit.enable=true at the brokers"
            raise RequestFailed(f"{refusal}{hint}") from None
        self._core.on_init(response)

    def _add_partitions(self, places: Iterable[TopicPartition]) -> None:
        request = self._core.add_request(places)
        if request is not None:
            self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, "add partitions", _partition_code)
            self._core.on_added(places)

    def _ask(
        self,
        key: ApiKey,
        request: Any,
        doing: str,
        code_of: Callable[[Any], int],
        *,
        group: str | None = None,
        attempts: "_Attempts | None" = None,
    ) -> Any:
        """The answer of a coordinator, of the transactional id or of a group. Raises TransactionRefused."""

        def ask() -> Any:
            if group is not None:
                connection = self._brokers.coordinator(group)
            else:
                connection = self._brokers.coordinator(
                    self._transactional_id, CoordinatorKind.TRANSACTION
                )
            if key is ApiKey.INIT_PRODUCER_ID:
                self._learn_version(connection)
            version = self._version(connection, key)
            if attempts is not None:
                attempts.count += 1
            response = connection.ask(key, request, version)
            code = code_of(response)
            verdict = verdict_of(code)
            if verdict is Verdict.RETRY:
                self._brokers.check(code, doing)
            if verdict is not Verdict.DONE:
                raise TransactionRefused(code, f"cannot {doing}: {name_of_error(code)}")
            return response

        try:
            return self._brokers.retrying(ask, doing)
        except BrokerUnusable as error:
            raise RequestFailed(f"the brokers at {self._bootstrap}: {error}") from error

    def _learn_version(self, connection: Connection) -> None:
        level = connection.finalized_features().get(TRANSACTION_VERSION, 0)
        has_versions = (
            connection.version_of(ApiKey.END_TXN) >= VERSION_TWO
            and connection.version_of(ApiKey.PRODUCE) >= VERSION_WITHOUT_ADDING
        )
        version = 2 if level >= 2 and has_versions else 1
        if version != self._core.version:
            self._core.version = version
            self._sender.set_transaction_version(version)

    def _version(self, connection: Connection, key: ApiKey) -> int:
        version = connection.version_of(key)
        if key is ApiKey.INIT_PRODUCER_ID:
            if not self._two_phase:
                return min(version, INIT_VERSION_TWO_PHASE - 1)
            if version < INIT_VERSION_TWO_PHASE:
                raise RequestFailed(
                    f"the brokers at {self._bootstrap} have no two-phase commit (KIP-939)"
                )
        if key in (ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT) and self._core.version < 2:
            return min(version, VERSION_TWO - 1)
        return version

    def _after_fencing(self, refusal: TransactionRefused) -> ClientError:
        """Tell a producer that was replaced from one whose transaction's time was up (KIP-588)."""
        self._writer.clear()
        self._sender.give_up()
        self._core.on_end_unknown()
        try:
            self._initialize()
        except ProducerFenced as error:
            return error
        return TransactionAborted(f"the coordinator has aborted the transaction: {refusal}")


class _Attempts:
    """How often a request was sent."""

    count = 0


def _code(response: Any) -> int:
    return int(response.error_code)


def _partition_code(response: Any) -> int:
    return worst(
        [
            result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
    )


def _offset_code(response: Any) -> int:
    return worst([result.error_code for topic in response.topics for result in topic.partitions])


def _encoded(headers: HeaderPairs) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
    )
