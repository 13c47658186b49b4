"""A shard that is driven by calls, with its log in a list."""

from dataclasses import replace
from typing import Any

from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Outcome, ReplyToken, StateRecord
from zhumq.transactions.persisted import transaction_record
from zhumq.transactions.requests import (
    AddPartitions,
    Answer,
    AwaitMarkers,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    PreparedTransactions,
    TransactionRequest,
    TransactionResponse,
)
from zhumq.transactions.shard import TransactionSettings, TransactionShard
from zhumq.transactions.transaction import EPOCH_MAX, Transaction, begin_again

NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
ID = "pay"
LAST_EPOCH = EPOCH_MAX - 1  # the last one that a client gets
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class DrivenShard:
    """Applies each decision at once, as a runtime on a fast disk does."""

    def __init__(self, **settings: Any) -> None:
        self.settings = TransactionSettings(**settings)
        self.shard = TransactionShard(self.settings)
        self.log: list[StateRecord] = []
        self.now_ms = NOW_MS
        self.answers: dict[int, TransactionResponse] = {}
        self._token = 0
        self._waiting: int | None = None
        self.next_producer_id = 1000

    def send(self, request: TransactionRequest) -> int:
        """The token of the request, whose answer may come later."""
        self._token += 1
        self._apply(self.shard.handle(request, ReplyToken(self._token), self.now_ms))
        return self._token

    def ask(self, request: TransactionRequest) -> Any:
        return self.answers.pop(self.send(request))

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= self.now_ms:
            self._apply(self.shard.expire(self.now_ms))

    def restart(self) -> None:
        """Another broker leads: its shard reads the log."""
        self.shard = TransactionShard(self.settings)
        self._waiting = None
        for record in self.log:
            self.shard.replay(record, self.now_ms)
        self._apply(self.shard.loaded(self.now_ms))

    def _apply(self, outcome: Outcome[TransactionResponse]) -> None:
        for record in outcome.records:
            self.append(record)
        for reply in outcome.replies:
            self.answers[reply.token] = reply.response

    def append(self, record: StateRecord) -> None:
        """As if the shard had decided on this record."""
        self.log.append(record)
        self.shard.replay(record, self.now_ms)

    # Requests

    @property
    def state(self) -> Transaction:
        return self.shard.transactions[ID]

    def init(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        timeout_ms: int = TIMEOUT_MS,
        *,
        two_phase: bool = False,
        keep: bool = False,
    ) -> Answer:
        request = InitProducer(
            transactional_id=ID,
            timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            enable_two_phase_commit=two_phase,
            keep_prepared=keep,
        )
        answer: Answer = self.ask(request)
        if answer.needs_producer_id:
            self.next_producer_id += 1
            answer = self.ask(replace(request, new_producer_id=self.next_producer_id))
        return answer

    def init_with_epoch(self, epoch: int) -> Answer:
        """A producer whose epoch is this one, as after many restarts."""
        self.init()
        begun = begin_again(
            self.state,
            producer_id=self.state.producer_id,
            epoch=epoch,
            last_epoch=-1,
            timeout_ms=TIMEOUT_MS,
            now_ms=self.now_ms,
        )
        self.append(transaction_record(begun))
        return Answer(producer_id=begun.producer_id, producer_epoch=epoch)

    def add(
        self, producer: Answer, *partitions: TopicPartition, version: int = 0, verify: bool = False
    ) -> Answer:
        answer: Answer = self.ask(
            AddPartitions(
                transactional_id=ID,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                partitions=frozenset(partitions),
                client_version=version,
                verify_only=verify,
            )
        )
        return answer

    def end(
        self,
        producer: Answer,
        *,
        is_commit: bool = True,
        version: int = 0,
        new_producer_id: int | None = None,
    ) -> Answer:
        answer: Answer = self.ask(
            EndTransaction(
                transactional_id=ID,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                is_commit=is_commit,
                client_version=version,
                new_producer_id=new_producer_id,
            )
        )
        return answer

    def write_markers(self) -> list[Transaction]:
        """Get the decided transactions, and report that their markers are written."""
        if self._waiting is None:
            self._waiting = self.send(AwaitMarkers())
        found = self.answers.pop(self._waiting, None)
        if found is None:
            return []
        assert isinstance(found, PreparedTransactions)
        self._waiting = None
        for each in found.transactions:
            code = self.ask(
                MarkersWritten(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                )
            ).code
            assert code == ErrorCode.NONE
        return list(found.transactions)
