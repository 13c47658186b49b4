"""A transactional producer of version 2 (KIP-890) on raw requests, one at a time; librdkafka has version 1 alone."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from chaos.clients import partition_name
from chaos.history import Action, Entry, Phase
from chaos.messages import content
from chaos.transaction_table import ABORT, COMMIT
from chaos.transactional_producer import (
    GIVE_UP_SECONDS,
    PADDING_BYTES_MAX,
    TRANSACTION_TIMEOUT_MS,
    ProducerLost,
    ProducerSetting,
)
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import FindCoordinatorRequest
from zhumq.protocol.messages.metadata import MetadataRequest
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.protocol.messages.producers import InitProducerIdRequest
from zhumq.protocol.messages.transactions import EndTxnRequest
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.testing.raw_client import RawClient

# Shorter than some requests are delayed: the request is then sent again on another connection.
ANSWER_SECONDS_MAX: Final = 3.0
AGAIN_SECONDS: Final = 0.05
TRANSACTIONS: Final = 1  # the type of coordinator
FIND_VERSION: Final = 6
METADATA_VERSION: Final = 12
INIT_VERSION: Final = 5
PRODUCE_VERSION: Final = 12
END_VERSION: Final = 5
# A client asks again, elsewhere if the leader or the coordinator has moved.
RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class RawTransactionalProducer:
    """One instance, which is one process of the history."""

    def __init__(self, setting: ProducerSetting, transactional_id: str) -> None:
        self._setting = setting
        self._transactional_id = transactional_id
        self.process = setting.recorder.new_process()
        self._producer_id = self._epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._connections: dict[str, RawClient] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self._coordinator = ""
        self._began_ms = 0
        self._places: tuple[str, ...] = ()
        self._must_abort = False

    def take_over(self) -> None:
        """Fence the instance before this one. Raises ProducerLost."""
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        answer = self._ask_coordinator(ApiKey.INIT_PRODUCER_ID, request, INIT_VERSION)
        if answer.error_code:
            raise ProducerLost(ErrorCode(answer.error_code).name)
        self._use(answer)
        self._write(Phase.OK, Action.INIT)

    def begin(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Begin a transaction and send a value to each of these partitions. Raises ProducerLost."""
        values = [self._setting.recorder.new_value() for _ in partitions]
        self._places = tuple(partition_name(*each) for each in partitions)
        entries = [
            Entry(place, None, value) for place, value in zip(self._places, values, strict=True)
        ]
        self._began_ms = self._write(Phase.INVOKE, Action.BEGIN, entries)
        self._must_abort = False
        for partition, value in zip(partitions, values, strict=True):
            self._send(partition, value)
            if self._must_abort:
                break

    def end(self, word: str) -> bool:
        """Commit or abort; whether it was committed. Raises ProducerLost, after which the outcome may be unknown."""
        if self._must_abort:
            word = ABORT
        self._write(Phase.INVOKE, Action.END, note=word)
        try:
            word = self._end(word)
        except ProducerLost:
            self._write(Phase.INFO, Action.END, note=word)
            raise
        self._write(Phase.OK, Action.END, note=word)
        if word == COMMIT:
            for place in self._places:
                self._setting.progress.acknowledged(place, self._began_ms)
        return word == COMMIT

    def close(self) -> None:
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    def _send(self, partition: tuple[str, int], value: int) -> None:
        """Send one value until it is stored, or until the transaction has to be aborted."""
        topic, number = partition
        sequence = self._sequences.get(partition, 0)
        data = build_batch(
            [
                Record(
                    timestamp=int(time.time() * 1_000),
                    value=content(value, self._setting.draw.randrange(PADDING_BYTES_MAX)),
                )
            ],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=int(ANSWER_SECONDS_MAX * 1_000),
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=number, records=data)]
                )
            ],
        )
        answer = self._until_answered(
            lambda: self._leader(partition),
            lambda: self._leaders.pop(partition, None),
            lambda client: client.ask(ApiKey.PRODUCE, request, PRODUCE_VERSION),
            lambda found: found.responses[0].partition_responses[0].error_code,
        )
        code = answer.responses[0].partition_responses[0].error_code
        if code in FENCED:
            raise ProducerLost(ErrorCode(code).name)
        self._must_abort = bool(code)
        self._sequences[partition] = sequence + 1

    def _end(self, word: str) -> str:
        """End the transaction, and abort it if it cannot be committed; returns how it ended."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=word == COMMIT,
        )
        answer = self._ask_coordinator(ApiKey.END_TXN, request, END_VERSION)
        if answer.error_code in FENCED or (answer.error_code and word == ABORT):
            raise ProducerLost(ErrorCode(answer.error_code).name)
        if answer.error_code:
            return self._end(ABORT)
        self._use(answer)
        return word

    def _use(self, answer: Any) -> None:
        """Go on with another epoch, in which sequences begin at 0 again."""
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def _ask_coordinator(self, key: ApiKey, request: Any, version: int) -> Any:
        def forget() -> None:
            self._coordinator = ""

        return self._until_answered(
            self._found_coordinator,
            forget,
            lambda client: client.ask(key, request, version),
            lambda answer: answer.error_code,
        )

    def _until_answered(
        self,
        address_of: Callable[[], str],
        forget: Callable[[], object],
        ask: Callable[[RawClient], Any],
        code_of: Callable[[Any], int],
    ) -> Any:
        """Ask again until the error is none that is retried. Raises ProducerLost at the deadline."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            address = ""
            try:
                address = address_of()
                answer = ask(self._connection(address))
                if code_of(answer) not in RETRIED:
                    return answer
            except (OSError, MalformedFrame):
                # The answer may still come on this connection, and belongs to no later request.
                if (lost := self._connections.pop(address, None)) is not None:
                    lost.close()
            forget()
            time.sleep(AGAIN_SECONDS)
        raise ProducerLost("no answer in time")

    def _connection(self, address: str) -> RawClient:
        if address not in self._connections:
            self._connections[address] = RawClient(address, seconds_max=ANSWER_SECONDS_MAX)
        return self._connections[address]

    def _found_coordinator(self) -> str:
        if not self._coordinator:
            request = FindCoordinatorRequest(
                key_type=TRANSACTIONS, coordinator_keys=[self._transactional_id]
            )
            (found,) = self._ask_any(ApiKey.FIND_COORDINATOR, request, FIND_VERSION).coordinators
            if found.error_code:
                raise ConnectionError("no coordinator")
            self._coordinator = f"{found.host}:{found.port}"
        return self._coordinator

    def _leader(self, partition: tuple[str, int]) -> str:
        if partition not in self._leaders:
            found = self._ask_any(ApiKey.METADATA, MetadataRequest(topics=None), METADATA_VERSION)
            addresses = {each.node_id: f"{each.host}:{each.port}" for each in found.brokers}
            self._leaders = {
                (topic.name, each.partition_index): addresses[each.leader_id]
                for topic in found.topics
                for each in topic.partitions
                if each.leader_id in addresses
            }
        if partition not in self._leaders:
            raise ConnectionError("no leader")
        return self._leaders[partition]

    def _ask_any(self, key: ApiKey, request: Any, version: int) -> Any:
        """Ask one of the brokers. Raises OSError."""
        address = self._setting.draw.choice(self._setting.bootstrap.split(","))
        with RawClient(address, seconds_max=ANSWER_SECONDS_MAX) as client:
            return client.ask(key, request, version)

    def _write(
        self, phase: Phase, action: Action, entries: Sequence[Entry] = (), note: str = ""
    ) -> int:
        return self._setting.recorder.write(
            self.process, phase, action, entries, group=self._transactional_id, note=note
        )
