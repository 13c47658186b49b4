"""Offsets in transactions, on the real log: verification, markers, crashes, and what the log refuses."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from groups_on_disk import HERE, PARTITIONS_OF_TOPIC, RunningGroups, running_groups
from memory_partition import MemoryPartition

from zhumq.coordinators import runtime as runtime_module
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.groups.requests import GroupRequest, GroupResponse, refusal
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.host.clock import SystemClock
from zhumq.model.errors import (
    DiskFull,
    ErrorCode,
    InvalidProducerEpoch,
    NotLeaderOrFollower,
    StorageFailed,
)
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.model.transaction_errors import TransactionCoordinatorFenced
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
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
from zhumq.records.batch import batches
from zhumq.records.control import EndMarker, MarkerType
from zhumq.storage.log_compaction import begin_compaction, finish_compaction
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

PRODUCER = Producer(7, 3)
UNSTABLE = "unstable"


async def nothing() -> None:
    """No event."""


@dataclass
class Coordinator:
    """A transaction coordinator that answers with a code."""

    code: ErrorCode = ErrorCode.NONE
    asked: list[tuple[str, Producer, TopicPartition, bool]] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[None]] = nothing

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        (partition,) = partitions
        self.asked.append(
            (transactional_id, Producer(producer_id, producer_epoch), partition, adds)
        )
        await self.meanwhile()
        return {} if self.code is ErrorCode.NONE else {partition: self.code}


def request(
    offset: int,
    *,
    producer: Producer = PRODUCER,
    partitions: int = 1,
    first_partition: int = 0,
    version: int = 5,
    group_id: str = "g",
) -> GroupRequest:
    return GroupRequest(
        message=TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="topic",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=first_partition + index, committed_offset=offset
                        )
                        for index in range(partitions)
                    ],
                )
            ],
        ),
        version=version,
    )


async def commit_in_transaction(
    groups: RunningGroups,
    offset: int,
    *,
    producer: Producer = PRODUCER,
    partitions: int = 1,
    version: int = 5,
) -> int:
    response = await groups.service.handle(
        request(offset, producer=producer, partitions=partitions, version=version)
    )
    assert isinstance(response, TxnOffsetCommitResponse)
    (code,) = {each.error_code for each in response.topics[0].partitions}
    return code


async def commit(groups: RunningGroups, offset: int, partition: int = 0) -> None:
    committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="topic", partitions=[committed])
    message = OffsetCommitRequest(group_id="g", topics=[topic])
    await groups.service.handle(GroupRequest(message=message, version=9))


async def stable(groups: RunningGroups, partition: int = 0) -> int | str:
    response = await groups.service.handle(
        GroupRequest(
            message=OffsetFetchRequest(
                require_stable=True,
                groups=[
                    OffsetFetchRequestGroup(
                        group_id="g",
                        topics=[
                            OffsetFetchRequestTopic(name="topic", partition_indexes=[partition])
                        ],
                    )
                ],
            ),
            version=9,
        )
    )
    assert isinstance(response, OffsetFetchResponse)
    assert response.groups[0].error_code == ErrorCode.NONE
    found = response.groups[0].topics[0].partitions[0]
    return UNSTABLE if found.error_code else found.committed_offset


async def end(
    groups: RunningGroups,
    *,
    is_commit: bool = True,
    producer: Producer = PRODUCER,
    coordinator_epoch: int = 1,
    version: int = 1,
) -> None:
    kind = MarkerType.COMMIT if is_commit else MarkerType.ABORT
    await groups.runtime.append_marker(
        0,
        EndMarker(marker_type=kind, coordinator_epoch=coordinator_epoch),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_version=version,
    )


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(with_deadline())


def test_what_is_pending_survives_a_crash_and_the_marker_decides_on_it_afterwards() -> None:
    disk = MemoryDisk()

    async def scenario() -> None:
        async with running_groups(disk, verifier=Coordinator(), crash=True) as groups:
            await commit(groups, 4)
            assert await commit_in_transaction(groups, 10) == ErrorCode.NONE
        async with running_groups(disk, crash=True) as groups:
            assert await stable(groups) == UNSTABLE
            await end(groups)
            assert await stable(groups) == 10
        async with running_groups(disk) as groups:
            assert await stable(groups) == 10
            await end(groups)
            assert await stable(groups) == 10

    run(scenario)


def test_the_log_has_kafkas_transactional_batches_and_markers() -> None:
    async def scenario() -> None:
        async with running_groups(MemoryDisk(), verifier=Coordinator()) as groups:
            await commit_in_transaction(groups, 10)
            await commit_in_transaction(groups, 11)
            assert groups.partition.last_stable_offset == 0
            await end(groups, is_commit=False)
            headers = [
                each.header for each in batches(groups.partition.read(0, 1 << 20).read_bytes())
            ]
            assert groups.partition.last_stable_offset == 3
        assert [(each.is_transactional, each.is_control) for each in headers] == [
            (True, False),
            (True, False),
            (True, True),
        ]
        assert {(each.producer_id, each.producer_epoch) for each in headers} == {PRODUCER}
        assert {each.base_sequence for each in headers} == {-1}

    run(scenario)


def test_a_commit_larger_than_a_batch_is_pending_as_a_whole() -> None:
    disk = MemoryDisk()

    async def scenario() -> None:
        async with running_groups(disk, verifier=Coordinator()) as groups:
            assert await commit_in_transaction(groups, 5, partitions=100) == ErrorCode.NONE
        async with running_groups(disk) as groups:
            assert {await stable(groups, each) for each in range(100)} == {UNSTABLE}
            await end(groups)
            assert {await stable(groups, each) for each in range(100)} == {5}

    run(scenario)


def test_the_coordinator_is_asked_for_the_partition_and_from_version_5_on_to_add_it() -> None:
    async def scenario() -> None:
        coordinator = Coordinator()
        versions = (0, 4, 5)
        async with running_groups(MemoryDisk(), verifier=coordinator) as groups:
            for version in versions:
                producer = Producer(version, 0)
                for _ in range(2):
                    code = await commit_in_transaction(
                        groups, 1, version=version, producer=producer
                    )
                    assert code == ErrorCode.NONE
        # Once: then the transaction is open in the partition.
        assert coordinator.asked == [
            ("tx", Producer(version, 0), HERE, version >= 5) for version in versions
        ]

    run(scenario)


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (0, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_the_coordinator_does_not_confirm_is_not_written(
    version: int, code: ErrorCode, expected: ErrorCode
) -> None:
    async def scenario() -> None:
        async with running_groups(MemoryDisk(), verifier=Coordinator(code)) as groups:
            assert await commit_in_transaction(groups, 1, version=version) == expected
            assert groups.partition.log_end_offset == 0

    run(scenario)


def test_topics_and_partitions_that_do_not_exist_are_refused_beside_the_others() -> None:
    async def scenario() -> None:
        coordinator = Coordinator()
        async with running_groups(MemoryDisk(), verifier=coordinator) as groups:
            asked = request(1, partitions=3, first_partition=PARTITIONS_OF_TOPIC - 2)
            response = await groups.service.handle(asked)
            assert isinstance(response, TxnOffsetCommitResponse)
            codes = {
                each.partition_index: each.error_code
                for topic in response.topics
                for each in topic.partitions
            }
            assert codes == {
                PARTITIONS_OF_TOPIC - 2: ErrorCode.NONE,
                PARTITIONS_OF_TOPIC - 1: ErrorCode.NONE,
                PARTITIONS_OF_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            await groups.service.handle(request(1, first_partition=-1))
        assert len(coordinator.asked) == 1, "nothing is left to ask for"

    run(scenario)


def test_an_empty_group_is_refused_before_the_coordinator_is_asked() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(ErrorCode.TRANSACTION_ABORTABLE)
        async with running_groups(MemoryDisk(), verifier=coordinator) as groups:
            response = await groups.service.handle(request(1, group_id=""))
            assert isinstance(response, TxnOffsetCommitResponse)
            assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID
        assert coordinator.asked == []

    run(scenario)


def test_without_a_coordinator_there_are_no_transactions() -> None:
    async def scenario() -> None:
        async with running_groups(MemoryDisk()) as groups:
            assert await commit_in_transaction(groups, 1) == ErrorCode.INVALID_TXN_STATE

    run(scenario)


def test_a_commit_that_its_transactions_marker_overtakes_is_refused_and_the_shard_goes_on() -> None:
    async def scenario() -> None:
        coordinator = Coordinator()
        async with running_groups(MemoryDisk(), verifier=coordinator) as groups:
            coordinator.meanwhile = lambda: end(groups, is_commit=False)
            waiting = asyncio.ensure_future(groups.service.handle(request(1)))
            response = await waiting
            assert isinstance(response, TxnOffsetCommitResponse)
            (answered,) = response.topics[0].partitions
            assert answered.error_code == ErrorCode.INVALID_TXN_STATE
            assert await stable(groups) == -1, "the shard was not loaded again"
            coordinator.meanwhile = nothing
            assert await commit_in_transaction(groups, 2) == ErrorCode.NONE

    run(scenario)


def test_a_commit_is_verified_again_if_the_marker_of_the_transaction_before_came_meanwhile() -> (
    None
):
    """A client of transaction version 2 sends its first commit right after the end of its last transaction."""

    async def scenario() -> None:
        coordinator = Coordinator()
        second = PRODUCER._replace(epoch=PRODUCER.epoch + 1)
        async with running_groups(MemoryDisk(), verifier=coordinator) as groups:
            assert await commit_in_transaction(groups, 1) == ErrorCode.NONE

            async def end_the_last() -> None:
                coordinator.meanwhile = nothing
                await end(groups, producer=second, version=2)

            coordinator.meanwhile = end_the_last
            assert await commit_in_transaction(groups, 2, producer=second) == ErrorCode.NONE
            assert len(coordinator.asked) == 3
            await end(groups, producer=second._replace(epoch=second.epoch + 1), version=2)
            assert await stable(groups) == 2

    run(scenario)


def test_a_late_commit_does_not_join_the_next_transaction() -> None:
    async def scenario() -> None:
        coordinator = Coordinator()
        async with running_groups(MemoryDisk(), verifier=coordinator) as groups:

            async def end_and_begin() -> None:
                coordinator.meanwhile = nothing
                await end(groups, is_commit=True)
                assert await commit_in_transaction(groups, 2, version=4) == ErrorCode.NONE

            coordinator.meanwhile = end_and_begin
            late = await commit_in_transaction(groups, 1, version=4)
            assert late == ErrorCode.INVALID_TXN_STATE
            await end(groups, is_commit=True)
            assert await stable(groups) == 2

    run(scenario)


def test_a_fenced_producer_is_refused_and_the_shard_goes_on() -> None:
    async def scenario() -> None:
        async with running_groups(MemoryDisk(), verifier=Coordinator()) as groups:
            await commit_in_transaction(groups, 1)
            older = Producer(PRODUCER.producer_id, PRODUCER.epoch - 1)
            code = await commit_in_transaction(groups, 2, producer=older)
            assert code == ErrorCode.INVALID_PRODUCER_EPOCH
            with pytest.raises(InvalidProducerEpoch):
                await end(groups, producer=older)
            assert await stable(groups) == UNSTABLE
            await end(groups)
            assert await stable(groups) == 1

    run(scenario)


def test_a_marker_of_an_older_coordinator_is_refused_and_changes_nothing() -> None:
    async def scenario() -> None:
        async with running_groups(MemoryDisk(), verifier=Coordinator()) as groups:
            await end(groups, coordinator_epoch=5)
            await commit_in_transaction(groups, 1)
            with pytest.raises(TransactionCoordinatorFenced):
                await end(groups, coordinator_epoch=4)
            assert await stable(groups) == UNSTABLE
            await end(groups, coordinator_epoch=5)
            assert await stable(groups) == 1

    run(scenario)


def test_on_a_full_disk_a_marker_fails_and_is_written_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_module, "RELOAD_DELAY_S", 0.01)
    disk = MemoryDisk()

    async def scenario() -> None:
        async with running_groups(disk, verifier=Coordinator()) as groups:
            await commit_in_transaction(groups, 1)
            disk.bytes_free = 0
            with pytest.raises(DiskFull):
                await end(groups)
            with pytest.raises(NotLeaderOrFollower):
                await end(groups)
            disk.bytes_free = None
            while True:
                try:
                    await end(groups)
                    break
                except NotLeaderOrFollower:
                    await asyncio.sleep(0.001)
            assert await stable(groups) == 1

    run(scenario)


# Any order of events


@dataclass
class Model:
    """Kafka's rules: the last record of a partition counts among those that are committed."""

    position: int = 0
    committed: dict[int, tuple[int, int]] = field(default_factory=dict)
    pending: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def commit(self, partition: int, offset: int, producer_id: int | None = None) -> None:
        self.position += 1
        target = self.committed
        if producer_id is not None:
            target = self.pending.setdefault(producer_id, {})
        target[partition] = self.position, offset

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        for partition, value in self.pending.pop(producer_id, {}).items():
            if is_commit and value > self.committed.get(partition, (0, 0)):
                self.committed[partition] = value

    def stable(self, partition: int) -> int | str:
        if any(partition in each for each in self.pending.values()):
            return UNSTABLE
        return self.committed.get(partition, (0, -1))[1]


