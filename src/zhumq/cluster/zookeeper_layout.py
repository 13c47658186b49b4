"""The metadata image as ZooKeeper nodes, and the nodes that a change writes.

    /format        the version of this layout and the cluster id
    /secret        the secret by which brokers of this cluster authenticate each other
    /version       the version of the newest image and the counters: the one node that all brokers watch
    /changes/N     the changes from image N-1 to image N; only the newest entries are kept
    /topics/NAME   a topic with all its partitions
    /settings      dynamic broker settings; missing while there are none
    /security/..   ACLs, credentials of users and client quotas, in buckets by a hash
    /brokers/ID    a broker's last registration, until the controller declares it gone
    /live/ID       ephemeral: the broker's session is alive
    /candidates/.. ephemeral and sequential: the first candidate becomes controller
    /controller    the last elected controller and its epoch

Every change is one transaction: it raises /version from the version it was decided on, adds an entry
to /changes, and updates the state nodes. So a change is atomic and decided on the newest image. A
running broker follows by reading new entries, with one watch for any number of topics. A starting
broker reads the state nodes and no history.
"""

import json
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.znodes import Create, Delete, Operation, SetData
from zhumq.metadata.changes import (
    BrokerGone,
    BrokerRegistered,
    BrokerSettingsChanged,
    Change,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    TopicSettingsChanged,
    change_from_json,
    change_to_json,
)
from zhumq.metadata.image import Broker, ClusterImage, Topic
from zhumq.metadata.security import (
    AclsChanged,
    CredentialsChanged,
    QuotasChanged,
    SecurityChange,
    security_change_from_json,
    security_change_to_json,
    security_changes_of,
)
from zhumq.model.errors import PolicyViolation
from zhumq.model.ids import BrokerId

LAYOUT: Final = 1
FORMAT: Final = "/format"
SECRET: Final = "/secret"  # noqa: S105 (the name of a node)
VERSION: Final = "/version"
CHANGES: Final = "/changes"
TOPICS: Final = "/topics"
BROKERS: Final = "/brokers"
SETTINGS: Final = "/settings"
SECURITY: Final = "/security"
LIVE: Final = "/live"
CANDIDATES: Final = "/candidates"
CONTROLLER: Final = "/controller"
OWN_NODES: Final = frozenset(
    {
        FORMAT,
        SECRET,
        VERSION,
        CHANGES,
        TOPICS,
        BROKERS,
        SETTINGS,
        SECURITY,
        LIVE,
        CANDIDATES,
        CONTROLLER,
    }
)
# A broker further behind than this reads the state nodes again instead of the entries.
ENTRIES_KEPT: Final = 256
# ZooKeeper accepts a little less than 1 MiB in one request (jute.maxbuffer), paths included.
TRANSACTION_BYTES_MAX: Final = 1_000_000
_OPERATION_BYTES: Final = 100  # per operation, beside the node's path and data
# Large nodes are compressed: partitions of one topic are similar. Small nodes stay readable.
PLAIN_BYTES_MAX: Final = 2 * 1_024
# Upper bounds for one partition in a node, plain and compressed; `make scale` prints real sizes.
_PLAIN_PARTITION_BYTES: Final = 250
_PACKED_PARTITION_BYTES: Final = 40
UNPACKED_BYTES_MAX: Final = 64 << 20
_PACKED: Final = b"z"  # no JSON begins with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Content of /version."""

    version: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Content of a node in /changes. The mark identifies the proposal."""

    mark: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Content of a node in /live: enough to show an operator which broker has the id."""

    host: str
    port: int
    epoch: int
    session_timeout_ms: int


def entry_path(version: int) -> str:
    return f"{CHANGES}/{version:016d}"


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def broker_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def live_path(broker_id: int) -> str:
    return f"{LIVE}/{broker_id}"


def first_operations(cluster_id: str, secret: bytes) -> list[Operation]:
    """Create the nodes of an empty cluster."""
    counters = Counters(version=0, next_producer_id=0)
    operations: list[Operation] = [
        Create(path=FORMAT, data=_pack({"layout": LAYOUT, "cluster_id": cluster_id})),
        Create(path=SECRET, data=_pack({"secret": secret.hex()})),
        Create(path=VERSION, data=encode_counters(counters)),
        Create(path=CONTROLLER, data=encode_controller(BrokerId(-1), 0)),
    ]
    parents = (CHANGES, TOPICS, BROKERS, LIVE, CANDIDATES, SECURITY)
    operations += [Create(path=path) for path in parents]
    return operations


