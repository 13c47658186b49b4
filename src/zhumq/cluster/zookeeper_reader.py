"""Reads the whole metadata image from ZooKeeper's nodes while other brokers change them."""

from collections.abc import Mapping

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.znodes import Client, NodeMissing
from zhumq.metadata.changes import BrokerRegistered, Change, Draft, TopicCreated
from zhumq.metadata.image import Broker, ClusterImage, Topic
from zhumq.metadata.security import SecurityChange, SecurityImage, apply_security_changes
from zhumq.model.ids import BrokerId

READS_MAX = 10


async def read_image(client: Client) -> tuple[ClusterImage, int]:
    """The newest metadata image, and the matching version of the node /version.

    The state nodes are read concurrently with changes, so some are newer than the image version that
    was read first. The entries of /changes since that version complete the others. A node that was
    modified by an entry, or after it, already contains the entry.
    """
    for _ in range(READS_MAX):
        found = await _read_once(client)
        if found is not None:
            return found
    raise StoreUnusable("the nodes in ZooKeeper change faster than they can be read")


async def _read_once(client: Client) -> tuple[ClusterImage, int] | None:
    try:
        cluster_id = layout.decode_format((await client.get(layout.FORMAT)).data)
        counters = layout.decode_counters((await client.get(layout.VERSION)).data)
    except NodeMissing as missing:
        raise StoreUnusable(f"the node {missing.path} is missing in ZooKeeper") from None
    controller_id, controller_epoch = layout.decode_controller(
        (await client.get(layout.CONTROLLER)).data
    )
    modified: dict[str, int] = {}
    topics = await _read_topics(client, modified)
    brokers = await _read_brokers(client, modified)
    (settings,) = await client.get_all([layout.SETTINGS])
    security = await _read_security(client)
    image = ClusterImage(
        version=counters.version,
        cluster_id=cluster_id,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        brokers=brokers,
        topics=topics,
        topics_by_id={topic.topic_id: topic for topic in topics.values()},
        partition_count=sum(len(topic.partitions) for topic in topics.values()),
        next_producer_id=counters.next_producer_id,
        broker_settings={} if settings is None else layout.decode_settings(settings.data),
        security=security,
    )
    return await _add_entries_since(client, image, modified)


async def _add_entries_since(
    client: Client, image: ClusterImage, modified: Mapping[str, int]
) -> tuple[ClusterImage, int] | None:
    node = await client.get(layout.VERSION)
    newest = layout.decode_counters(node.data).version
    paths = [layout.entry_path(version) for version in range(image.version + 1, newest + 1)]
    for path, entry in zip(paths, await client.get_all(paths), strict=True):
        if entry is None:
            return None  # The entry was deleted after many newer changes: read again.
        draft = Draft(image)
        for change in layout.decode_entry(path, entry.data).changes:
            if _lacks(draft, change, modified, entry.created_zxid):
                draft.apply(change)
        image = draft.finish()
    return image, node.version


def _lacks(draft: Draft, change: Change, modified: Mapping[str, int], entry_zxid: int) -> bool:
    subject = layout.subject_of(change)
    if subject is None:
        return True
    if modified.get(subject, 0) >= entry_zxid:
        return False
    if isinstance(change, TopicCreated | BrokerRegistered):
        return True
    # A missing node was changed and deleted before it was read.
    kind, _, name = subject[1:].partition("/")
    return name in draft.topics if kind == "topics" else BrokerId(int(name)) in draft.brokers


async def _read_topics(client: Client, modified: dict[str, int]) -> dict[str, Topic]:
    paths = [layout.topic_path(name) for name in sorted(await client.children(layout.TOPICS))]
    topics: dict[str, Topic] = {}
    for path, node in zip(paths, await client.get_all(paths), strict=True):
        if node is not None:
            topic = layout.decode_topic(path, node.data)
            topics[topic.name] = topic
            modified[path] = node.modified_zxid
    return topics


async def _read_security(client: Client) -> SecurityImage:
    paths = [f"{layout.SECURITY}/{name}" for name in await client.children(layout.SECURITY)]
    changes: list[SecurityChange] = []
    for path, node in zip(paths, await client.get_all(paths), strict=True):
        if node is not None:
            changes += layout.decode_bucket(path, node.data)
    return apply_security_changes(SecurityImage(), changes)


async def _read_brokers(client: Client, modified: dict[str, int]) -> dict[BrokerId, Broker]:
    paths = [f"{layout.BROKERS}/{name}" for name in sorted(await client.children(layout.BROKERS))]
    brokers: dict[BrokerId, Broker] = {}
    for path, node in zip(paths, await client.get_all(paths), strict=True):
        if node is not None:
            broker = layout.decode_broker(path, node.data)
            brokers[broker.broker_id] = broker
            modified[path] = node.modified_zxid
    return brokers