def compact(groups: RunningGroups) -> bool:
    """Compact the log of the shard, up to the first open transaction."""
    log = groups.partition.log
    assert isinstance(log, SegmentedLog)
    log.flushing.roll()
    flush = log.begin_flush(checkpoint=True)
    if flush is not None:
        flush.run()
        log.finish_flush(flush)
    ticket = begin_compaction(log, SystemClock().now_ms(), groups.partition.high_watermark)
    if ticket is None:
        return False
    ticket.run()
    assert ticket.error is None
    finish_compaction(log, ticket)
    return True


@pytest.mark.parametrize("seed", range(8))
def test_a_compacted_and_crashed_log_gives_the_offsets_of_kafkas_rules(seed: int) -> None:
    draw = random.Random(seed)
    disk = MemoryDisk()
    model = Model()
    producers = [Producer(number, 0) for number in range(3)]
    partitions = range(3)

    async def step(groups: RunningGroups) -> None:
        producer, partition = draw.choice(producers), draw.choice(partitions)
        offset = draw.randrange(1_000)
        match draw.randrange(5):
            case 0:
                await commit(groups, offset, partition)
                model.commit(partition, offset)
            case 1 | 2:
                message = request(offset, producer=producer, first_partition=partition)
                response = await groups.service.handle(message)
                assert isinstance(response, TxnOffsetCommitResponse)
                assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
                model.commit(partition, offset, producer.producer_id)
            case _:
                is_commit = draw.random() < 0.7
                for _ in range(draw.choice((1, 1, 2))):
                    await end(groups, is_commit=is_commit, producer=producer)
                model.end(producer.producer_id, is_commit=is_commit)

    async def scenario() -> None:
        compactions = 0
        for _ in range(6):
            crash = draw.random() < 0.5
            async with running_groups(disk, verifier=Coordinator(), crash=crash) as groups:
                for _ in range(30):
                    for each in partitions:
                        assert await stable(groups, each) == model.stable(each)
                    await step(groups)
                compactions += compact(groups)
        assert compactions > 0, "the run is worth something"

    run(scenario)


