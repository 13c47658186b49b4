"""A simulated world of consumer-protocol members and one group shard; topics are created, extended and deleted."""

import uuid
from dataclasses import dataclass, field

from group_world import GROUP, Deliver, World, _ignore

from zhumq.groups.consumer import AWAY_EPOCH, ConsumerGroup, MemberState
from zhumq.groups.group import DeadlineKey, DeadlineKind
from zhumq.groups.requests import GroupMessage, GroupRequest, GroupResponse
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from zhumq.testing.topics import ChangingTopics

SESSION_TIMEOUT_MS = 8_000
HEARTBEAT_INTERVAL_MS = 1_000
SETTINGS = GroupSettings(
    session_timeout_ms_min=1_000,
    consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
    consumer_heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
    offsets_retention_check_interval_ms=50_000,
)

Partition = tuple[uuid.UUID, int]


@dataclass
class ConsumerWorld(World):
    """Network and log of the base class, with the invariants of the consumer protocol."""

    topics: ChangingTopics = field(default_factory=ChangingTopics)
    epochs_seen: dict[str, int] = field(default_factory=dict)
    group_epoch_seen: int = 0
    committed_of: dict[Partition, int] = field(default_factory=dict)
    # The partitions that every client believes to own, by member id; a client that is down owns none.
    believed: dict[str, set[Partition]] = field(default_factory=dict)

    def _load(self) -> GroupShard:
        shard = GroupShard(
            SETTINGS,
            draw_member_suffix=lambda: str(next(self._suffixes)),
            topics=self.topics,
        )
        for record in self.log:
            shard.replay(record, self.now_ms)
        assert shard.loaded(self.now_ms).records == ()
        return shard

    def send(self, sender: str, message: GroupMessage, version: int, deliver: Deliver) -> None:
        # A client repeats a request when the first one has timed out, and then the first response is lost:
        # what a member owns is only known from its next request.
        request = GroupRequest(message=message, version=version, client_id=sender)
        if self.draw.random() < self.repeated_requests:
            self._on_the_way((sender, "out"), lambda: self._arrive(sender, request, _ignore))
        self._on_the_way((sender, "out"), lambda: self._arrive(sender, request, deliver))

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.shard.groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else None

    def _witness(self, request: GroupRequest, response: GroupResponse) -> None:
        match request.message, response:
            case OffsetCommitRequest() as commit, OffsetCommitResponse():
                self._witness_commit(commit, response)

    def _witness_commit(self, commit: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        if response.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return
        self.accepted_commits += 1
        topic_id = self.topics.ids.get(commit.topics[0].name)
        if topic_id is None:
            return
        asked = commit.topics[0].partitions[0]
        partition = (topic_id, asked.partition_index)
        assert self.group is not None
        assert self.group.owners.get(partition) == commit.member_id, "only the owner commits"
        assert asked.committed_offset >= self.committed_of.get(partition, 0), (
            "offsets never go back"
        )
        self.committed_of[partition] = asked.committed_offset

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        held: dict[Partition, str] = {}
        for member in group.members.values():
            for partition in member.held:
                assert partition not in held, "a partition has one owner"
                held[partition] = member.member_id
            assert member.epoch <= group.assignment_epoch <= group.epoch
            self._check_deadlines(member.member_id, member.state, group)
            believed = self.believed.get(member.member_id, set())
            if member.epoch != AWAY_EPOCH:
                assert believed <= set(member.held), "no member reads another member's partition"
        assert held == group.owners
        assert group.targets.keys() == group.members.keys() or (
            group.epoch > group.assignment_epoch
        )
        assert group.epoch >= self.group_epoch_seen, "epochs only grow"
        self.group_epoch_seen = group.epoch
        assert group.static_members == {
            member.instance_id: member.member_id
            for member in group.members.values()
            if member.instance_id is not None
        }
        for member in group.members.values():
            if member.epoch == AWAY_EPOCH:
                self.epochs_seen.pop(member.member_id, None)
                continue
            assert member.epoch >= self.epochs_seen.get(member.member_id, 0)
            self.epochs_seen[member.member_id] = member.epoch

    def _check_deadlines(self, member_id: str, state: MemberState, group: ConsumerGroup) -> None:
        deadlines = self.shard._deadlines
        assert DeadlineKey(DeadlineKind.SESSION, GROUP, member_id) in deadlines
        watched = DeadlineKey(DeadlineKind.REBALANCE, GROUP, member_id) in deadlines
        if group.members[member_id].classic is None:
            assert watched == (state is MemberState.UNREVOKED_PARTITIONS)
