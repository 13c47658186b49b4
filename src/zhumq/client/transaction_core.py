"""The state of a transactional producer: its id and epoch, its sequences, what may follow. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final

from zhumq.client.errors import ProducerFenced, TransactionAborted, TransactionMisuse
from zhumq.client.group_metadata import GroupMetadata
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode, ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.producers import InitProducerIdRequest
from zhumq.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from zhumq.records.batch import increment_sequence

NO_PRODUCER: Final = (-1, -1)
# KIP-939: a prepared transaction does not time out.
NEVER_MS: Final = 2**31 - 1


class Phase(Enum):
    """What a producer is doing."""

    NEW = "has no producer id, or has to ask for the next epoch"
    READY = "has no open transaction"
    OPEN = "has an open transaction"
    FAILED = "has an open transaction that can only be aborted"
    PREPARED = "has a prepared transaction"
    FENCED = "was replaced by another producer"


class Verdict(Enum):
    """What an error code means for a transaction."""

    DONE = "no error"
    RETRY = "the same request may succeed later"
    ABORT = "the transaction has to be aborted; the next one may succeed"
    FENCED = "the epoch is not the newest one of the transactional id"
    REFUSED = "no request of this producer can succeed"


_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_REFUSED: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


def verdict_of(code: int) -> Verdict:
    """What an error code means, in an answer to any request of a transaction."""
    # The broker has the batch already, from an attempt whose answer was lost.
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.DONE
    if code in _FENCED:
        return Verdict.FENCED
    if code in RETRIABLE_CODES:
        return Verdict.RETRY
    return Verdict.REFUSED if code in _REFUSED else Verdict.ABORT


class TransactionRefused(ZhumqError):
    """A broker refused a request of a transaction, and a retry does not help."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.verdict = verdict_of(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedState:
    """A prepared transaction. Its text form, `str(state)`, is for the database that decides about it.

    >>> from zhumq import PreparedState
    >>> PreparedState.parse("4000:7")
    PreparedState(producer_id=4000, producer_epoch=7)
    """

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @staticmethod
    def parse(text: str) -> "PreparedState":
        """The state with this text form. Raises ValueError."""
        producer_id, _, epoch = text.partition(":")
        if not all(each.isascii() and each.isdecimal() for each in (producer_id, epoch)):
            raise ValueError(f"a prepared state is PRODUCER_ID:EPOCH, not {text[:100]!r}")
        return PreparedState(producer_id=int(producer_id), producer_epoch=int(epoch))


