"""Share partitions on real logs: acquire, acknowledge, restart, crash, owners, positions."""

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

from zhumq.coordinators.delivery_seam import Owner
from zhumq.model.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from zhumq.records.batch import records
from zhumq.share.acknowledgement import AckKind, Acknowledgement
from zhumq.share.share_partition import InvalidRecordState
from zhumq.share.subscription import (
    Start,
    StartKind,
    SubscriptionMode,
)
from zhumq.testing.disk import MemoryDisk

PSB = SubscriptionMode.PSB
SHARED = SubscriptionMode.PTP_SHARED
EXCLUSIVE = SubscriptionMode.PTP_EXCLUSIVE


def test_members_share_a_partition_and_each_message_goes_to_one_of_them() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(50)
            share_partition = await world.open()
            assert await world.open() is share_partition, "all members share one object"
            of_ann = offsets_of(share_partition.acquire("ann", records_max=15))
            of_bob = offsets_of(share_partition.acquire("bob", records_max=100))
            assert of_ann == list(range(15))
            assert of_bob == list(range(15, 50))
            assert (share_partition.lag, share_partition.in_flight) == (50, 50)
            assert await share_partition.acknowledge("ann", [accept(0, 9)]) == [None]
            assert (
                share_partition.start_offset,
                share_partition.lag,
                share_partition.in_flight,
            ) == (10, 40, 40)

    run(scenario)


def test_records_travel_as_whole_batches_and_pieces_of_one_as_the_same_object() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(40, batch=20)
            share_partition = await world.open()
            first, second = (share_partition.acquire("ann", records_max=6) for _ in range(2))
            assert first[0].records is second[0].records
            assert [record.offset for record in records(first[0].records)] == list(range(20))
            rest = share_partition.acquire("ann", records_max=100)
            assert offsets_of(rest) == list(range(12, 40))
            assert [r.offset for each in rest for r in records(each.records)] == list(range(40))

    run(scenario)


def test_what_was_acknowledged_is_not_delivered_again_after_a_crash() -> None:
    disk = MemoryDisk()

    async def before() -> None:
        async with broker_without_listeners(disk, crash=True) as world:
            await world.make_topic()
            world.fill(30)
            served = world.partition("t")
            await served.when_durable(served.log_end_offset)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=20)
            await share_partition.acknowledge(
                "ann", [accept(0, 4), accept(10, 12), release(13, 13, "no")]
            )

    async def after() -> None:
        async with broker_without_listeners(disk) as world:
            share_partition = await world.open()
            given = share_partition.acquire("ann", records_max=100)
            assert offsets_of(given) == [*range(5, 10), *range(13, 30)]
            counts = {
                each.first_offset: each.delivery_count for part in given for each in part.ranges
            }
            assert counts[13] == 2, "the failed delivery is counted"

    run(before)
    run(after)


def test_acknowledgements_that_together_only_move_the_start_survive_a_crash() -> None:
    disk = MemoryDisk()

    async def before() -> None:
        async with broker_without_listeners(disk, crash=True) as world:
            await world.make_topic()
            world.fill(30)
            served = world.partition("t")
            await served.when_durable(served.log_end_offset)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=20)
            await share_partition.acknowledge("ann", [accept(0, 4), accept(5, 19)])

    async def after() -> None:
        async with broker_without_listeners(disk) as world:
            share_partition = await world.open()
            given = share_partition.acquire("ann", records_max=100)
            assert offsets_of(given) == list(range(20, 30))

    run(before)
    run(after)


def test_an_acknowledgement_of_offsets_that_are_not_acquired_is_refused_and_changes_nothing() -> (
    None
):
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(10)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=5)
            results = await share_partition.acknowledge(
                "ann", [accept(3, 7), accept(100, 100), accept(0, 1)]
            )
            assert isinstance(results[0], InvalidRecordState), "5 to 7 were never delivered"
            assert isinstance(results[1], InvalidRecordState)
            assert results[2] is None
            (of_bob,) = await share_partition.acknowledge("bob", [accept(2, 2)])
            assert isinstance(of_bob, InvalidRecordState), "ann has acquired it"
            assert (share_partition.start_offset, share_partition.in_flight) == (2, 3)

    run(scenario)


def test_a_lock_that_expires_gives_the_message_to_another_member() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(3)
            share_partition = await world.open()
            woken = asyncio.Event()
            share_partition.watch(woken.set)
            share_partition.acquire("ann", records_max=3, lock_ms=30)
            assert share_partition.acquire("bob", records_max=3) == []
            await woken.wait()
            await until(lambda: share_partition.in_flight == 0)
            (again,) = share_partition.acquire("bob", records_max=3)
            assert again.ranges[0].delivery_count == 2
            (result,) = await share_partition.acknowledge("ann", [accept(0, 0)])
            assert isinstance(result, InvalidRecordState)

    run(scenario)