def transaction(
    before: ClusterImage,
    after: ClusterImage,
    changes: Sequence[Change],
    *,
    mark: str,
    version_token: int,
    guards: Iterable[Operation] = (),
) -> list[Operation]:
    """The operations that bring the nodes from one image to the next.

    The guards come first, so that a failed guard precedes every other reason of failure.
    """
    counters = Counters(version=after.version, next_producer_id=after.next_producer_id)
    entry = {"mark": mark, "changes": [change_to_json(change) for change in changes]}
    operations: list[Operation] = [
        *guards,
        SetData(path=VERSION, data=encode_counters(counters), version=version_token),
        Create(path=entry_path(after.version), data=_pack(entry)),
    ]
    for name in dict.fromkeys(_topics_of(changes)):
        operations += _update(
            topic_path(name),
            before.topics.get(name),
            after.topics.get(name),
            lambda topic: change_to_json(TopicCreated(topic=topic)),
        )
    for broker_id in dict.fromkeys(_brokers_of(changes)):
        operations += _update(
            broker_path(broker_id),
            before.brokers.get(broker_id),
            after.brokers.get(broker_id),
            lambda broker: change_to_json(BrokerRegistered(broker=broker)),
        )
    if any(isinstance(change, BrokerSettingsChanged) for change in changes):
        operations += _update(
            SETTINGS,
            before.broker_settings or None,
            after.broker_settings or None,
            lambda settings: {who: dict(texts) for who, texts in settings.items()},
        )
    operations += _security_operations(before, after, changes)
    _check_size(operations)
    return operations


def _security_operations(
    before: ClusterImage, after: ClusterImage, changes: Sequence[Change]
) -> Iterator[Operation]:
    buckets = {
        change.bucket
        for change in changes
        if isinstance(change, AclsChanged | CredentialsChanged | QuotasChanged)
    }
    if not buckets:
        return
    old, new = _by_bucket(before, buckets), _by_bucket(after, buckets)
    for bucket in sorted(buckets):
        yield from _update(
            f"{SECURITY}/{bucket}",
            old.get(bucket),
            new.get(bucket),
            lambda content: {"changes": [security_change_to_json(each) for each in content]},
        )


def _by_bucket(image: ClusterImage, buckets: Container[str]) -> dict[str, list[SecurityChange]]:
    found: dict[str, list[SecurityChange]] = {}
    for change in security_changes_of(image.security):
        if (bucket := change.bucket) in buckets:
            found.setdefault(bucket, []).append(change)
    return found


def gone_guards(changes: Sequence[Change]) -> list[Operation]:
    """Operations that fail if a broker that is declared gone is alive at the time of the write.

    ZooKeeper cannot check that a node is missing; creating and deleting it does.
    """
    guards: list[Operation] = []
    for change in changes:
        if isinstance(change, BrokerGone):
            path = live_path(change.broker_id)
            guards += [Create(path=path, ephemeral=True), Delete(path=path)]
    return guards


def encode_counters(counters: Counters) -> bytes:
    return _pack({"version": counters.version, "next_producer_id": counters.next_producer_id})


def decode_counters(data: bytes) -> Counters:
    fields = _unpack(VERSION, data)
    with _Reading(VERSION):
        return Counters(
            version=int(fields["version"]), next_producer_id=int(fields["next_producer_id"])
        )


def encode_controller(broker_id: BrokerId, epoch: int) -> bytes:
    return _pack({"broker": broker_id, "epoch": epoch})


def decode_controller(data: bytes) -> tuple[BrokerId, int]:
    fields = _unpack(CONTROLLER, data)
    with _Reading(CONTROLLER):
        return BrokerId(int(fields["broker"])), int(fields["epoch"])


def encode_registration(registration: Registration) -> bytes:
    return _pack(
        {
            "host": registration.host,
            "port": registration.port,
            "epoch": registration.epoch,
            "session_timeout_ms": registration.session_timeout_ms,
        }
    )


def decode_registration(path: str, data: bytes) -> Registration:
    fields = _unpack(path, data)
    with _Reading(path):
        return Registration(
            host=str(fields["host"]),
            port=int(fields["port"]),
            epoch=int(fields["epoch"]),
            session_timeout_ms=int(fields["session_timeout_ms"]),
        )


def decode_format(data: bytes) -> str:
    """The cluster id. Raises StoreUnusable on the layout of another release."""
    fields = _unpack(FORMAT, data)
    if fields.get("layout") != LAYOUT:
        raise StoreUnusable(
            f"the nodes in ZooKeeper have layout {fields.get('layout')}, and this release"
            f" knows layout {LAYOUT}: use the release that wrote them, or a later one"
        )
    with _Reading(FORMAT):
        return str(fields["cluster_id"])


