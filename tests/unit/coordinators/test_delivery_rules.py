"""Subscription rules, dead letters, and closing of share partitions, on real logs."""

import asyncio

import pytest
from delivery_support import (
    accept,
    broker_without_listeners,
    offsets_of,
    reject,
    release,
    run,
    until,
)

from zhumq.coordinators.delivery_state import PersistedSharePartitionStore
from zhumq.model.errors import (
    BrokerError,
    FencedLeaderEpoch,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from zhumq.share.push_session import PushSession, SessionState
from zhumq.share.subscription import (
    Start,
    Subscription,
    SubscriptionMode,
    TopicTaken,
)
from zhumq.testing.disk import MemoryDisk

PSB = SubscriptionMode.PSB
SHARED = SubscriptionMode.PTP_SHARED
EXCLUSIVE = SubscriptionMode.PTP_EXCLUSIVE


# Rules


def test_a_second_point_to_point_group_is_refused_by_the_name_of_the_first() -> None:
    disk = MemoryDisk()
    subscription = Subscription(topic="t", group="orders", mode=SHARED, credit=10)

    async def first_epoch() -> None:
        async with broker_without_listeners(disk) as world:
            await world.make_topic()
            assert await world.service.subscribe(subscription) is not None

    async def second_epoch() -> None:
        async with broker_without_listeners(disk) as world:
            await world.service.subscribe(subscription)
            other = Subscription(topic="t", group="others", mode=SHARED, credit=10)
            with pytest.raises(TopicTaken, match="orders") as refused:
                await world.service.subscribe(other)
            assert refused.value.claim.group == "orders"
            other_way = Subscription(topic="t", group="orders", mode=EXCLUSIVE, credit=10)
            with pytest.raises(TopicTaken, match="ptp-shared"):
                await world.service.subscribe(other_way)
            assert (
                await world.service.subscribe(
                    Subscription(topic="t", group="watcher", mode=PSB, credit=10)
                )
                is None
            )
            await world.service.unclaim("t", "orders")
            assert await world.service.claim_of("t") is None
            await world.service.subscribe(other)

    run(first_epoch)
    run(second_epoch)


@pytest.mark.parametrize(
    ("subscription", "error"),
    [
        (Subscription(topic="nowhere", group="g", mode=PSB), UnknownTopicOrPartition),
        (Subscription(topic="t", group="g", mode=PSB, partitions=(1,)), UnknownTopicOrPartition),
        (Subscription(topic="t", group="g", mode=PSB, partitions=(-1,)), UnknownTopicOrPartition),
        (Subscription(topic="t", group="g", mode=PSB, partitions=(0, 0)), InvalidRequest),
        (Subscription(topic="t", group="g", mode=PSB, partitions=()), InvalidRequest),
        (Subscription(topic="t", group="g", mode=PSB, credit=0), InvalidRequest),
        (Subscription(topic="t", group="g", mode=PSB, credit=-5), InvalidRequest),
        (Subscription(topic="t", group="g", mode=PSB, start=Start.offset(11)), OffsetOutOfRange),
        (Subscription(topic="t", group="g", mode=PSB, start=Start.offset(-1)), OffsetOutOfRange),
        (Subscription(topic="t", group="g", mode=SHARED, start=Start.offset(11)), OffsetOutOfRange),
        (Subscription(topic="t", group=" ", mode=PSB), BrokerError),
    ],
)
def test_what_can_never_be_served_is_refused(
    subscription: Subscription, error: type[BrokerError]
) -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(10)
            with pytest.raises(error):
                await world.service.subscribe(subscription)
            assert await world.service.claim_of("t") is None, (
                "a refused subscription claims nothing"
            )

    run(scenario)


# Dead letters


def test_a_rejected_message_is_a_dead_letter_with_its_reason_and_origin() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic(partitions=2)
            world.fill(3, partition=1)
            share_partition = await world.open(partition=1)
            share_partition.acquire("ann", records_max=3)
            await share_partition.acknowledge(
                "ann", [reject(1, 1, "not JSON"), accept(0, 0), accept(2, 2)]
            )
            await until(lambda: share_partition.start_offset == 3)
            (dead_letter,) = world.dead_letters(partition=1)
            assert dead_letter.value == b"1"
            story = {header.key: (header.value or b"").decode() for header in dead_letter.headers}
            assert int(story.pop("zhumq.time")) > 0
            assert story == {
                "zhumq.group": "g",
                "zhumq.reason": "not JSON",
                "zhumq.deliveries": "1",
                "zhumq.topic": "t",
                "zhumq.partition": "1",
                "zhumq.offset": "1",
                "zhumq.timestamp": "1000",
            }
            assert share_partition.dead_letters_total == 1

    run(scenario)


def test_a_message_past_its_delivery_limit_is_a_dead_letter() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(
            MemoryDisk(), settings={"delivery.max.deliveries": "3"}
        ) as world:
            await world.make_topic()
            world.fill(1)
            share_partition = await world.open()
            for _ in range(3):
                assert share_partition.acquire("ann", records_max=1)
                await share_partition.acknowledge("ann", [release(0, 0, "boom")])
            await until(lambda: share_partition.start_offset == 1)
            assert share_partition.acquire("ann", records_max=1) == []
            (dead_letter,) = world.dead_letters()
            story = {header.key: (header.value or b"").decode() for header in dead_letter.headers}
            assert story["zhumq.deliveries"] == "3"
            assert "boom" in story["zhumq.reason"]

    run(scenario)


def test_many_dead_letters_at_once_are_written_in_order_and_in_bounded_batches() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(1_200, batch=400)
            share_partition = await world.open()
            while share_partition.acquire("ann", records_max=1_200):
                pass
            await share_partition.acknowledge("ann", [reject(0, 1_199)])
            await until(lambda: share_partition.start_offset == 1_200)
            assert [dead_letter.value for dead_letter in world.dead_letters()] == [
                b"%d" % i for i in range(1_200)
            ]

    run(scenario)


def test_a_dead_letter_is_not_written_twice_when_a_crash_comes_between() -> None:
    disk = MemoryDisk()

    async def before() -> None:
        async with broker_without_listeners(disk, crash=True) as world:
            await world.make_topic()
            world.fill(10)
            served = world.partition("t")
            await served.when_durable(served.log_end_offset)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=10)
            real_write = share_partition._store.write
            dead_letterings = []

            async def write_until_the_dead_letters_are_there(update) -> None:
                if any(run.state.name == "ARCHIVED" for run in update.runs):
                    dead_letterings.append(update)
                    await asyncio.Event().wait()  # the crash comes before this is written
                await real_write(update)

            share_partition._store.write = write_until_the_dead_letters_are_there
            await share_partition.acknowledge("ann", [reject(2, 4, "bad")])
            await until(lambda: bool(dead_letterings))
            assert len(world.dead_letters()) == 3, "they are written"

    async def after() -> None:
        async with broker_without_listeners(disk) as world:
            share_partition = await world.open()
            assert 3 not in offsets_of(share_partition.acquire("ann", records_max=100))
            await until(lambda: share_partition._share_partition.archiving_count == 0)
            assert [dead_letter.value for dead_letter in world.dead_letters()] == [b"2", b"3", b"4"]
            # And the numbering continues after them.
            await share_partition.acknowledge("ann", [reject(7, 7)])
            await until(lambda: len(world.dead_letters()) == 4)

    run(before)
    run(after)