def test_a_renewed_lock_does_not_expire() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(1)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=1, lock_ms=80)
            renewal = Acknowledgement(
                first_offset=0, last_offset=0, kind=AckKind.RENEW, lock_ms=60_000
            )
            assert await share_partition.acknowledge("ann", [renewal]) == [None]
            # A second share partition's lock of the same length has expired: an unrenewed one would have too.
            other = await world.open("other")
            other.acquire("bob", records_max=1, lock_ms=100)
            await until(lambda: other.in_flight == 0)
            assert share_partition.in_flight == 1

    run(scenario)


def test_new_messages_wake_watchers() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            share_partition = await world.open()
            assert share_partition.acquire("ann", records_max=1) == []
            woken = asyncio.Event()
            unwatch = share_partition.watch(woken.set)
            world.fill(1)
            await woken.wait()
            assert offsets_of(share_partition.acquire("ann", records_max=1)) == [0]
            unwatch()

    run(scenario)


def test_a_member_that_is_gone_leaves_its_messages_to_others() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(4)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=2)
            share_partition.acquire("bob", records_max=2)
            await share_partition.release_member("ann", "its stream ended", counts=False)
            await share_partition.release_member("bob", "it does not answer")
            given = share_partition.acquire("cid", records_max=4)
            counts = [each.delivery_count for part in given for each in part.ranges]
            assert counts == [1, 2], "only a failed delivery counts"

    run(scenario)


def test_a_share_partition_is_bounded_by_its_in_flight_limit() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(
            MemoryDisk(), settings={"delivery.in.flight.max": "7"}
        ) as world:
            await world.make_topic()
            world.fill(30)
            share_partition = await world.open()
            assert len(offsets_of(share_partition.acquire("ann", records_max=100))) == 7
            assert share_partition.acquire("bob", records_max=100) == []
            await share_partition.acknowledge("ann", [accept(0, 2)])
            assert offsets_of(share_partition.acquire("bob", records_max=100)) == [7, 8, 9]

    run(scenario)


def test_the_lag_of_a_group_without_consumers_is_reported_too() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(5)
            share_partition = await world.open('say "g"')
            share_partition.acquire("ann", records_max=5)
            await share_partition.acknowledge("ann", [accept(0, 1), accept(4, 4)])
            await share_partition.release_member("ann", counts=False)
            world.service.close_if_idle(share_partition)
            await until(lambda: share_partition.is_closed)
            world.fill(10)
            rendered = "\n".join(metric.render() for metric in world.coordinator.metrics())
            labels = '{group="say \\"g\\"",topic="t"}'
            assert f"zhumq_subscription_lag{labels} 12" in rendered
            assert f"zhumq_subscription_acknowledged_total{labels} 3" in rendered

    run(scenario)


def test_only_acknowledgements_count_as_acknowledged() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(10)
            share_partition = await world.open(mode=EXCLUSIVE, owner=Owner(member="ann"))
            share_partition.acquire("ann", records_max=10)
            renew = Acknowledgement(first_offset=0, last_offset=9, kind=AckKind.RENEW)
            await share_partition.acknowledge("ann", [renew, accept(0, 2), reject(3, 4)])
            # In order, a nack also releases the later records, which were not nacked.
            await share_partition.acknowledge("ann", [release(5, 5)])
            labels = '{group="g",topic="t"}'
            for is_open in (True, False):
                rendered = "\n".join(metric.render() for metric in world.coordinator.metrics())
                for name, count in (("acknowledged", 3), ("rejected", 2), ("nacked", 1)):
                    assert f"zhumq_subscription_{name}_total{labels} {count}\n" in rendered + "\n"
                if is_open:
                    await share_partition.settle()
                    share_partition.close(NotLeaderOrFollower("the test closes it"))

    run(scenario)


# In order


def test_an_ordered_share_partition_redelivers_from_the_failed_message_on() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(10)
            share_partition = await world.open(mode=EXCLUSIVE, owner=Owner(member="ann", epoch=1))
            share_partition.acquire("ann", records_max=6)
            await share_partition.acknowledge("ann", [accept(0, 1), release(3, 3, "try later")])
            given = share_partition.acquire("ann", records_max=100)
            assert offsets_of(given) == list(range(3, 10)), "2 is still acquired"
            counts = [each.delivery_count for part in given for each in part.ranges]
            assert counts == [2, 1], "the later deliveries do not count"

    run(scenario)


def test_an_earlier_owner_gets_nothing_and_its_acknowledgements_are_refused() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(10)
            share_partition = await world.open(mode=EXCLUSIVE, owner=Owner(member="ann", epoch=1))
            share_partition.acquire("ann", records_max=4)
            assert (
                await world.open(mode=EXCLUSIVE, owner=Owner(member="bob", epoch=2))
                is share_partition
            )
            assert share_partition.acquire("ann", records_max=4) == []
            (result,) = await share_partition.acknowledge("ann", [accept(0, 0)])
            assert isinstance(result, InvalidRecordState)
            with pytest.raises(FencedLeaderEpoch):
                await world.open(mode=EXCLUSIVE, owner=Owner(member="ann", epoch=1))
            assert offsets_of(share_partition.acquire("bob", records_max=4)) == [0, 1, 2, 3]
            # The same owner with a later member epoch keeps what it has acquired.
            await world.open(mode=EXCLUSIVE, owner=Owner(member="bob", epoch=3))
            assert share_partition.in_flight == 4

    run(scenario)


