"""A broker of the simulation of transactions that leads the shard, or believes so."""

from typing import Final

from simulation.transaction_history import Violation
from zhumq.model.state_machine import Outcome, Reply, ReplyToken, StateRecord
from zhumq.transactions.persisted import decode_key
from zhumq.transactions.requests import (
    AwaitMarkers,
    PreparedTransactions,
    TransactionRequest,
    TransactionResponse,
)
from zhumq.transactions.shard import TransactionSettings, TransactionShard
from zhumq.transactions.transaction import IDLE, Transaction

EXPIRATION_MS: Final = 90_000
SETTINGS: Final = TransactionSettings(id_expiration_ms=EXPIRATION_MS, allow_two_phase_commit=True)


class SimulatedCoordinator:
    """A shard and its log. Replies wait until the records before them are durable, as in the real runtime.

    Once another broker leads, records of this one never become durable. It goes on answering what needs no record.
    """

    def __init__(self, epoch: int, records: list[StateRecord], now_ms: int) -> None:
        self.epoch = epoch
        self.records = list(records)
        self.durable = len(records)
        self.is_deposed = False
        self.shard = TransactionShard(SETTINGS)
        for record in records:
            self.shard.replay(record, now_ms)
        self._held: list[tuple[int, Reply[TransactionResponse]]] = []
        self._answers: dict[int, TransactionResponse] = {}
        self._token = 0
        self._waiting: int | None = None

    def handle(self, request: TransactionRequest, now_ms: int) -> int:
        """The token of the request."""
        self._token += 1
        self._apply(self.shard.handle(request, ReplyToken(self._token), now_ms), now_ms)
        return self._token

    def answer(self, token: int) -> TransactionResponse | None:
        """The answer to a request, once it may be sent."""
        return self._answers.pop(token, None)

    def expire(self, now_ms: int) -> None:
        due_ms = self.shard.next_deadline_ms
        if due_ms is not None and due_ms <= now_ms:
            self._apply(self.shard.expire(now_ms), now_ms)

    def replicate(self) -> None:
        """Everything in the log is durable, unless another broker leads."""
        if not self.is_deposed:
            self.durable = len(self.records)
            self._release()

    def decided(self, now_ms: int) -> tuple[Transaction, ...]:
        """The transactions whose markers this broker has to write now."""
        if self._waiting is None:
            self._waiting = self.handle(AwaitMarkers(), now_ms)
        found = self.answer(self._waiting)
        if not isinstance(found, PreparedTransactions):
            return ()
        self._waiting = None
        return found.transactions

    def _apply(self, outcome: Outcome[TransactionResponse], now_ms: int) -> None:
        for record in outcome.records:
            transactional_id = decode_key(record.key) or ""
            before = self.shard.transactions.get(transactional_id)
            self.records.append(record)
            self.shard.replay(record, now_ms)
            _check_change(before, self.shard.transactions.get(transactional_id), now_ms)
        self._held += [(len(self.records), reply) for reply in outcome.replies]
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for next_offset, reply in held:
            if next_offset <= self.durable:
                self._answers[reply.token] = reply.response
            else:
                self._held.append((next_offset, reply))

    def check(self, now_ms: int) -> None:
        """Raise Violation unless all is quiet, and the state is that of the log."""
        replayed = TransactionShard(SETTINGS)
        for record in self.records:
            replayed.replay(record, now_ms)
        if replayed.transactions != self.shard.transactions:
            raise Violation("the state of the shard is not that of its log")
        for each in self.shard.transactions.values():
            if each.state not in IDLE:
                raise Violation(f"a transaction hangs: {each}")


def _check_change(before: Transaction | None, after: Transaction | None, now_ms: int) -> None:
    if before is None:
        return
    if after is None:
        if before.state not in IDLE or before.update_ms + EXPIRATION_MS > now_ms:
            raise Violation(f"an id expired too early: {before}")
        return
    for earlier, later in (
        (
            (before.producer_id, before.producer_epoch),
            (after.producer_id, after.producer_epoch),
        ),
        (
            (before.client_producer_id, before.client_producer_epoch),
            (after.client_producer_id, after.client_producer_epoch),
        ),
    ):
        if earlier[0] == later[0] and earlier[1] > later[1]:
            raise Violation(f"an epoch went back: {before} to {after}")
