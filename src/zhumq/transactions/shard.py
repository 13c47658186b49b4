"""One shard: the transactional ids of one partition of `__transaction_state`. Requests in, records and replies out."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, assert_never

from zhumq.model.deadlines import Deadlines
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Outcome, Reply, ReplyToken, StateRecord
from zhumq.transactions.persisted import (
    decode_key,
    decode_transaction,
    tombstone,
    transaction_record,
)
from zhumq.transactions.producer_epochs import Bump, is_repeated_end, next_epoch
from zhumq.transactions.requests import (
    AddPartitions,
    Answer,
    AwaitMarkers,
    DescribeTransaction,
    Description,
    EndTransaction,
    InitProducer,
    Listing,
    ListTransactions,
    MarkersWritten,
    PreparedTransactions,
    TransactionRequest,
    TransactionResponse,
)
from zhumq.transactions.transaction import (
    EPOCH_BUMPING_VERSION,
    EPOCH_MAX,
    IDLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    PREPARED,
    Transaction,
    TransactionState,
    add_partitions,
    begin_again,
    complete,
    fence,
    keep_open,
    prepare_end,
)

PREPARED_AT_ONCE_MAX: Final = 1_000  # transactions in one answer to AwaitMarkers
ENDED_AT_ONCE_MAX: Final = 1_000  # timeouts, and expired ids; the others are due at once again
# How long the record of a completion may be missing. The next transaction of a busy producer replaces it.
COMPLETION_MS_MAX: Final = 1_000
State = TransactionState
_NO_ERROR: Final = Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Limits of transactions."""

    timeout_ms_max: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    allow_two_phase_commit: bool = False  # transaction.two.phase.commit.enable


class _Turn:
    """The decision on one request, while it is made."""

    __slots__ = ("now_ms", "prepared", "records", "replies", "states")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[StateRecord] = []
        self.states: deque[tuple[StateRecord, Transaction]] = deque()
        self.replies: list[Reply[TransactionResponse]] = []
        self.prepared: list[Transaction] = []

    def write(self, transaction: Transaction) -> None:
        if transaction.state in PREPARED:
            if transaction.partitions:
                self.prepared.append(transaction)
            else:  # There are no markers to write.
                transaction = complete(transaction, self.now_ms)
        record = transaction_record(transaction)
        self.records.append(record)
        self.states.append((record, transaction))

    def outcome(self) -> Outcome[TransactionResponse]:
        return Outcome(records=tuple(self.records), replies=tuple(self.replies))