class Outcome(StrEnum):
    """How `complete` ended a prepared transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    NOTHING = "nothing was prepared"  # or it had been completed before


class TransactionCore:
    """Decides which requests a transactional producer sends, and what their answers change.

    With transaction version 1 (KIP-98) partitions are added before they are written to, and an epoch lasts for many
    transactions. With version 2 (KIP-890) producing adds partitions, and each end of a transaction raises the epoch.
    """

    def __init__(self, transactional_id: str, *, timeout_ms: int, two_phase: bool) -> None:
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        self._producer = NO_PRODUCER
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._added_groups: set[str] = set()
        self._has_begun = False  # The coordinator may know of the open transaction.
        self._is_sequence_unsure = False  # A batch was given up, and the broker may have it.
        self.version = 1
        self.phase = Phase.NEW
        self.failure = ""  # why the open transaction can only be aborted
        self.prepared: PreparedState | None = None

    @property
    def producer_id(self) -> int:
        return self._producer[0]

    @property
    def producer_epoch(self) -> int:
        return self._producer[1]

    # The producer id

    def init_request(self, *, keep_prepared: bool = False) -> InitProducerIdRequest:
        """Asks for the producer id, or for the next epoch. `keep_prepared`: a prepared transaction stays (KIP-939)."""
        return InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=NEVER_MS if self._two_phase else self._timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            enable2_pc=self._two_phase,
            keep_prepared_txn=keep_prepared,
        )

    def on_init(self, response: Any) -> None:
        """The coordinator gave this producer its id and epoch."""
        self._set_producer(response.producer_id, response.producer_epoch)
        ongoing = (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        if ongoing == NO_PRODUCER:
            self._close(Phase.READY)
        else:
            self._close(Phase.PREPARED)
            self.prepared = PreparedState(producer_id=ongoing[0], producer_epoch=ongoing[1])
            self._has_begun = True

    def on_fenced(self) -> ProducerFenced:
        """The producer is of no use any more. The error to raise."""
        self.phase = Phase.FENCED
        return self._fenced()

    # The open transaction

    def begin(self) -> None:
        if self.phase is Phase.FENCED:
            raise self._fenced()
        if self.phase is not Phase.READY:
            raise self._misuse("begin a transaction")
        self.phase = Phase.OPEN

    def check_open(self) -> None:
        """Raise unless messages and offsets may join the transaction."""
        if self.phase is Phase.OPEN:
            return
        if self.phase is Phase.FENCED:
            raise self._fenced()
        if self.phase is Phase.FAILED:
            raise TransactionAborted(self.failure)
        raise self._misuse("send in a transaction")

    def fail(self, reason: str, *, is_sequence_unsure: bool = False) -> None:
        """The open transaction can only be aborted. `is_sequence_unsure`: a batch was given up."""
        self._is_sequence_unsure |= is_sequence_unsure
        if self.phase is Phase.OPEN:
            self.phase = Phase.FAILED
            self.failure = reason

    def take_sequence(self, place: TopicPartition, count: int) -> int:
        """The sequence of the next batch of a partition, which has so many records."""
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = increment_sequence(sequence, count)
        return sequence

    def add_request(self, places: Iterable[TopicPartition]) -> AddPartitionsToTxnRequest | None:
        """Adds partitions to the transaction. None: they need not be added."""
        self._has_begun = True
        if self.version >= 2 or not (new := sorted(set(places) - self._added)):
            return None
        topics: dict[str, list[int]] = {}
        for place in new:
            topics.setdefault(place.topic, []).append(place.partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def on_added(self, places: Iterable[TopicPartition]) -> None:
        self._added.update(places)

    def add_offsets_request(self, group: str) -> AddOffsetsToTxnRequest | None:
        """Adds the offsets of a group to the transaction. None: they need not be added."""
        self._has_begun = True
        if self.version >= 2 or group in self._added_groups:
            return None
        return AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group,
        )

    def on_group_added(self, group: str) -> None:
        self._added_groups.add(group)

    def offsets_request(
        self, metadata: GroupMetadata, offsets: Mapping[TopicPartition, int]
    ) -> TxnOffsetCommitRequest:
        """Commits offsets with the transaction, if the consumer still has its generation (KIP-447)."""
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for place, offset in offsets.items():
            topics.setdefault(place.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=place.partition, committed_offset=offset
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=metadata.group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=metadata.generation,
            member_id=metadata.member,
            group_instance_id=metadata.instance,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    # The end

    def prepare(self) -> PreparedState:
        """Everything was sent: only `complete` ends the transaction."""
        if not self._two_phase:
            raise TransactionMisuse("prepare() needs a producer with two_phase=True")
        if self.phase is not Phase.OPEN:
            raise self._misuse("prepare a transaction")
        self.phase = Phase.PREPARED
        self.prepared = PreparedState(
            producer_id=self.producer_id, producer_epoch=self.producer_epoch
        )
        return self.prepared

    def is_commit(self, state: PreparedState | None) -> bool:
        """Whether to commit the prepared transaction: the given one is the same (KIP-939)."""
        if self.phase is Phase.FENCED:
            raise self._fenced()
        if self.phase is not Phase.PREPARED:
            raise self._misuse("complete a prepared transaction")
        return state == self.prepared

    def end_request(self, *, is_commit: bool) -> EndTxnRequest | None:
        """Ends the transaction. None: the coordinator knows of none."""
        if not self._has_begun:
            return None
        return EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=is_commit,
        )

    def on_end(self, response: Any | None) -> None:
        """The transaction has ended. None: the coordinator was not asked."""
        is_unsure = self._is_sequence_unsure
        if response is not None and response.producer_id != NO_PRODUCER[0]:
            self._set_producer(response.producer_id, response.producer_epoch)
            is_unsure = False
        # KIP-360: the next epoch begins with sequence 0.
        self._close(Phase.NEW if is_unsure else Phase.READY)

    def on_end_unknown(self) -> None:
        """The coordinator did not answer: asking for the next epoch ends the transaction if it is open."""
        self._close(Phase.NEW)

    def _set_producer(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._producer = (producer_id, epoch)
            self._sequences.clear()

    def _close(self, phase: Phase) -> None:
        self.phase = phase
        self.failure = ""
        self.prepared = None
        self._has_begun = False
        self._is_sequence_unsure = False
        self._added.clear()
        self._added_groups.clear()

    def _fenced(self) -> ProducerFenced:
        return ProducerFenced(
            f"another producer has begun with the transactional id {self._transactional_id!r}, or the"
            " brokers have forgotten it: this producer cannot go on"
        )

    def _misuse(self, doing: str) -> TransactionMisuse:
        return TransactionMisuse(f"cannot {doing}: the producer {self.phase.value}")


def worst(codes: Sequence[int]) -> int:
    """The code with the gravest verdict among those of a response."""
    order = (Verdict.DONE, Verdict.RETRY, Verdict.ABORT, Verdict.REFUSED, Verdict.FENCED)
    return max(codes, key=lambda code: order.index(verdict_of(code)), default=ErrorCode.NONE)
