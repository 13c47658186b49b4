"""A simulated world of consumers and one group shard: late, lost and repeated messages, crashes, restarts."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from zhumq.groups.classic import ClassicGroup, ClassicGroupState
from zhumq.groups.group import DeadlineKey, DeadlineKind
from zhumq.groups.persisted import decode_group
from zhumq.groups.requests import GroupMessage, GroupRequest, GroupResponse, refusal
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Outcome, ReplyToken, StateRecord
from zhumq.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from zhumq.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

GROUP = "group"
SETTINGS = GroupSettings(
    session_timeout_ms_min=1_000,
    new_member_join_timeout_ms=20_000,
    offsets_retention_check_interval_ms=50_000,
)
REBALANCE_TIMEOUT_MS = 8_000
SESSION_TIMEOUT_MS = 4_000
# A static member stays in the group while it misses rebalances, and then has an old generation.
STATIC_SESSION_TIMEOUT_MS = 15_000
# A join waits for one rebalance, at worst while other members join, restart or time out one after another.
PARKED_MS_MAX = 4 * REBALANCE_TIMEOUT_MS + SETTINGS.new_member_join_timeout_ms
RECORD_CHECK_EVERY = 10  # inputs; decoding a group is the most expensive check

Deliver = Callable[[GroupResponse], None]


@dataclass
class World:
    """The shard, its log, the network, and the invariants that hold at all times."""

    seed: int
    now_ms: int = 1_000_000
    delay_ms_max: int = 200
    lost_replies: float = 0.03
    repeated_requests: float = 0.03
    log: list[StateRecord] = field(default_factory=list)
    # What the group has answered, in the order of its decisions.
    generation_seen: int = 0
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    accepted_commits: int = 0
    reloads: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._tokens = itertools.count()
        self._suffixes = itertools.count()
        self._checks = itertools.count()
        self._parked: dict[ReplyToken, tuple[int, GroupRequest, Deliver]] = {}
        self._last_delivery_ms: dict[tuple[str, str], int] = {}
        self.shard = self._load()

    # Time

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._order), action))

    def run_until(self, end_ms: int) -> None:
        while True:
            event_ms = self._events[0][0] if self._events else end_ms + 1
            due_ms = self.shard.next_deadline_ms
            if due_ms is not None and due_ms <= min(event_ms, end_ms):
                self.now_ms = max(self.now_ms, due_ms)
                self._apply(self.shard.expire(self.now_ms))
            elif event_ms <= end_ms:
                self.now_ms = event_ms
                heapq.heappop(self._events)[2]()
            else:
                break
            self.check()
        self.now_ms = end_ms

    # Network: in order from and to each sender, as on a connection

    def send(self, sender: str, message: GroupMessage, version: int, deliver: Deliver) -> None:
        request = GroupRequest(message=message, version=version, client_id=sender)
        self._on_the_way((sender, "out"), lambda: self._arrive(sender, request, deliver))
        if self.draw.random() < self.repeated_requests:
            self._on_the_way((sender, "out"), lambda: self._arrive(sender, request, _ignore))

    def _on_the_way(self, line: tuple[str, str], action: Callable[[], None]) -> None:
        earliest_ms = max(self.now_ms + 1, self._last_delivery_ms.get(line, 0))
        arrival_ms = earliest_ms + self.draw.randrange(self.delay_ms_max)
        self._last_delivery_ms[line] = arrival_ms
        self.at(arrival_ms - self.now_ms, action)

    def _arrive(self, sender: str, request: GroupRequest, deliver: Deliver) -> None:
        token = ReplyToken(next(self._tokens))

        def carry_back(response: GroupResponse) -> None:
            if self.draw.random() >= self.lost_replies:
                self._on_the_way((sender, "in"), lambda: deliver(response))

        self._parked[token] = (self.now_ms, request, carry_back)
        self._apply(self.shard.handle(request, token, self.now_ms))

    # The coordinator

    def _load(self) -> GroupShard:
        shard = GroupShard(SETTINGS, draw_member_suffix=lambda: str(next(self._suffixes)))
        for record in self.log:
            shard.replay(record, self.now_ms)
        assert shard.loaded(self.now_ms).records == ()
        return shard

    def reload(self) -> None:
        """The coordinator crashes: parked requests are lost, recorded state is not."""
        before = self.shard.hard_state()
        self.shard = self._load()
        self.reloads += 1
        assert self.shard.hard_state() == before, "replayed state equals live state"
        parked, self._parked = self._parked, {}
        for _, request, carry_back in parked.values():
            carry_back(refusal(request, ErrorCode.NOT_COORDINATOR))

    def _apply(self, outcome: Outcome[GroupResponse]) -> None:
        for record in outcome.records:
            self.log.append(record)
            self.shard.replay(record, self.now_ms)
        for reply in outcome.replies:
            _, request, carry_back = self._parked.pop(reply.token)
            self._witness(request, reply.response)
            carry_back(reply.response)

    # Invariants

    def _witness(self, request: GroupRequest, response: GroupResponse) -> None:
        match request.message, response:
            case SyncGroupRequest() as sync, SyncGroupResponse(error_code=0):
                assert sync.generation_id >= self.generation_seen, "a generation never comes back"
                self.generation_seen = sync.generation_id
                # A static member keeps the partitions that it had under its earlier id.
                owner = sync.group_instance_id or sync.member_id
                for partition in response.assignment:
                    first = self.owners.setdefault((sync.generation_id, partition), owner)
                    assert first == owner, "one owner of a partition in a generation"
            case OffsetCommitRequest() as commit, OffsetCommitResponse():
                self._witness_commit(commit, response)

    def _witness_commit(self, commit: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        answered = response.topics[0].partitions[0]
        if answered.error_code != ErrorCode.NONE:
            return
        self.accepted_commits += 1
        generation = commit.generation_id_or_member_epoch
        owner = commit.group_instance_id or commit.member_id
        partition = commit.topics[0].partitions[0]
        index = partition.partition_index
        assert generation == self.generation_seen, "only the current generation commits"
        assert self.owners[generation, index] == owner, "only the owner commits"
        assert partition.committed_offset >= self.committed.get(index, 0), "offsets never go back"
        self.committed[index] = partition.committed_offset

    def check(self) -> None:
        """Check the invariants between any two inputs."""
        for since_ms, request, _ in self._parked.values():
            assert self.now_ms - since_ms <= PARKED_MS_MAX, f"{request.message} is never answered"
        group = self.shard.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            self._check_group(group)

    def _check_group(self, group: ClassicGroup) -> None:
        deadlines = self.shard._deadlines
        assert group.parked_joins.keys() <= group.members.keys()
        assert group.parked_syncs.keys() <= group.members.keys()
        assert group.pending_sync <= group.members.keys()
        assert not group.pending_members & group.members.keys()
        assert (group.leader_id in group.members) if group.members else group.leader_id is None
        assert group.static_members == {
            member.instance_id: member.member_id
            for member in group.members.values()
            if member.instance_id is not None
        }
        for member_id, member in group.members.items():
            assert member.member_id == member_id
            watched = DeadlineKey(DeadlineKind.SESSION, GROUP, member_id) in deadlines
            parked = member_id in group.parked_joins or member_id in group.parked_syncs
            assert watched or parked, "every member has a deadline or a parked request"
        for member_id in group.pending_members:
            assert DeadlineKey(DeadlineKind.SESSION, GROUP, member_id) in deadlines
        match group.state:
            case ClassicGroupState.EMPTY:
                assert not group.members
            case ClassicGroupState.PREPARING_REBALANCE:
                assert DeadlineKey(DeadlineKind.JOIN, GROUP) in deadlines
            case ClassicGroupState.COMPLETING_REBALANCE:
                assert DeadlineKey(DeadlineKind.SYNC, GROUP) in deadlines
            case ClassicGroupState.STABLE:
                if next(self._checks) % RECORD_CHECK_EVERY == 0:
                    recorded = decode_group(self.shard._recorded_groups[GROUP])
                    assert recorded == group.to_record(), "a stable group is as it is recorded"


def _ignore(_response: GroupResponse) -> None:
    """The response to a repeated request, which its sender ignores."""


def join_request(member_id: str, instance_id: str | None, metadata: bytes) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=STATIC_SESSION_TIMEOUT_MS if instance_id else SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def heartbeat_request(member_id: str, instance_id: str | None, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )


def leave_request(member_id: str, instance_id: str | None) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=GROUP,
        members=[MemberIdentity(member_id=member_id, group_instance_id=instance_id)],
    )
