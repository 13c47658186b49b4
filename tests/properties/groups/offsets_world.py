"""Random commits, transactions, markers, deletions, reloads and compactions of one group shard, and a model of Kafka's
rules that reads the whole log for each answer."""

import itertools
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from zhumq.groups.persisted import OffsetKey, decode_key, decode_offset
from zhumq.groups.requests import (
    GroupMessage,
    GroupRequest,
    GroupResponse,
    TopicsDeletedRequest,
)
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Outcome, ReplyToken, StateRecord
from zhumq.protocol.messages.groups import DeleteGroupsRequest
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from zhumq.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUPS = ("g0", "g1")
TOPICS = ("t0", "t1")
PARTITIONS = range(2)
PRODUCERS = range(3)
KEYS = [OffsetKey(*each) for each in itertools.product(GROUPS, TOPICS, PARTITIONS)]
HOUR_MS = 3_600_000
SETTINGS = GroupSettings(offsets_retention_ms=10 * HOUR_MS)
NO_OFFSET = -1


class Violation(AssertionError):
    """The shard answered otherwise than the model."""


class Entry(NamedTuple):
    """A record of the log, or a marker."""

    offset: int
    producer_id: int | None
    record: StateRecord | None
    is_commit: bool = False


class Expected(NamedTuple):
    """What Kafka's rules make of a log."""

    committed: dict[OffsetKey, tuple[int, int]]  # record's offset, committed offset
    pending: dict[int, dict[OffsetKey, tuple[int, int]]]

    @property
    def unstable(self) -> set[OffsetKey]:
        return {key for offsets in self.pending.values() for key in offsets}


def read(log: list[Entry]) -> Expected:
    """Kafka's OffsetMetadataManager, as simple as can be."""
    committed: dict[OffsetKey, tuple[int, int]] = {}
    pending: dict[int, dict[OffsetKey, tuple[int, int]]] = {}
    for entry in log:
        if entry.record is None:
            assert entry.producer_id is not None
            ended = pending.pop(entry.producer_id, {})
            for key, value in ended.items() if entry.is_commit else ():
                if key not in committed or value[0] > committed[key][0]:
                    committed[key] = value
            continue
        decoded = decode_key(entry.record.key)
        if not isinstance(decoded, OffsetKey):
            continue
        if entry.record.value is None:
            committed.pop(decoded, None)
            for offsets in pending.values():
                offsets.pop(decoded, None)
            continue
        offset = decode_offset(entry.record.value)
        assert offset is not None
        of_producer = (
            committed if entry.producer_id is None else pending.setdefault(entry.producer_id, {})
        )
        of_producer[decoded] = entry.offset, offset.offset
    return Expected(committed, pending)


def compacted(log: list[Entry]) -> list[Entry]:
    """The log as Kafka's cleaner leaves it: up to the first open transaction only the last record of each key,
    without the aborted ones, and without the tombstones."""
    open_since: dict[int, int] = {}
    aborted: set[int] = set()
    of_transaction: dict[int, list[int]] = {}
    for entry in log:
        if entry.producer_id is None:
            continue
        if entry.record is not None:
            open_since.setdefault(entry.producer_id, entry.offset)
            of_transaction.setdefault(entry.producer_id, []).append(entry.offset)
        else:
            open_since.pop(entry.producer_id, None)
            ended = of_transaction.pop(entry.producer_id, [])
            if not entry.is_commit:
                aborted.update(ended)
    end = min(open_since.values(), default=log[-1].offset + 1 if log else 0)
    last = {
        entry.record.key: entry.offset
        for entry in log
        if entry.record is not None and entry.offset < end and entry.offset not in aborted
    }
    return [
        entry
        for entry in log
        if entry.offset >= end
        or entry.record is None
        or (
            entry.offset not in aborted
            and entry.record.value is not None
            and last[entry.record.key] == entry.offset
        )
    ]


