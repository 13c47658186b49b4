"""Three brokers on a real ZooKeeper: partitions get live leaders after any failure, in any order."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from functools import partial

from zookeeper_support import LIMITS, Member, alone_in_sync, expire, join, wait_for

from zhumq.metadata.image import NO_BROKER, ClusterImage
from zhumq.metadata.leadership import LogEnd
from zhumq.metadata.topics import NewTopic, plan_topic
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset


@contextlib.asynccontextmanager
async def three_brokers(chroot: str, partitions: int) -> AsyncIterator[list[Member]]:
    """Three brokers and a topic with a replica on each; the first broker is the controller."""
    members = []
    for number in (1, 2, 3):
        members.append(await join(chroot, number))
        await wait_for(lambda: members[0].store.image.controller_id == 1)
    new_topic = NewTopic(name="t", partitions=partitions)
    await wait_for(lambda: len(members[0].store.image.brokers) == 3)
    await members[0].store.transact(
        lambda image: ([plan_topic(image, new_topic, uuid.uuid4(), LIMITS)], ())
    )
    await wait_for(lambda: all("t" in member.store.image.topics for member in members))
    try:
        yield members
    finally:
        for member in members:
            await member.close()


def leaders(image: ClusterImage) -> set[BrokerId]:
    return {image.leader_of(state) for topic in image.topics.values() for state in topic.partitions}


def test_a_dead_brokers_partitions_get_leaders_in_one_metadata_image(chroot: str) -> None:
    async def scenario() -> None:
        async with three_brokers(chroot, 900) as members:
            one, two, three = members
            led = len(three.leads)
            assert led > 200
            images: list[ClusterImage] = []
            two.store.watch(images.append)
            await three.close()
            await wait_for(lambda: leaders(two.store.image) == {1, 2})
            assert BrokerId(3) not in two.store.image.brokers
            assert len(images) == 1
            assert len(one.leads) + len(two.leads) == 900
            assert len(set(one.asked)) == led

    asyncio.run(scenario())


def test_when_the_controller_fails_the_next_one_names_leaders_for_its_partitions(
    chroot: str,
) -> None:
    async def scenario() -> None:
        async with three_brokers(chroot, 30) as (one, two, three):
            await one.close()
            await wait_for(lambda: leaders(three.store.image) == {2, 3})
            assert three.store.image.controller_epoch == 2
            assert two.store.image == three.store.image

    asyncio.run(scenario())


def test_a_broker_that_lost_its_session_leads_only_in_new_epochs(chroot: str) -> None:
    async def scenario() -> None:
        async with three_brokers(chroot, 30) as (one, two, three):
            before = {
                name: two.store.image.partition(name).leader_epoch  # type: ignore[union-attr]
                for name in two.leads
            }
            assert before
            first = two.store.broker_epoch
            await expire(two.store, chroot)
            await wait_for(lambda: two.store.broker_epoch not in (None, first))
            await wait_for(lambda: NO_BROKER not in leaders(one.store.image))
            for name, epoch in before.items():
                state = one.store.image.partition(name)
                assert state is not None
                assert state.leader_epoch > epoch
            await wait_for(lambda: two.store.image.version == one.store.image.version)
            led = [*one.leads, *two.leads, *three.leads]
            assert len(led) == len(set(led)) == 30

    asyncio.run(scenario())


def test_the_replica_with_the_largest_log_end_leads(chroot: str) -> None:
    async def scenario() -> None:
        async with three_brokers(chroot, 3) as (one, two, three):
            (name,) = three.leads
            state = one.store.image.partition(name)
            assert state is not None
            # With unknown log ends the first of the two would lead.
            first, second = (each for each in state.replicas if each != 3)
            one.log_ends = {
                name: {
                    first: LogEnd(LeaderEpoch(0), Offset(900)),
                    second: LogEnd(LeaderEpoch(1), Offset(5)),
                }
            }
            await three.close()
            await wait_for(lambda: name in [*one.leads, *two.leads])
            state = one.store.image.partition(name)
            assert state is not None
            assert state.leader == second

    asyncio.run(scenario())


def test_in_sync_sets_change_beside_elections_and_none_is_lost(chroot: str) -> None:
    async def scenario() -> None:
        async with three_brokers(chroot, 12) as (one, two, three):

            async def shrink(member: Member) -> int:
                """As a leader does that has lost its followers."""
                led = list(member.leads)
                for name in led:
                    await member.store.transact(partial(alone_in_sync, name, member))
                return len(led)

            mine, yours, _ = await asyncio.gather(shrink(one), shrink(two), three.close())
            await wait_for(lambda: NO_BROKER not in leaders(one.store.image))
            await wait_for(lambda: BrokerId(3) not in one.store.image.brokers)
            await wait_for(lambda: two.store.image.version == one.store.image.version)
            alone = [
                state
                for state in one.store.image.topics["t"].partitions
                if state.in_sync == (state.leader,)
            ]
            assert len(alone) == mine + yours
            assert all(3 not in state.in_sync for state in one.store.image.topics["t"].partitions)

    asyncio.run(scenario())


def test_without_an_in_sync_replica_a_partition_waits_for_one(chroot: str) -> None:
    async def scenario() -> None:
        async with three_brokers(chroot, 3) as members:
            one, two, three = members
            (name,) = three.leads
            await one.store.transact(partial(alone_in_sync, name, three))
            await wait_for(lambda: three.store.image.version == one.store.image.version)
            await three.close()
            await wait_for(lambda: NO_BROKER in leaders(two.store.image))
            await wait_for(lambda: BrokerId(3) not in two.store.image.brokers)
            assert set(two.store.image.partition(name).in_sync) == {3}  # type: ignore[union-attr]
            members[2] = await join(chroot, 3)
            await wait_for(lambda: members[2].leads == [name])

    asyncio.run(scenario())
