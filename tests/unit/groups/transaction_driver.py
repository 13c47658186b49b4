"""Drives one group shard whose log has transactions: their offsets are pending until a marker."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from group_driver import GROUP, Driver

from zhumq.groups.requests import GroupResponse
from zhumq.groups.shard import GroupShard
from zhumq.model.state_machine import Outcome, StateRecord
from zhumq.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from zhumq.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

PRODUCER = 7
UNSTABLE = "unstable"


@dataclass(frozen=True)
class Entry:
    """A record, of a transaction or not, or a marker."""

    producer_id: int | None
    record: StateRecord | None = None
    is_commit: bool = False

    def replay(self, shard: GroupShard, now_ms: int) -> None:
        if self.record is None:
            assert self.producer_id is not None
            shard.end_transaction(self.producer_id, now_ms, is_commit=self.is_commit)
        elif self.producer_id is None:
            shard.replay(self.record, now_ms)
        else:
            shard.replay_pending(self.producer_id, self.record, now_ms)


@dataclass
class TransactionDriver(Driver):
    """A driver whose log has transactions and markers."""

    entries: list[Entry] = field(default_factory=list)

    def _fresh_shard(self) -> GroupShard:
        shard = self._empty_shard()
        for entry in self.entries:
            entry.replay(shard, self.now_ms)
        self._apply(shard, shard.loaded(self.now_ms))
        return shard

    def _apply(self, shard: GroupShard, outcome: Outcome[GroupResponse]) -> None:
        producer_id = None if outcome.producer is None else outcome.producer.producer_id
        for record in outcome.records:
            self._write(shard, Entry(producer_id, record))
        self._answer(outcome)

    def _write(self, shard: GroupShard, entry: Entry) -> None:
        self.entries.append(entry)
        entry.replay(shard, self.now_ms)

    def end(self, producer_id: int = PRODUCER, *, is_commit: bool = True) -> None:
        """The coordinator of the transaction writes its marker."""
        self._write(self.shard, Entry(producer_id, is_commit=is_commit))

    def commit_in_transaction(
        self,
        offset: int,
        *,
        producer_id: int = PRODUCER,
        topic: str = "topic",
        partitions: Sequence[int] = (0,),
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        group_id: str = GROUP,
        metadata: str = "",
        version: int = 5,
    ) -> int:
        response = self.ask(
            TxnOffsetCommitRequest(
                transactional_id=f"transactions of {producer_id}",
                group_id=group_id,
                producer_id=producer_id,
                producer_epoch=0,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=each,
                                committed_offset=offset,
                                committed_leader_epoch=3,
                                committed_metadata=metadata,
                            )
                            for each in partitions
                        ],
                    )
                ],
            ),
            version,
        )
        assert isinstance(response, TxnOffsetCommitResponse)
        (code,) = {each.error_code for each in response.topics[0].partitions}
        return code

    def stable(
        self, topic: str = "topic", partition: int = 0, *, group_id: str = GROUP
    ) -> int | str:
        """The committed offset as a consumer with read_committed asks for it, or UNSTABLE."""
        response = self.ask(
            OffsetFetchRequest(
                require_stable=True,
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group_id,
                        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
                    )
                ],
            ),
            9,
        )
        assert isinstance(response, OffsetFetchResponse)
        found = response.groups[0].topics[0].partitions[0]
        return UNSTABLE if found.error_code else found.committed_offset