def test_psb_groups_are_independent_and_begin_where_they_say() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(10)
            owner = Owner(member="ann")
            first = await world.open("a", mode=PSB, owner=owner)
            second = await world.open("b", mode=PSB, owner=owner, start=Start.offset(7))
            third = await world.open("c", mode=PSB, owner=owner, start=Start(StartKind.LATEST))
            assert offsets_of(first.acquire("ann", records_max=3)) == [0, 1, 2]
            assert offsets_of(second.acquire("ann", records_max=100)) == [7, 8, 9]
            assert third.acquire("ann", records_max=100) == []
            world.fill(1)
            assert offsets_of(third.acquire("ann", records_max=100)) == [10]
            await first.acknowledge("ann", [accept(0, 2)])
            moved = await world.open("a", mode=PSB, owner=owner, start=Start(StartKind.EARLIEST))
            assert moved is not first
            assert first.is_closed
            assert offsets_of(moved.acquire("ann", records_max=2)) == [0, 1]
            with pytest.raises(OffsetOutOfRange):
                await world.open("d", mode=PSB, owner=owner, start=Start.offset(99))

    run(scenario)


def test_a_share_partition_that_is_not_durable_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(5)
            owner = Owner(member="ann")
            share_partition = await world.open("anonymous", mode=PSB, owner=owner, is_durable=False)
            share_partition.acquire("ann", records_max=5)
            assert await share_partition.acknowledge("ann", [accept(0, 4)]) == [None]
            assert await world.service.share_partitions_of("anonymous") == []

    run(scenario)


# Positions that pull consumers see


def test_an_owner_begins_where_a_pulling_consumer_of_its_group_committed() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(20)
            positions = world.service._positions
            await positions.commit("g", "t", 0, 6, Owner(member=""))
            share_partition = await world.open(mode=EXCLUSIVE, owner=Owner(member="ann"))
            assert offsets_of(share_partition.acquire("ann", records_max=4)) == [6, 7, 8, 9]
            await share_partition.acknowledge("ann", [accept(6, 8)])
            await share_partition.release_member("ann")
            assert await positions.committed("g", "t", 0) == 9, "and commits its own position"
            await positions.commit("g", "t", 0, 15, Owner(member=""))
            again = await world.open(mode=EXCLUSIVE, owner=Owner(member="bob"))
            assert again is share_partition
            assert offsets_of(again.acquire("bob", records_max=2)) == [15, 16]
            # A commit of an earlier offset is ignored: what was acknowledged stays so.
            await positions.commit("g", "t", 0, 2, Owner(member=""))
            await world.open(mode=EXCLUSIVE, owner=Owner(member="bob"))
            assert offsets_of(again.acquire("bob", records_max=2)) == [17, 18]

    run(scenario)


def test_the_position_of_a_psb_group_is_committed_behind_it() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(10)
            share_partition = await world.open(mode=PSB, owner=Owner(member="ann"))
            share_partition.acquire("ann", records_max=7)
            await share_partition.acknowledge("ann", [accept(0, 6)])
            positions = world.service._positions
            while await positions.committed("g", "t", 0) != 7:
                await asyncio.sleep(0.01)

    run(scenario)


def test_an_idle_share_partition_is_closed_only_when_its_dead_letters_are_written() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(2)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=2)
            await share_partition.acknowledge("ann", [reject(0, 1, "bad")])
            await share_partition.release_member("ann", counts=False)
            world.service.close_if_idle(share_partition)
            await until(lambda: share_partition.is_closed)
            assert len(world.dead_letters()) == 2
            assert (await world.open()).start_offset == 2
            assert world.service.counters.dead_letters == {("g", "t"): 2}

    run(scenario)


def test_an_idle_share_partition_that_is_opened_again_in_time_stays_open() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            world.fill(2)
            share_partition = await world.open()
            share_partition.acquire("ann", records_max=2)
            await share_partition.acknowledge("ann", [reject(0, 1, "bad")])
            await share_partition.release_member("ann", counts=False)
            world.service.close_if_idle(share_partition)
            assert await world.open() is share_partition
            await until(lambda: share_partition.start_offset == 2)
            await share_partition.settle()
            unwatch = share_partition.watch(lambda: None)
            world.service.close_if_idle(share_partition)
            await share_partition.settle()
            assert not share_partition.is_closed, "a member watches it"
            unwatch()
            world.service.close_if_idle(share_partition)
            await until(lambda: share_partition.is_closed)

    run(scenario)