def decode_secret(data: bytes) -> bytes:
    fields = _unpack(SECRET, data)
    with _Reading(SECRET):
        return bytes.fromhex(fields["secret"])


def decode_entry(path: str, data: bytes) -> Entry:
    fields = _unpack(path, data)
    with _Reading(path):
        changes = tuple(change_from_json(each) for each in fields["changes"])
        return Entry(mark=str(fields["mark"]), changes=changes)


def decode_topic(path: str, data: bytes) -> Topic:
    with _Reading(path):
        change = change_from_json(_unpack(path, data))
        if not isinstance(change, TopicCreated):
            raise ValueError(change)  # noqa: TRY004 (data, not a caller's mistake)
        return change.topic


def decode_broker(path: str, data: bytes) -> Broker:
    with _Reading(path):
        change = change_from_json(_unpack(path, data))
        if not isinstance(change, BrokerRegistered):
            raise ValueError(change)  # noqa: TRY004 (data, not a caller's mistake)
        return change.broker


def decode_settings(data: bytes) -> dict[str, dict[str, str]]:
    fields = _unpack(SETTINGS, data)
    with _Reading(SETTINGS):
        return {
            who: {name: str(text) for name, text in dict(texts).items()}
            for who, texts in fields.items()
        }


def decode_bucket(path: str, data: bytes) -> list[SecurityChange]:
    fields = _unpack(path, data)
    with _Reading(path):
        return [security_change_from_json(each) for each in fields["changes"]]


def topic_bytes(topic: Topic) -> int:
    """An upper bound for the size of a topic's node."""
    count = len(topic.partitions)
    return max(
        min(count * _PLAIN_PARTITION_BYTES, PLAIN_BYTES_MAX), count * _PACKED_PARTITION_BYTES
    )


def subject_of(change: Change) -> str | None:
    """The path of the topic or broker node that a change is about; None for other changes.

    A change of broker settings, and each about security, replaces all of its subject: applying it twice is safe.
    """
    for name in _topics_of([change]):
        return topic_path(name)
    for broker_id in _brokers_of([change]):
        return broker_path(broker_id)
    return None


def _topics_of(changes: Iterable[Change]) -> Iterable[str]:
    for change in changes:
        match change:
            case TopicCreated():
                yield change.topic.name
            case TopicDeleted() | PartitionsAdded() | TopicSettingsChanged() | PartitionChanged():
                yield change.name


def _brokers_of(changes: Iterable[Change]) -> Iterable[BrokerId]:
    for change in changes:
        match change:
            case BrokerRegistered():
                yield change.broker.broker_id
            case BrokerGone():
                yield change.broker_id


def _update(path: str, before: Any, after: Any, encode: Any) -> list[Operation]:
    if after is None:
        return [] if before is None else [Delete(path=path)]
    data = _pack(encode(after))
    return [Create(path=path, data=data) if before is None else SetData(path=path, data=data)]


def _check_size(operations: Sequence[Operation]) -> None:
    size = 0
    for operation in operations:
        data = operation.data if isinstance(operation, Create | SetData) else b""
        size += _OPERATION_BYTES + len(operation.path) + len(data)
    if size > TRANSACTION_BYTES_MAX:
        raise PolicyViolation(
            f"the change has {size} bytes, and ZooKeeper accepts {TRANSACTION_BYTES_MAX} in one"
            " transaction: request fewer topics or partitions at once"
        )


def _pack(fields: dict[str, Any]) -> bytes:
    data = json.dumps(fields, separators=(",", ":")).encode()
    return data if len(data) <= PLAIN_BYTES_MAX else _PACKED + zlib.compress(data)


def _unpack(path: str, data: bytes) -> dict[str, Any]:
    with _Reading(path):
        if data.startswith(_PACKED):
            unpacking = zlib.decompressobj()
            plain = unpacking.decompress(data[len(_PACKED) :], UNPACKED_BYTES_MAX)
            if not unpacking.eof:
                raise ValueError("too large or cut short")
            data = plain
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError(fields)  # noqa: TRY004 (data, not a caller's mistake)
        return fields


class _Reading:
    """Turns the errors of damaged data into one error that names the node."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ValueError | KeyError | TypeError | zlib.error):
            raise StoreUnusable(
                f"the node {self._path} in ZooKeeper is damaged, or not zhumq's:"
                " restore it, or choose another chroot"
            ) from error