def test_dead_letters_wait_while_their_topic_cannot_be_made() -> None:
    async def scenario() -> None:
        name = "n" * 247  # with its suffix longer than a topic name may be
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic(name)
            world.fill(1, topic=name)
            share_partition = await world.service.open(
                group="g", topic=name, partition=0, mode=SHARED
            )
            share_partition.acquire("ann", records_max=1)
            await share_partition.acknowledge("ann", [reject(0, 0)])
            assert (share_partition.start_offset, share_partition.lag) == (0, 1), (
                "pending, not lost"
            )
            assert share_partition.acquire("ann", records_max=1) == []

    run(scenario)


# Closing


def test_a_share_partition_closes_with_its_topic_and_a_new_topic_starts_fresh() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(5)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=5)
            await share_partition.acknowledge("ann", [accept(0, 4)])
            notified = asyncio.Event()
            share_partition.watch(notified.set)
            await world.metadata_client.delete_topics(["t"])
            await notified.wait()
            assert share_partition.is_closed
            with pytest.raises(BrokerError):
                share_partition.acquire("ann", records_max=1)
            await world.make_topic()
            world.fill(2)
            again = await world.open()
            assert offsets_of(again.acquire("ann", records_max=5)) == [0, 1]

    run(scenario)


def test_a_failed_write_closes_the_share_partition_and_acknowledgements_can_be_repeated() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        async with broker_without_listeners(disk) as world:
            await world.make_topic()
            world.fill(5)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=5)
            await world.service.reset("g", world.store.image.topics["t"], 0, 2)
            with pytest.raises(NotLeaderOrFollower):
                await share_partition.acknowledge("ann", [accept(0, 4)])
            again = await world.open()
            assert offsets_of(again.acquire("ann", records_max=5)) == [2, 3, 4]

    run(scenario)