def make_runtime() -> CoordinatorRuntime[GroupRequest, GroupResponse]:
    return CoordinatorRuntime(
        name="group",
        make_shard=lambda: GroupShard(GroupSettings(), draw_member_suffix=lambda: "x"),
        refuse=refusal,
        clock=SystemClock(),
        batch_bytes_max=1_000_000,
    )


async def end_in(runtime: CoordinatorRuntime[GroupRequest, GroupResponse]) -> None:
    marker = EndMarker(marker_type=MarkerType.COMMIT, coordinator_epoch=1)
    await runtime.append_marker(
        0,
        marker,
        producer_id=PRODUCER.producer_id,
        producer_epoch=PRODUCER.epoch,
        transaction_version=2,
    )


def test_a_marker_is_done_when_it_is_durable() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        ending = asyncio.ensure_future(end_in(runtime))
        reading = asyncio.ensure_future(runtime.submit(0, request(1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert partition.appends == 2
        assert not ending.done()
        partition.flush()
        await ending
        await reading

    run(scenario)


def test_a_marker_that_never_becomes_durable_fails_and_the_shard_is_loaded_again() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        ending = asyncio.ensure_future(end_in(runtime))
        await asyncio.sleep(0)
        partition.fail_flush(StorageFailed("fsync failed"))
        with pytest.raises(StorageFailed):
            await ending
        with pytest.raises(NotLeaderOrFollower):
            await end_in(runtime)
        await runtime.close()

    run(scenario)


def test_a_marker_for_a_shard_of_another_broker_is_sent_elsewhere() -> None:
    async def scenario() -> None:
        with pytest.raises(NotLeaderOrFollower):
            await end_in(make_runtime())

    run(scenario)


def test_a_commit_for_a_shard_of_another_broker_asks_no_coordinator() -> None:
    async def scenario() -> None:
        async def verify() -> ErrorCode:
            raise AssertionError("the coordinator is asked")

        response = await make_runtime().submit_in_transaction(0, request(1), PRODUCER, verify)
        assert isinstance(response, TxnOffsetCommitResponse)
        (answered,) = response.topics[0].partitions
        assert answered.error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)