class TransactionShard:
    """The transactional ids that map to one partition. Its hard state is the last record of each id.

    A decision to commit or abort is a record. The broker that leads the shard asks for decided transactions with
    AwaitMarkers, gets each of them once its record is durable, writes the markers, and reports MarkersWritten. After a
    restart the shard hands out all decided transactions again: markers may be repeated. So a completion need not be
    a record at once: before the producer's next transaction can write anything, a record says that it is open.
    """

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings
        self.transactions: dict[str, Transaction] = {}
        self._deadlines: Deadlines[str] = Deadlines()  # of open transactions
        # Ids without a transaction, in the order of their last changes: the first one expires first.
        self._idle: OrderedDict[str, None] = OrderedDict()
        # Ids with a transaction that is open, or whose markers are missing.
        self._busy: dict[str, None] = {}
        # The records of the last decision. `replay` gets them next, and need not decode them.
        self._decided: deque[tuple[StateRecord, Transaction]] = deque()
        # The ids of decided transactions that are not handed out, in the order of the decisions.
        self._prepared: dict[str, None] = {}
        # Soft state: the request that waits for decided transactions, and the ids of those that are handed out.
        self._waiter: ReplyToken | None = None
        self._handed_out: set[str] = set()
        # Soft state: ids whose completion is not written yet -> when it has to be; in the order of the times.
        self._unwritten: dict[str, int] = {}

    def unfinished(self) -> Iterator[Transaction]:
        """Transactions that are open, or decided while markers are missing."""
        return (self.transactions[each] for each in self._busy)

    # The StateMachine interface

    @property
    def next_deadline_ms(self) -> int | None:
        due_ms = self._deadlines.next_deadline_ms
        for unwritten_ms in islice(self._unwritten.values(), 1):
            due_ms = unwritten_ms if due_ms is None else min(due_ms, unwritten_ms)
        for first in islice(self._idle, 1):
            expiry_ms = self._expiry_ms(self.transactions[first])
            due_ms = expiry_ms if due_ms is None else min(due_ms, expiry_ms)
        return due_ms

    def loaded(self, _now_ms: int) -> Outcome[TransactionResponse]:
        """The log is read. No request waits yet, and deadlines that passed meanwhile are due."""
        return Outcome()

    def handle(
        self, request: TransactionRequest, token: ReplyToken, now_ms: int
    ) -> Outcome[TransactionResponse]:
        turn = _Turn(now_ms)
        match request:
            case InitProducer():
                turn.replies.append(Reply(token, self._init(request, turn)))
            case AddPartitions():
                turn.replies.append(Reply(token, self._add(request, turn)))
            case EndTransaction():
                turn.replies.append(Reply(token, self._end(request, turn)))
            case MarkersWritten():
                turn.replies.append(Reply(token, self._complete(request, turn)))
            case AwaitMarkers():
                self._await(token, turn)
            case DescribeTransaction():
                turn.replies.append(Reply(token, self._describe(request)))
            case ListTransactions():
                turn.replies.append(Reply(token, self._list(request, now_ms)))
            case _:
                assert_never(request)
        return self._finish(turn)

    def has_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
    ) -> bool:
        """Whether AddPartitions with `verify_only` would confirm that these are in the producer's transaction."""
        current = self.transactions.get(transactional_id)
        return (
            current is not None
            and current.state is State.ONGOING
            and not current.is_kept
            and current.producer_id == producer_id
            and current.producer_epoch == producer_epoch
            and partitions <= current.partitions
        )

    def expire(self, now_ms: int) -> Outcome[TransactionResponse]:
        turn = _Turn(now_ms)
        for _ in range(ENDED_AT_ONCE_MAX):
            transactional_id = self._deadlines.pop_due(now_ms)
            if transactional_id is None:
                break
            turn.write(fence(self.transactions[transactional_id], now_ms, is_replaced=False))
        for transactional_id, due_ms in islice(self._unwritten.items(), ENDED_AT_ONCE_MAX):
            if due_ms > now_ms:
                break
            turn.write(self.transactions[transactional_id])
        for transactional_id in islice(self._idle, ENDED_AT_ONCE_MAX):
            if self._expiry_ms(self.transactions[transactional_id]) > now_ms:
                break
            turn.records.append(tombstone(transactional_id))
        return self._finish(turn)

    def replay(self, record: StateRecord, _now_ms: int) -> None:
        if self._decided and self._decided[0][0] is record:
            self._change(self._decided.popleft()[1])
            return
        transactional_id = decode_key(record.key)
        if transactional_id is None:
            return
        known = self.transactions.get(transactional_id)
        if known is not None:
            transactional_id = known.transactional_id  # one string for each id
        if record.value is None:
            self._remove(transactional_id)
            return
        transaction = decode_transaction(transactional_id, record.value)
        if transaction is not None:
            self._change(transaction)
        # Otherwise it is of a newer version, or damaged by its writer: the state before it counts.

    def _finish(self, turn: _Turn) -> Outcome[TransactionResponse]:
        self._hand_out(turn)
        self._decided = turn.states
        return turn.outcome()

    def _change(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        if transaction.state not in PREPARED:
            self._prepared.pop(transactional_id, None)
            self._handed_out.discard(transactional_id)
        elif transactional_id not in self._handed_out:
            self._prepared[transactional_id] = None
        self.transactions[transactional_id] = transaction
        self._unwritten.pop(transactional_id, None)
        self._idle.pop(transactional_id, None)
        if transaction.state in IDLE:
            self._idle[transactional_id] = None
            self._busy.pop(transactional_id, None)
        else:
            self._busy[transactional_id] = None
        self._set_deadline(transaction)

    def _remove(self, transactional_id: str) -> None:
        self._prepared.pop(transactional_id, None)
        self._handed_out.discard(transactional_id)
        self.transactions.pop(transactional_id, None)
        self._unwritten.pop(transactional_id, None)
        self._idle.pop(transactional_id, None)
        self._busy.pop(transactional_id, None)
        self._deadlines.cancel(transactional_id)

    def _set_deadline(self, transaction: Transaction) -> None:
        if transaction.state is State.ONGOING and transaction.timeout_ms < NO_TIMEOUT_MS:
            due_ms = transaction.start_ms + transaction.timeout_ms
            self._deadlines.set(transaction.transactional_id, due_ms)
        else:
            self._deadlines.cancel(transaction.transactional_id)

    def _expiry_ms(self, transaction: Transaction) -> int:
        return transaction.update_ms + self._settings.id_expiration_ms

    # InitProducerId

    def _init(self, request: InitProducer, turn: _Turn) -> Answer:
        if not request.transactional_id:
            return Answer(code=ErrorCode.INVALID_REQUEST)
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            return Answer(code=ErrorCode.INVALID_REQUEST)
        timeout_ms = request.timeout_ms
        if request.enable_two_phase_commit:
            if not self._settings.allow_two_phase_commit:
                return Answer(code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._settings.timeout_ms_max:
            return Answer(code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        current = self.transactions.get(request.transactional_id)
        if current is None:
            if request.new_producer_id is None:
                return Answer(needs_producer_id=True)
            begun = Transaction(
                transactional_id=request.transactional_id,
                producer_id=request.new_producer_id,
                producer_epoch=0,
                timeout_ms=timeout_ms,
                update_ms=turn.now_ms,
            )
            turn.write(begun)
            return _answer_with(begun)
        if current.state in PREPARED:
            return Answer(code=ErrorCode.CONCURRENT_TRANSACTIONS)
        bump = next_epoch(request, current)
        if bump is None:
            return Answer(code=ErrorCode.PRODUCER_FENCED)
        if current.state is State.ONGOING and not request.keep_prepared:
            # The epoch of the abort is given to no client: the producer asks again, and gets the next one.
            turn.write(fence(current, turn.now_ms, is_replaced=True))
            return Answer(code=ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._begin_again(request, current, bump, timeout_ms, turn)

    def _begin_again(
        self,
        request: InitProducer,
        current: Transaction,
        bump: Bump,
        timeout_ms: int,
        turn: _Turn,
    ) -> Answer:
        producer_id = current.client_producer_id
        if bump.is_exhausted:
            if request.new_producer_id is None:
                return Answer(needs_producer_id=True)
            producer_id = request.new_producer_id
        change = keep_open if current.state is State.ONGOING else begin_again
        begun = change(
            current,
            producer_id=producer_id,
            epoch=bump.epoch,
            last_epoch=bump.last_epoch,
            timeout_ms=timeout_ms,
            now_ms=turn.now_ms,
        )
        turn.write(begun)
        return _answer_with(begun)

    # AddPartitionsToTxn, AddOffsetsToTxn

    def _add(self, request: AddPartitions, turn: _Turn) -> Answer:
        if not request.transactional_id:
            return Answer(code=ErrorCode.INVALID_REQUEST)
        current = self.transactions.get(request.transactional_id)
        if current is None:
            return Answer(code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.state in PREPARED and not request.verify_only:
            # Before the other checks: the producer may have its next id already (KIP-890).
            return Answer(code=ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.client_producer_id != request.producer_id:
            return Answer(code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.client_producer_epoch != request.producer_epoch:
            return Answer(code=ErrorCode.PRODUCER_FENCED)
        if current.state in PREPARED:
            return Answer(code=ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.is_kept:
            return Answer(code=ErrorCode.INVALID_TXN_STATE)  # It may be prepared: it is only ended.
        missing = request.partitions - current.partitions
        if request.verify_only:
            return Answer(missing=missing)
        if missing:
            turn.write(
                add_partitions(current, request.partitions, request.client_version, turn.now_ms)
            )
        return _NO_ERROR

    # EndTxn

    def _end(self, request: EndTransaction, turn: _Turn) -> Answer:
        if not request.transactional_id:
            return Answer(code=ErrorCode.INVALID_REQUEST)
        current = self.transactions.get(request.transactional_id)
        if current is None:
            return Answer(code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_version_2 = request.client_version >= EPOCH_BUMPING_VERSION
        if is_version_2 and current.state in PREPARED:
            # Before the other checks: the producer may have its next id already.
            return Answer(code=ErrorCode.CONCURRENT_TRANSACTIONS)
        is_repeated = is_version_2 and is_repeated_end(current, request)
        if current.client_producer_id != request.producer_id and not is_repeated:
            return Answer(code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.client_producer_epoch != request.producer_epoch and not is_repeated:
            return Answer(code=ErrorCode.PRODUCER_FENCED)
        if current.state in PREPARED:
            return Answer(code=ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.state is not State.ONGOING:
            is_done = is_repeated or not is_version_2
            answer = _answer_ended(current, request, is_done=is_done)
            if answer is not None:
                if answer.code == ErrorCode.NONE and not is_version_2:
                    # Each transaction of this producer has the same epoch. A broker that does not lead any more may
                    # know only an earlier one, and must not confirm this one: its record never becomes durable.
                    turn.write(current)
                return answer
        next_producer_id = NO_PRODUCER_ID
        if is_version_2 and current.is_epoch_exhausted:
            if request.new_producer_id is None:
                return Answer(needs_producer_id=True)
            next_producer_id = request.new_producer_id
        prepared = prepare_end(
            current,
            is_commit=request.is_commit,
            client_version=request.client_version,
            next_producer_id=next_producer_id,
            now_ms=turn.now_ms,
        )
        turn.write(prepared)
        # The producer goes on with what it has once the markers are written.
        return _answer_with(complete(prepared, turn.now_ms))

    # Markers

    def _complete(self, request: MarkersWritten, turn: _Turn) -> Answer:
        current = self.transactions.get(request.transactional_id)
        if (
            current is None
            or current.state not in PREPARED
            or current.producer_id != request.producer_id
            or current.producer_epoch != request.producer_epoch
        ):
            return Answer(code=ErrorCode.INVALID_TXN_STATE)  # late: another coordinator was faster
        self._change(complete(current, turn.now_ms))
        self._unwritten[request.transactional_id] = turn.now_ms + COMPLETION_MS_MAX
        return _NO_ERROR

    def _await(self, token: ReplyToken, turn: _Turn) -> None:
        if self._waiter is not None:
            # A second one replaces the first: one broker writes the markers.
            turn.replies.append(Reply(self._waiter, PreparedTransactions(transactions=())))
        self._waiter = token
        turn.prepared = [
            self.transactions[each] for each in islice(self._prepared, PREPARED_AT_ONCE_MAX)
        ]

    def _hand_out(self, turn: _Turn) -> None:
        """Answer the request for decided transactions. The runtime sends it when the decisions are durable."""
        if self._waiter is None or not turn.prepared:
            return
        handed_out = tuple(turn.prepared[:PREPARED_AT_ONCE_MAX])
        for each in handed_out:
            self._handed_out.add(each.transactional_id)
            self._prepared.pop(each.transactional_id, None)
        turn.replies.append(Reply(self._waiter, PreparedTransactions(transactions=handed_out)))
        self._waiter = None

    # DescribeTransactions, ListTransactions

    def _describe(self, request: DescribeTransaction) -> Description:
        if not request.transactional_id:
            return Description(code=ErrorCode.INVALID_REQUEST)
        found = self.transactions.get(request.transactional_id)
        if found is None:
            return Description(code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return Description(transaction=found)

    def _list(self, request: ListTransactions, now_ms: int) -> Listing:
        return Listing(
            transactions=tuple(
                each
                for each in self.transactions.values()
                if (not request.states or each.state in request.states)
                and (not request.producer_ids or each.producer_id in request.producer_ids)
                and (
                    request.running_ms_min < 0
                    or (each.start_ms >= 0 and now_ms - each.start_ms > request.running_ms_min)
                )
            )
        )


def _answer_with(transaction: Transaction) -> Answer:
    answer = Answer(
        producer_id=transaction.client_producer_id, producer_epoch=transaction.client_producer_epoch
    )
    if transaction.state is not State.ONGOING:
        return answer
    return replace(
        answer,
        ongoing_producer_id=transaction.producer_id,
        ongoing_producer_epoch=transaction.producer_epoch,
    )


def _answer_ended(current: Transaction, request: EndTransaction, *, is_done: bool) -> Answer | None:
    """The answer to an end without an open transaction; None if version 2 aborts an empty one."""
    is_version_2 = request.client_version >= EPOCH_BUMPING_VERSION
    was_commit = current.state is State.COMPLETE_COMMIT
    if current.state is not State.EMPTY and is_done and was_commit == request.is_commit:
        # The last epoch is for fencing, and no client may have it: an abort of nothing gives it another id.
        is_fenced = current.producer_epoch == EPOCH_MAX and is_version_2 and not was_commit
        return None if is_fenced else _answer_with(current)
    can_abort = (
        is_version_2 and not request.is_commit and (current.state is State.EMPTY or not is_done)
    )
    return None if can_abort else Answer(code=ErrorCode.INVALID_TXN_STATE)