def test_a_position_beyond_a_log_that_lost_its_end_goes_back_to_that_end() -> None:
    disk = MemoryDisk()

    async def before() -> None:
        async with broker_without_listeners(disk, crash=True) as world:
            await world.make_topic()
            world.fill(5)
            served = world.partition("t")
            await served.when_durable(5)
            world.fill(5)  # not on the disk when the crash comes
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=10)
            await share_partition.acknowledge("ann", [accept(0, 9)])

    async def after() -> None:
        async with broker_without_listeners(disk) as world:
            assert world.partition("t").log_end_offset == 5
            share_partition = await world.open()
            world.fill(3)
            assert offsets_of(share_partition.acquire("ann", records_max=10)) == [5, 6, 7]

    run(before)
    run(after)


def test_sessions_and_settings_of_a_group_are_kept_and_go_with_it() -> None:
    disk = MemoryDisk()
    session = PushSession(
        group="g",
        consumer="ann",
        topic="t",
        mode=PSB,
        partitions=(0,),
        state=SessionState.PARKED,
        reason="no answer",
        retries=5,
    )

    async def before() -> None:
        async with broker_without_listeners(disk, crash=True) as world:
            await world.make_topic()
            await world.service.save_session(session)
            await world.service.group_settings("g", {"share.auto.offset.reset": "earliest"})

    async def after() -> None:
        async with broker_without_listeners(disk) as world:
            assert await world.service.sessions("g") == [session]
            assert await world.service.sessions() == [session]
            assert await world.service.sessions("other") == []
            assert await world.service.group_settings("g") == {
                "share.auto.offset.reset": "earliest"
            }
            await world.service.delete("g")
            assert await world.service.sessions("g") == []

    run(before)
    run(after)


def test_an_acknowledgement_whose_write_fails_after_the_close_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its consumer would wait for ever otherwise, and the broker for that consumer."""

    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(10)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=10)
            is_writing, is_closed = asyncio.Event(), asyncio.Event()

            async def fail_after_the_close(*_: object) -> None:
                is_writing.set()
                await is_closed.wait()
                raise FencedLeaderEpoch("the share partition is at a later epoch")

            monkeypatch.setattr(PersistedSharePartitionStore, "write", fail_after_the_close)
            answering = asyncio.ensure_future(share_partition.acknowledge("ann", [accept(0, 4)]))
            await is_writing.wait()
            share_partition.close(NotLeaderOrFollower("another broker leads the partition"))
            is_closed.set()
            with pytest.raises(FencedLeaderEpoch):
                await answering

    run(scenario)
