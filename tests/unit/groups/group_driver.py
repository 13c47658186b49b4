"""Drives one group shard without a runtime: applies its outcomes at once and keeps its log."""

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from zhumq.groups.requests import GroupMessage, GroupRequest, GroupResponse
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.model.state_machine import Outcome, ReplyToken, StateRecord
from zhumq.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from zhumq.testing.topics import ChangingTopics

GROUP = "g"
LATEST = 9  # of JoinGroup


def subscription(*topics: str, version: int = 0) -> bytes:
    """The metadata of a consumer that subscribes to these topics."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)


def protocols(*named: str | tuple[str, bytes]) -> list[JoinGroupRequestProtocol]:
    return [
        JoinGroupRequestProtocol(name=each, metadata=subscription("topic"))
        if isinstance(each, str)
        else JoinGroupRequestProtocol(name=each[0], metadata=each[1])
        for each in named
    ]


@dataclass
class Driver:
    """A shard with a clock, a log, and the responses so far."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    now_ms: int = 1_000_000
    log: list[StateRecord] = field(default_factory=list)
    topics: ChangingTopics = field(default_factory=ChangingTopics)

    def __post_init__(self) -> None:
        self._suffixes = itertools.count(1)
        self._tokens = itertools.count(1)
        self.answers: dict[ReplyToken, GroupResponse] = {}
        self.shard = self._fresh_shard()

    def _empty_shard(self) -> GroupShard:
        return GroupShard(
            self.settings,
            draw_member_suffix=lambda: f"{next(self._suffixes):04}",
            topics=self.topics,
        )

    def _fresh_shard(self) -> GroupShard:
        shard = self._empty_shard()
        for record in self.log:
            shard.replay(record, self.now_ms)
        self._apply(shard, shard.loaded(self.now_ms))
        return shard

    def reload(self) -> None:
        """Restart the coordinator: a new shard reads the log."""
        self.shard = self._fresh_shard()

    def _apply(self, shard: GroupShard, outcome: Outcome[GroupResponse]) -> None:
        for record in outcome.records:
            self.log.append(record)
            shard.replay(record, self.now_ms)
        self._answer(outcome)

    def _answer(self, outcome: Outcome[GroupResponse]) -> None:
        for reply in outcome.replies:
            assert reply.token not in self.answers, "a request is answered once"
            self.answers[reply.token] = reply.response

    def send(
        self,
        message: GroupMessage,
        version: int = LATEST,
        *,
        client_id: str = "c",
        settle: bool = True,
    ) -> ReplyToken:
        """Pass a request to the shard; deadlines that are due now expire as well."""
        token = ReplyToken(next(self._tokens))
        request = GroupRequest(
            message=message, version=version, client_id=client_id, client_host="/127.0.0.1"
        )
        self._apply(self.shard, self.shard.handle(request, token, self.now_ms))
        if settle:
            self.advance(0)
        return token

    def ask(self, message: GroupMessage, version: int = LATEST) -> GroupResponse:
        """Pass a request that is answered at once."""
        return self.answers[self.send(message, version)]

    def advance(self, milliseconds: int) -> None:
        """Advance the clock, deadline by deadline."""
        until_ms = self.now_ms + milliseconds
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._apply(self.shard, self.shard.expire(self.now_ms))
        self.now_ms = until_ms

    # Shorthand for the requests of members

    def join(
        self,
        member_id: str = "",
        *,
        version: int = LATEST,
        instance_id: str | None = None,
        offered: Sequence[JoinGroupRequestProtocol] = (),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        group_id: str = GROUP,
        client_id: str = "c",
        settle: bool = True,
    ) -> ReplyToken:
        return self.send(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                member_id=member_id,
                group_instance_id=instance_id,
                protocol_type=protocol_type,
                protocols=list(offered) or protocols("range"),
            ),
            version,
            client_id=client_id,
            settle=settle,
        )

    def joined(self, token: ReplyToken) -> JoinGroupResponse:
        response = self.answers[token]
        assert isinstance(response, JoinGroupResponse)
        return response

    def is_parked(self, token: ReplyToken) -> bool:
        return token not in self.answers

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group_id: str = GROUP,
    ) -> ReplyToken:
        return self.send(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=[
                    SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                    for each, assignment in (assignments or {}).items()
                ],
            ),
            5,
        )

    def synced(self, token: ReplyToken) -> SyncGroupResponse:
        response = self.answers[token]
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(self, member_id: str, generation: int, *, instance_id: str | None = None) -> int:
        response = self.ask(
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
            ),
            4,
        )
        assert isinstance(response, HeartbeatResponse)
        return response.error_code

    def leave(self, *members: str | tuple[str, str | None]) -> LeaveGroupResponse:
        identities = [each if isinstance(each, tuple) else (each, None) for each in members]
        response = self.ask(
            LeaveGroupRequest(
                group_id=GROUP,
                members=[
                    MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                    for member_id, instance_id in identities
                ],
            ),
            5,
        )
        assert isinstance(response, LeaveGroupResponse)
        return response

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation: int = -1,
        topic: str = "topic",
        partition: int = 0,
        metadata: str | None = "",
        instance_id: str | None = None,
        group_id: str = GROUP,
        retention_time_ms: int = -1,
        version: int = 9,
    ) -> int:
        response = self.ask(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                retention_time_ms=retention_time_ms,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_leader_epoch=3,
                                committed_metadata=metadata,
                            )
                        ],
                    )
                ],
            ),
            version,
        )
        assert isinstance(response, OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    def committed(
        self, topic: str = "topic", partition: int = 0, *, group_id: str = GROUP
    ) -> tuple[int, str | None]:
        """The committed offset and metadata."""
        response = self.ask(
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group_id,
                        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
                    )
                ]
            ),
            9,
        )
        assert isinstance(response, OffsetFetchResponse)
        found = response.groups[0].topics[0].partitions[0]
        return found.committed_offset, found.metadata

    # Whole groups

    def member(self, **options: object) -> str:
        """A member id generated by the coordinator; the member has not joined yet."""
        return self.joined(self.join("", **options)).member_id  # type: ignore[arg-type]

    def stable_group(self, size: int = 1) -> tuple[list[str], int]:
        """A group of `size` members that all have their assignment; the leader comes first."""
        ids = [self.member() for _ in range(size)]
        joins = [self.join(member_id, settle=False) for member_id in ids]
        self.advance(0)
        while any(self.is_parked(token) for token in joins):
            joins = [self.join(member_id) for member_id in ids]
        leader_id = self.joined(joins[0]).leader
        generation = self.joined(joins[0]).generation_id
        ids.sort(key=lambda member_id: member_id != leader_id)
        assignments = {member_id: f"of {member_id}".encode() for member_id in ids}
        for member_id in ids:
            self.sync(member_id, generation, assignments if member_id == leader_id else None)
        return ids, generation
