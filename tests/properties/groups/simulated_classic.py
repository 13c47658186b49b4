"""A simulated classic client with a cooperative assignor, in a consumer group that is being migrated."""

import itertools
import uuid
from dataclasses import dataclass, field

from consumer_world import ConsumerWorld, Partition
from group_world import GROUP

from zhumq.groups.assignors import AssignedMember, uniform
from zhumq.groups.requests import GroupMessage, GroupResponse
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.coordinator_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_versioned,
    encode_versioned,
)
from zhumq.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SESSION_TIMEOUT_MS = 8_000
REBALANCE_TIMEOUT_MS = 6_000
REQUEST_TIMEOUT_MS = 4 * REBALANCE_TIMEOUT_MS
TOPIC = "orders"
LOST_CODES = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


def named(partitions: set[Partition]) -> list[ConsumerProtocolTopicPartition]:
    indexes = sorted(index for _, index in partitions)
    return [ConsumerProtocolTopicPartition(topic=TOPIC, partitions=indexes)] if indexes else []


@dataclass
class ClassicClient:
    """Keeps its partitions while it joins, and revokes what it is not assigned again (KIP-429)."""

    name: str
    world: ConsumerWorld
    alive: bool = False
    incarnation: int = 0
    member_id: str = ""
    generation: int = -1
    owned: set[Partition] = field(default_factory=set)
    assigned: bool = False

    def __post_init__(self) -> None:
        self._starts = itertools.count()

    # Faults

    def start(self) -> None:
        assert not self.alive
        self.alive = True
        self.member_id = ""
        self._join()

    def crash(self) -> None:
        self._have(set())
        self.incarnation += 1
        self.alive = False
        self.assigned = False

    def leave(self) -> None:
        self._have(set())
        if self.member_id:
            identity = MemberIdentity(member_id=self.member_id)
            message = LeaveGroupRequest(group_id=GROUP, members=[identity])
            self.world.send(self.name, message, 5, lambda _: None)
        self.crash()

    def pause(self, milliseconds: int) -> None:
        self.incarnation += 1
        incarnation = self.incarnation
        self.world.at(milliseconds, lambda: self._beat() if self._is_in(incarnation) else None)

    # Its own actions

    def _is_in(self, incarnation: int) -> bool:
        return self.alive and self.incarnation == incarnation

    def _have(self, owned: set[Partition]) -> None:
        self.owned = owned
        if self.member_id:
            self.world.believed[self.member_id] = set(owned)

    def _ask(self, message: GroupMessage, version: int) -> None:
        self.incarnation += 1
        incarnation = self.incarnation

        def answer(response: GroupResponse) -> None:
            if self._is_in(incarnation):
                self.incarnation += 1
                self._answered(response)

        self.world.send(self.name, message, version, answer)
        self.world.at(
            REQUEST_TIMEOUT_MS, lambda: self._join() if self._is_in(incarnation) else None
        )

    def _join_later(self, delay_ms: int) -> None:
        incarnation = self.incarnation
        self.world.at(delay_ms, lambda: self._join() if self._is_in(incarnation) else None)

    def _join(self) -> None:
        self.assigned = False
        subscription = ConsumerProtocolSubscription(
            topics=[TOPIC], owned_partitions=named(self.owned)
        )
        self._ask(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(
                        name="cooperative", metadata=encode_versioned(subscription, 1)
                    )
                ],
            ),
            9,
        )

    def _answered(self, response: GroupResponse) -> None:
        match response:
            case JoinGroupResponse(error_code=0):
                self._have(self.owned)
                self.generation = response.generation_id
                leads = response.leader == response.member_id and not response.skip_assignment
                self._sync(response.members if leads else [])
            case SyncGroupResponse(error_code=0):
                _, read = decode_versioned(ConsumerProtocolAssignment, response.assignment)
                self._synced(read)
            case HeartbeatResponse(error_code=0):
                self._later()
            case JoinGroupResponse() if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                self._join()
            case JoinGroupResponse() | SyncGroupResponse() | HeartbeatResponse():
                self._refused(response.error_code)
            case _:
                raise AssertionError(response)

    def _refused(self, code: int) -> None:
        if code in LOST_CODES:
            self._have(set())
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        else:
            assert code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), code
        self._join_later(50)

    def _sync(self, members: list[JoinGroupResponseMember]) -> None:
        self._ask(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                assignments=self._assignments(members) if members else [],
            ),
            5,
        )

    def _assignments(
        self, members: list[JoinGroupResponseMember]
    ) -> list[SyncGroupRequestAssignment]:
        """As the leader of a classic group: assign partitions that others own only in the next round."""
        topics = self.world.topics
        topic_id = topics.ids[TOPIC]
        claims: dict[int, str] = {}
        for member in members:
            _, subscription = decode_versioned(ConsumerProtocolSubscription, member.metadata)
            for each in subscription.owned_partitions:
                claims.update(dict.fromkeys(each.partitions, member.member_id))
        target = uniform(
            [
                AssignedMember(
                    member_id=member.member_id,
                    subscribed=frozenset({topic_id}),
                    before={
                        topic_id: frozenset(
                            index for index, who in claims.items() if who == member.member_id
                        )
                    },
                )
                for member in members
            ],
            {topic_id: topics.counts[TOPIC]},
        )
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_versioned(
                    ConsumerProtocolAssignment(
                        assigned_partitions=named(
                            {
                                (topic_id, index)
                                for index in partitions.get(topic_id, frozenset())
                                if claims.get(index, member_id) == member_id
                            }
                        )
                    ),
                    1,
                ),
            )
            for member_id, partitions in target.items()
        ]

    def _synced(self, read: ConsumerProtocolAssignment) -> None:
        topic_id: uuid.UUID = self.world.topics.ids[TOPIC]
        assigned = {
            (topic_id, index) for each in read.assigned_partitions for index in each.partitions
        }
        gives_up = bool(self.owned - assigned)
        incarnation = self.incarnation
        self.world.at(
            self.world.draw.randrange(1, 1_000),
            lambda: self._take(assigned, gives_up) if self._is_in(incarnation) else None,
        )

    def _take(self, assigned: set[Partition], gives_up: bool) -> None:
        self._have(assigned)
        if gives_up:
            self._join()
        else:
            self.assigned = True
            self._later()

    def _later(self) -> None:
        incarnation = self.incarnation
        self.world.at(
            self.world.draw.randrange(100, 1_000),
            lambda: self._beat() if self._is_in(incarnation) else None,
        )

    def _beat(self) -> None:
        if not self.assigned:
            self._join()
            return
        self._ask(
            HeartbeatRequest(
                group_id=GROUP, generation_id=self.generation, member_id=self.member_id
            ),
            4,
        )
