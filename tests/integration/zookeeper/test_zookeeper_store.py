"""The ZooKeeper store beyond the contract of every metadata store."""

import asyncio
import random
import uuid
from collections.abc import Sequence

import pytest
from kazoo.client import KazooClient
from zookeeper_support import (
    broker,
    change,
    close_all,
    open_store,
    partition_changed,
    state,
    topic_created,
    wait_for,
)

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster import zookeeper_store
from zhumq.cluster.dev_zookeeper import DevZookeeper
from zhumq.cluster.store import StoreUnusable, VersionConflict
from zhumq.cluster.znodes import Client, ConnectionLost, Create, Delete, Operation
from zhumq.cluster.zookeeper_reader import read_image
from zhumq.cluster.zookeeper_store import ZookeeperStore
from zhumq.metadata.changes import (
    Change,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicDeleted,
    TopicSettingsChanged,
)
from zhumq.metadata.image import ClusterImage
from zhumq.metadata.security import AclsChanged
from zhumq.model.errors import PolicyViolation
from zhumq.security.acl import (
    AclEntry,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.acl import (
    Operation as AclOperation,
)


def test_every_broker_sees_every_metadata_image_in_order(chroot: str) -> None:
    async def scenario() -> None:
        stores = [await open_store(chroot) for _ in range(3)]
        images: list[list[ClusterImage]] = [[] for _ in stores]
        for store, seen in zip(stores, images, strict=True):
            store.watch(seen.append)

        async def write(store: ZookeeperStore, name: str) -> None:
            for index in range(20):
                await change(store, topic_created(f"{name}-{index}"))

        await asyncio.gather(write(stores[0], "a"), write(stores[1], "b"))
        await wait_for(lambda: all(store.image.version == 40 for store in stores))
        for seen in images:
            assert [image.version for image in seen] == list(range(1, 41))
        assert images[0] == images[1] == images[2]
        await close_all(stores)

    asyncio.run(scenario())


def test_a_cluster_of_a_release_without_security_nodes_gets_them(chroot: str) -> None:
    async def scenario() -> None:
        store = await open_store(chroot)
        await store.close()
        client = KazooClient(chroot)
        client.start()
        client.delete(layout.SECURITY)
        client.stop()
        client.close()
        stores = await asyncio.gather(*(open_store(chroot) for _ in range(2)))
        entry = AclEntry("User:a", "*", AclOperation.READ, Permission.ALLOW)
        resource = ResourcePattern(ResourceType.TOPIC, "t")
        await change(stores[0], AclsChanged(resource=resource, entries=frozenset([entry])))
        await wait_for(lambda: stores[1].image.security.acls == {resource: {entry}})
        await close_all(stores)

    asyncio.run(scenario())


def test_a_thousand_partitions_change_in_one_round_trip(chroot: str) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        names = [f"t-{index}" for index in range(500)]
        await change(store, *(topic_created(name, 2) for name in names))
        sent: list[int] = []
        multi = store._client.multi

        async def counted(operations: Sequence[Operation]) -> list[str]:
            sent.append(len(operations))
            return await multi(operations)

        store._client.multi = counted  # type: ignore[method-assign]
        changes = [partition_changed(name, index, 1) for name in names for index in range(2)]
        await store.propose(changes, store.image.version)
        assert sent == [2 + len(names)]
        await wait_for(lambda: other.image.version == store.image.version)
        assert other.image == store.image
        assert {topic.partitions for topic in other.image.topics.values()} == {(state(2, 1),) * 2}
        await close_all([store, other])

    asyncio.run(scenario())


def test_a_topic_of_ten_thousand_partitions_fits(chroot: str) -> None:
    async def scenario() -> None:
        store = await open_store(chroot)
        await change(store, topic_created("wide", 10_000))
        await store.propose([partition_changed("wide", 9_999, 1)], store.image.version)
        again = await open_store(chroot)
        assert again.image == store.image
        await close_all([store, again])

    asyncio.run(scenario())


def test_a_change_too_large_for_zookeeper_is_refused_and_changes_nothing(chroot: str) -> None:
    async def scenario() -> None:
        store = await open_store(chroot)
        draw = random.Random(7)
        settings = {"long": "".join(chr(draw.randrange(33, 127)) for _ in range(1_500_000))}
        await change(store, topic_created("t"))
        with pytest.raises(PolicyViolation, match="accepts 1000000"):
            await store.propose(
                [TopicSettingsChanged(name="t", settings=settings)], store.image.version
            )
        await store.propose([ProducerIdsAllocated(next_producer_id=1)], store.image.version)
        assert not store.image.topics["t"].settings
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("arrived", [True, False])
def test_a_proposal_whose_answer_is_lost_counts_once(chroot: str, arrived: bool) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        multi = store._client.multi
        attempts = 0

        async def lossy(operations: Sequence[Operation]) -> list[str]:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                if arrived:
                    await multi(operations)
                raise ConnectionLost("/version")
            return await multi(operations)

        store._client.multi = lossy  # type: ignore[method-assign]
        image = await store.propose([topic_created("t")], store.image.version)
        assert image.version == 1
        assert attempts == 2
        await wait_for(lambda: other.image.version == 1)
        await other.propose([topic_created("u")], 1)
        await wait_for(lambda: store.image.version == 2)
        assert store.image == other.image
        await close_all([store, other])

    asyncio.run(scenario())


def test_a_lost_proposal_that_another_one_overtook_is_a_conflict(chroot: str) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        multi = store._client.multi
        attempts = 0

        async def lossy(operations: Sequence[Operation]) -> list[str]:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                await other.propose([topic_created("u")], 0)
                raise ConnectionLost("/version")
            return await multi(operations)

        store._client.multi = lossy  # type: ignore[method-assign]
        with pytest.raises(VersionConflict):
            await store.propose([topic_created("t")], 0)
        assert set(store.image.topics) == {"u"}
        await close_all([store, other])

    asyncio.run(scenario())


def test_a_broker_far_behind_reads_the_whole_metadata_image(chroot: str) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        seen: list[int] = []
        other.watch(lambda image: seen.append(image.version))
        count = layout.ENTRIES_KEPT + 70
        async with other._lock:
            for value in range(count):
                allocated = ProducerIdsAllocated(next_producer_id=value)
                await store.propose([allocated], store.image.version)
        await wait_for(lambda: other.image.version == count)
        assert seen == [count]
        assert other.image == store.image
        await other.propose([topic_created("t")], count)
        kept = await store._client.children(layout.CHANGES)
        assert len(kept) <= layout.ENTRIES_KEPT + 64
        await close_all([store, other])

    asyncio.run(scenario())


def test_a_broker_that_finds_an_entry_deleted_reads_the_whole_metadata_image(chroot: str) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        seen: list[int] = []
        other.watch(lambda image: seen.append(image.version))
        async with other._lock:
            for index in range(3):
                await change(store, topic_created(f"t-{index}"))
            await store._client.multi([Delete(path=layout.entry_path(2))])
        await wait_for(lambda: other.image.version == 3)
        assert seen == [3]
        assert other.image == store.image
        await close_all([store, other])

    asyncio.run(scenario())


@pytest.mark.thorough
def test_an_image_read_during_writes_is_one_that_existed(chroot: str) -> None:
    async def scenario() -> None:
        writer, reader = await open_store(chroot), await open_store(chroot)
        await change(writer, *(topic_created(f"t-{index}", 3) for index in range(40)))
        images = {writer.image.version: writer.image}
        writer.watch(lambda image: images.update({image.version: image}))
        draw = random.Random(3)
        writing = asyncio.ensure_future(_write_at_random(writer, draw, 300))
        read: list[ClusterImage] = []
        while not writing.done():
            image, _ = await read_image(reader._client)
            read.append(image)
        await writing
        assert len({image.version for image in read}) > 5
        for image in read:
            assert image == images[image.version]
        await close_all([writer, reader])

    asyncio.run(scenario())


async def _write_at_random(store: ZookeeperStore, draw: random.Random, count: int) -> None:
    for epoch in range(1, count + 1):
        changes: list[Change] = []
        for name in draw.sample(sorted(store.image.topics), 2):
            topic = store.image.topics[name]
            match draw.randrange(4):
                case 0:
                    changes.append(TopicDeleted(name=name, topic_id=topic.topic_id))
                    if draw.random() < 0.5:
                        changes.append(topic_created(name, 2))
                case 1:
                    changes.append(PartitionsAdded(name=name, partitions=(state(2),)))
                case 2:
                    changes.append(TopicSettingsChanged(name=name, settings={"e": str(epoch)}))
                case _:
                    changes.append(partition_changed(name, 0, epoch))
        changes.append(topic_created(f"new-{epoch}"))
        await store.propose(changes, store.image.version)


def test_a_damaged_node_is_named(chroot: str) -> None:
    async def scenario() -> None:
        store = await open_store(chroot)
        await store._client.multi([Create(path="/topics/bad", data=b"{")])
        with pytest.raises(StoreUnusable, match="/topics/bad"):
            await open_store(chroot)
        await store.close()

    asyncio.run(scenario())


# Starting


def test_an_ensemble_that_is_down_is_a_clear_error_in_bounded_time() -> None:
    with pytest.raises(StoreUnusable, match=r"no ZooKeeper answers at 127\.0\.0\.1:1/x within"):
        asyncio.run(open_store("127.0.0.1:1/x", connect_ms_max=500))


def test_opening_survives_a_connection_that_breaks_during_the_read(
    chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = [ConnectionLost("/version"), ConnectionLost("/")]

    async def breaking(client: Client) -> tuple[ClusterImage, int]:
        if breaks:
            raise breaks.pop()
        return await read_image(client)

    monkeypatch.setattr(zookeeper_store, "read_image", breaking)

    async def scenario() -> None:
        store = await open_store(chroot)
        assert not breaks
        await change(store, topic_created("t"))
        await close_all([store])

    asyncio.run(scenario())


def test_an_invalid_ensemble_is_refused() -> None:
    with pytest.raises(StoreUnusable, match="names no ZooKeeper ensemble"):
        asyncio.run(open_store("127.0.0.1:port", connect_ms_max=500))


def test_a_missing_chroot_is_named(zookeeper: DevZookeeper) -> None:
    missing = uuid.uuid4()
    with pytest.raises(StoreUnusable, match=f"there is no node /{missing}"):
        asyncio.run(open_store(f"{zookeeper.connect}/{missing}", create_chroot=False))


def test_nodes_of_another_application_are_not_touched(chroot: str) -> None:
    async def scenario() -> None:
        store = await open_store(chroot)
        await store._client.multi([Create(path="/kafka"), Create(path="/kafka/brokers")])
        with pytest.raises(StoreUnusable, match="/brokers that is not zhumq's"):
            await open_store(f"{chroot}/kafka")
        assert await store._client.children("/kafka") == ["brokers"]
        await store.close()

    asyncio.run(scenario())


def test_the_data_of_another_cluster_is_refused(chroot: str) -> None:
    async def scenario() -> None:
        store = await open_store(chroot)
        assert store.image.cluster_id == "c"
        with pytest.raises(StoreUnusable, match="belongs to cluster other"):
            await open_store(chroot, expected_cluster_id="other")
        await store.close()

    asyncio.run(scenario())


def test_brokers_that_create_a_cluster_together_create_one(chroot: str) -> None:
    async def scenario() -> None:
        stores = await asyncio.gather(*(open_store(chroot) for _ in range(4)))
        await asyncio.gather(*(store.register(broker(i)) for i, store in enumerate(stores)))
        await wait_for(lambda: all(len(store.image.brokers) == 4 for store in stores))
        assert len({store.image.version for store in stores}) == 1
        await close_all(stores)

    asyncio.run(scenario())
