"""The contract of every metadata store, local or on ZooKeeper."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from zhumq.broker.settings import BROKER_SETTINGS, MOVE_RATE_SETTING
from zhumq.cluster.dev_zookeeper import DevZookeeper
from zhumq.cluster.local_store import JOURNAL_ENTRIES_MAX, JOURNAL_NAME, LocalStore
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore, VersionConflict
from zhumq.cluster.zookeeper_store import ZookeeperStore
from zhumq.host.disk import SystemDisk
from zhumq.metadata.changes import PartitionChanged, ProducerIdsAllocated
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, Topic
from zhumq.metadata.security import (
    AclsChanged,
    CredentialsChanged,
    QuotasChanged,
    SecurityChange,
    SecurityImage,
)
from zhumq.metadata.topics import NewTopic, TopicLimits
from zhumq.model.errors import BrokerError, DataDirUnusable, TopicAlreadyExists
from zhumq.model.ids import BrokerId, LeaderEpoch
from zhumq.security.acl import AclEntry, Operation, Permission, ResourcePattern, ResourceType
from zhumq.security.credential import ScramCredential, ScramMechanism

BROKER = Broker(broker_id=BrokerId(1), host="127.0.0.1", port=9092)
LIMITS = TopicLimits(
    default_partitions=2,
    default_replication_factor=1,
    partitions_per_topic_max=100,
    partitions_in_all_max=100_000,
)
Open = Callable[[], Awaitable[MetadataStore]]


@pytest.fixture(params=["local", "zookeeper"])
def open_store(request: pytest.FixtureRequest) -> Open:
    """Opens the same store on every call, for the broker above."""
    opener: Open = request.getfixturevalue(f"open_{request.param}")
    return opener


@pytest.fixture
def open_zookeeper(zookeeper: DevZookeeper) -> Open:
    ensemble = f"{zookeeper.connect}/{uuid.uuid4()}"

    async def open_it() -> MetadataStore:
        store = await ZookeeperStore.open(ensemble, new_cluster_id="c", create_chroot=True)
        await store.register(BROKER)
        return store

    return open_it


@pytest.fixture
def open_local(tmp_path: Path) -> Open:
    async def open_it() -> MetadataStore:
        store = LocalStore.open(
            tmp_path, disk=SystemDisk(), cluster_id="c", broker_id=BROKER.broker_id
        )
        await store.register(BROKER)
        return store

    return open_it


def metadata_client(store: MetadataStore) -> MetadataClient:
    return MetadataClient(store, LIMITS, uuid.uuid4)


def test_a_change_is_seen_by_watchers_before_the_proposal_returns(open_store: Open) -> None:
    async def scenario() -> None:
        store = await open_store()
        seen: list[ClusterImage] = []
        store.watch(seen.append)
        image = await store.propose([ProducerIdsAllocated(next_producer_id=7)], store.image.version)
        assert seen == [image]
        assert store.image is image
        assert image.next_producer_id == 7
        await store.close()

    asyncio.run(scenario())


def test_a_proposal_on_an_old_version_is_refused(open_store: Open) -> None:
    async def scenario() -> None:
        store = await open_store()
        version = store.image.version
        await store.propose([ProducerIdsAllocated(next_producer_id=1)], version)
        with pytest.raises(VersionConflict):
            await store.propose([ProducerIdsAllocated(next_producer_id=2)], version)
        assert store.image.next_producer_id == 1
        await store.close()

    asyncio.run(scenario())


def test_proposed_changes_are_there_after_a_restart(open_store: Open) -> None:
    async def scenario() -> None:
        store = await open_store()
        client = metadata_client(store)
        new_topics = [NewTopic(name="a", settings={"retention.ms": "1"}), NewTopic(name="b")]
        await client.create_topics(new_topics)
        await client.add_partitions([("a", 5, None)])
        await client.delete_topics(["b"])
        before = store.image
        await store.close()
        again = await open_store()
        assert again.image.topics == before.topics
        assert again.image.topics_by_id == before.topics_by_id
        await again.close()

    asyncio.run(scenario())


def test_broker_settings_are_there_after_a_restart_until_they_are_removed(
    open_store: Open,
) -> None:
    rate = MOVE_RATE_SETTING

    async def scenario() -> None:
        store = await open_store()
        client = metadata_client(store)
        for who, value in (("", "100"), ("1", "200"), ("2", None)):
            await client.change_broker_settings(
                who, lambda before, value=value: {**before, rate: value}, BROKER_SETTINGS
            )
        assert store.image.broker_settings == {"": {rate: "100"}, "1": {rate: "200"}}
        await store.close()
        again = await open_store()
        assert again.image.broker_setting(BrokerId(1), rate) == "200"
        assert again.image.broker_setting(BrokerId(2), rate) == "100"
        client = metadata_client(again)
        for who in ("", "1"):
            await client.change_broker_settings(who, lambda _: {}, BROKER_SETTINGS)
        assert again.image.broker_setting(BrokerId(1), rate) is None
        await again.close()
        third = await open_store()
        assert third.image.broker_settings == {}
        await third.close()

    asyncio.run(scenario())


def test_acls_credentials_and_quotas_are_there_after_a_restart_until_they_are_removed(
    open_store: Open,
) -> None:
    entry = AclEntry("User:a", "*", Operation.READ, Permission.ALLOW)
    # More than one proposal takes.
    names = [ResourcePattern(ResourceType.TOPIC, f"t{index}") for index in range(100)]
    credential = ScramCredential(salt=b"s", iterations=4096, stored_key=b"k", server_key=b"v")
    user = CredentialsChanged(
        user="a",
        credentials=dict.fromkeys([ScramMechanism.SHA_256, ScramMechanism.SHA_512], credential),
    )
    quota = QuotasChanged(entity=(("user", "a"),), quotas={"producer_byte_rate": 5.0})

    def missing(image: SecurityImage) -> list[SecurityChange]:
        acls = [
            AclsChanged(resource=name, entries=frozenset([entry]))
            for name in names
            if name not in image.acls
        ]
        return [*acls, *([] if image.users else [user]), *([] if image.quotas else [quota])]

    async def scenario() -> None:
        store = await open_store()
        await metadata_client(store).change_security(missing)
        written = store.image.security
        assert set(written.acls) == set(names)
        await store.close()
        again = await open_store()
        assert again.image.security == written
        assert again.image.security.users == {"a": user.credentials}
        await metadata_client(again).change_security(
            lambda image: [AclsChanged(resource=name, entries=frozenset()) for name in image.acls]
        )
        await again.close()
        third = await open_store()
        assert third.image.security == replace(written, acls={})
        await third.close()

    asyncio.run(scenario())


def test_a_registered_broker_is_in_the_metadata_image(open_store: Open) -> None:
    async def scenario() -> None:
        store = await open_store()
        registered = store.image.brokers[BROKER.broker_id]
        assert replace(registered, epoch=0) == BROKER
        await store.close()

    asyncio.run(scenario())


def test_a_partitions_leader_and_in_sync_set_are_there_after_a_restart(open_store: Open) -> None:
    async def scenario() -> None:
        store = await open_store()
        await metadata_client(store).create_topics([NewTopic(name="a")])
        led = store.image.topics["a"].partitions[1]
        state = replace(
            led, leader=NO_BROKER, leader_epoch=LeaderEpoch(led.leader_epoch + 1), partition_epoch=1
        )
        change = PartitionChanged(name="a", partition=1, state=state)
        image = await store.propose([change], store.image.version)
        assert image.topics["a"].partitions == (led, state)
        await store.close()
        again = await open_store()
        assert again.image.topics["a"].partitions == (led, state)
        await again.close()

    asyncio.run(scenario())


def test_concurrent_requests_are_all_carried_out_once(open_store: Open) -> None:
    async def scenario() -> None:
        store = await open_store()
        clients = [metadata_client(store) for _ in range(4)]
        results = await asyncio.gather(
            *(client.create_topics([NewTopic(name="same")]) for client in clients),
            *(
                client.create_topics([NewTopic(name=f"own-{index}")])
                for index, client in enumerate(clients)
            ),
        )
        same = [result[0] for result in results[:4]]
        assert sum(isinstance(each, Topic) for each in same) == 1
        assert sum(isinstance(each, TopicAlreadyExists) for each in same) == 3
        assert set(store.image.topics) == {"same", *(f"own-{index}" for index in range(4))}
        await store.close()

    asyncio.run(scenario())


def test_a_cancelled_request_leaves_store_and_metadata_image_equal(open_store: Open) -> None:
    async def scenario() -> None:
        store = await open_store()
        task = asyncio.ensure_future(metadata_client(store).create_topics([NewTopic(name="t")]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()
        again = await open_store()
        assert set(again.image.topics) == set(store.image.topics)
        await again.close()

    asyncio.run(scenario())


def test_validation_alone_changes_nothing(open_store: Open) -> None:
    async def scenario() -> None:
        store = await open_store()
        client = metadata_client(store)
        results = await client.create_topics(
            [NewTopic(name="t"), NewTopic(name="t"), NewTopic(name="!")], validate_only=True
        )
        assert isinstance(results[0], Topic)
        assert all(isinstance(each, BrokerError) for each in results[1:])
        assert not store.image.topics
        await store.close()

    asyncio.run(scenario())


def test_producer_ids_are_never_given_twice(open_store: Open) -> None:
    async def scenario() -> None:
        given: list[int] = []
        for _ in range(2):
            store = await open_store()
            clients = [metadata_client(store), metadata_client(store)]
            for _ in range(1_500):
                given.extend([await client.next_producer_id() for client in clients])
            await store.close()
        assert len(set(given)) == len(given)

    asyncio.run(scenario())


def test_a_torn_last_line_is_dropped_and_a_damaged_one_refuses_the_start(
    open_local: Open, tmp_path: Path
) -> None:
    async def scenario() -> None:
        store = await open_local()
        for name in ("a", "b", "c"):
            await metadata_client(store).create_topics([NewTopic(name=name)])
        await store.close()
        journal = tmp_path / JOURNAL_NAME
        whole = journal.read_bytes()
        start_of_last = whole.rindex(b"\n", 0, -1) + 1
        for cut in range(start_of_last, len(whole)):
            journal.write_bytes(whole[:cut])
            again = await open_local()
            assert set(again.image.topics) == {"a", "b"}
            await again.close()
            assert journal.read_bytes() == whole[:start_of_last]
        damaged = bytearray(whole)
        damaged[20] ^= 1
        journal.write_bytes(damaged)
        with pytest.raises(DataDirUnusable, match="damaged at byte 0"):
            await open_local()

    asyncio.run(scenario())


@pytest.mark.thorough
def test_the_journal_does_not_grow_for_ever(open_local: Open, tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await open_local()
        for value in range(JOURNAL_ENTRIES_MAX * 2 + 10):
            change = ProducerIdsAllocated(next_producer_id=value)
            await store.propose([change], store.image.version)
        await store.close()
        assert (tmp_path / JOURNAL_NAME).read_bytes().count(b"\n") <= JOURNAL_ENTRIES_MAX
        again = await open_local()
        assert again.image.next_producer_id == JOURNAL_ENTRIES_MAX * 2 + 9
        await again.close()

    asyncio.run(scenario())


def test_the_folder_of_another_broker_is_refused_with_its_number(
    open_local: Open, tmp_path: Path
) -> None:
    async def scenario() -> None:
        store = await open_local()
        await metadata_client(store).create_topics([NewTopic(name="t")])
        await store.close()
        with pytest.raises(DataDirUnusable, match="--broker-id 1"):
            LocalStore.open(tmp_path, disk=SystemDisk(), cluster_id="c", broker_id=BrokerId(2))

    asyncio.run(scenario())