@dataclass
class OffsetsWorld:
    """A shard, its log, and the checks between any two inputs."""

    seed: int
    now_ms: int = 1_000_000
    log: list[Entry] = field(default_factory=list)
    commits: int = 0  # of transactions with offsets
    unstable_answers: int = 0
    reloads: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self._tokens = itertools.count()
        self._next_offset = 0
        self._answers: dict[ReplyToken, GroupResponse] = {}
        self.shard = self._load()

    def step(self) -> None:
        draw = self.draw
        key = draw.choice(KEYS)
        match draw.choices(range(9), weights=(25, 40, 25, 4, 2, 2, 8, 3, 4))[0]:
            case 0:
                self._ask(_commit(key, draw.randrange(1_000)), 9)
            case 1:
                self._ask(
                    _commit_in_transaction(key, draw.choice(PRODUCERS), draw.randrange(1_000)), 5
                )
            case 2:
                self._mark()
            case 3:
                self._ask(_delete(key), 0)
                self._check_gone({key})
            case 4:
                self._ask(DeleteGroupsRequest(groups_names=[key.group_id]), 2)
                self._check_gone({each for each in KEYS if each.group_id == key.group_id})
            case 5:
                self._ask(TopicsDeletedRequest(names=(key.topic,)), 0)
                self._check_gone({each for each in KEYS if each.topic == key.topic})
            case 6:
                self._reload()
            case 7:
                self.log = compacted(self.log)
                self._reload()
            case _:
                self._advance(draw.randrange(4 * HOUR_MS))
        self.check()

    # Inputs

    def _ask(self, message: GroupMessage, version: int) -> GroupResponse:
        token = ReplyToken(next(self._tokens))
        request = GroupRequest(message=message, version=version)
        self._apply(self.shard.handle(request, token, self.now_ms))
        return self._answers.pop(token)

    def _mark(self) -> None:
        producer_id = self.draw.choice(PRODUCERS)
        is_commit = self.draw.random() < 0.7
        self.commits += is_commit and bool(read(self.log).pending.get(producer_id))
        for _ in range(self.draw.choice((1, 1, 1, 2))):  # a coordinator may repeat a marker
            self._write(producer_id, None, is_commit=is_commit)
            self.shard.end_transaction(producer_id, self.now_ms, is_commit=is_commit)

    def _advance(self, milliseconds: int) -> None:
        until_ms = self.now_ms + milliseconds
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            pending = read(self.log).unstable
            deleted = self._apply(self.shard.expire(self.now_ms))
            if deleted & pending:
                raise Violation(f"expiry deleted pending offsets: {deleted & pending}")
        self.now_ms = until_ms

    def _load(self) -> GroupShard:
        shard = GroupShard(SETTINGS, draw_member_suffix=lambda: "x")
        for entry in self.log:
            _replay(shard, entry, self.now_ms)
        assert shard.loaded(self.now_ms).records == ()
        return shard

    def _reload(self) -> None:
        self.shard = self._load()
        self.reloads += 1

    def _apply(self, outcome: Outcome[GroupResponse]) -> set[OffsetKey]:
        """Returns the keys that were deleted."""
        deleted = set()
        producer_id = None if outcome.producer is None else outcome.producer.producer_id
        for record in outcome.records:
            entry = self._write(producer_id, record)
            _replay(self.shard, entry, self.now_ms)
            key = decode_key(record.key)
            if record.value is None and isinstance(key, OffsetKey):
                deleted.add(key)
        for reply in outcome.replies:
            self._answers[reply.token] = reply.response
        return deleted

    def _write(
        self, producer_id: int | None, record: StateRecord | None, *, is_commit: bool = False
    ) -> Entry:
        entry = Entry(self._next_offset, producer_id, record, is_commit)
        self._next_offset += 1
        self.log.append(entry)
        return entry

    # Checks

    def check(self) -> None:
        expected = read(self.log)
        plain, stable = self._fetch(require_stable=False), self._fetch(require_stable=True)
        for key in KEYS:
            _, offset = expected.committed.get(key, (0, NO_OFFSET))
            if plain[key] != (offset, ErrorCode.NONE):
                raise Violation(f"{key} is {plain[key]} and should be {offset}")
            if key in expected.unstable:
                self.unstable_answers += 1
                if stable[key] != (NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT):
                    raise Violation(f"{key} has a pending offset and is {stable[key]}")
            elif stable[key] != plain[key]:
                raise Violation(f"{key} has no pending offset and is {stable[key]}")
        for group_id in {key.group_id for key in expected.unstable | expected.committed.keys()}:
            if group_id not in self.shard.groups:
                raise Violation(f"group {group_id} has offsets and is unknown")
        if not expected.unstable and self.shard.offsets.pending.size_bytes:
            raise Violation("memory of pending offsets is not given back")

    def _check_gone(self, keys: set[OffsetKey]) -> None:
        """What was deleted has no offsets left, that a marker could bring back."""
        expected = read(self.log)
        left = keys & (expected.unstable | expected.committed.keys())
        if left:
            raise Violation(f"deleted, and still there: {left}")

    def _fetch(self, *, require_stable: bool) -> dict[OffsetKey, tuple[int, int]]:
        response = self._ask(
            OffsetFetchRequest(
                require_stable=require_stable,
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group_id,
                        topics=[
                            OffsetFetchRequestTopic(name=name, partition_indexes=list(PARTITIONS))
                            for name in TOPICS
                        ],
                    )
                    for group_id in GROUPS
                ],
            ),
            9,
        )
        assert isinstance(response, OffsetFetchResponse)
        return {
            OffsetKey(group.group_id, topic.name, each.partition_index): (
                each.committed_offset,
                each.error_code,
            )
            for group in response.groups
            for topic in group.topics
            for each in topic.partitions
        }


def _replay(shard: GroupShard, entry: Entry, now_ms: int) -> None:
    if entry.record is None:
        assert entry.producer_id is not None
        shard.end_transaction(entry.producer_id, now_ms, is_commit=entry.is_commit)
    elif entry.producer_id is None:
        shard.replay(entry.record, now_ms)
    else:
        shard.replay_pending(entry.producer_id, entry.record, now_ms)


def _commit(key: OffsetKey, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=key.partition, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=key.group_id,
        topics=[OffsetCommitRequestTopic(name=key.topic, partitions=[partition])],
    )


def _commit_in_transaction(key: OffsetKey, producer_id: int, offset: int) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=key.partition, committed_offset=offset
    )
    return TxnOffsetCommitRequest(
        group_id=key.group_id,
        producer_id=producer_id,
        topics=[TxnOffsetCommitRequestTopic(name=key.topic, partitions=[partition])],
    )


def _delete(key: OffsetKey) -> OffsetDeleteRequest:
    partition = OffsetDeleteRequestPartition(partition_index=key.partition)
    return OffsetDeleteRequest(
        group_id=key.group_id,
        topics=[OffsetDeleteRequestTopic(name=key.topic, partitions=[partition])],
    )
