"""A simulated consumer: joins, reads, commits, sends heartbeats, and fails as real ones do."""

from dataclasses import dataclass, field

from group_world import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    World,
    heartbeat_request,
    join_request,
    leave_request,
)

from zhumq.groups.requests import GroupMessage, GroupResponse
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
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

PARTITIONS = 6
REQUEST_TIMEOUT_MS = 4 * REBALANCE_TIMEOUT_MS
WORK_MS = 700  # between two commits or heartbeats
REJOIN_CODES = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.NOT_COORDINATOR}
)


@dataclass
class Consumer:
    """One client. `incarnation` counts its restarts and rejoins: responses to an earlier one are ignored."""

    name: str
    world: World
    instance_id: str | None = None
    alive: bool = False
    incarnation: int = 0
    member_id: str = ""
    generation: int = -1
    positions: dict[int, int] = field(default_factory=dict)
    assigned: bool = False
    metadata: bytes = b"\x00\x00\x00\x00\x00\x00"

    # Faults

    def start(self) -> None:
        assert not self.alive
        self.alive = True
        self.member_id = ""
        self._join()

    def crash(self) -> None:
        self._next_incarnation()
        self.alive = False
        self.member_id = ""

    def leave(self) -> None:
        if self.member_id:
            message = leave_request(self.member_id, self.instance_id)
            self.world.send(self.name, message, 5, lambda _: None)
        self.crash()

    def pause(self, milliseconds: int) -> None:
        """A long garbage collection: afterwards it continues as if no time had passed."""
        incarnation = self._next_incarnation()
        self.world.at(milliseconds, lambda: self._wake(incarnation))

    def change_subscription(self) -> None:
        self.metadata = bytes([0, 0, 0, 0, 0, 0, self.world.draw.randrange(256)])
        if self.assigned:
            self._join()

    def _wake(self, incarnation: int) -> None:
        if self.alive and self.incarnation == incarnation:
            if self.assigned:
                self._commit()
                self._work_later()
            else:
                self._join()

    # Its own actions

    def _next_incarnation(self) -> int:
        self.incarnation += 1
        return self.incarnation

    def _ask(self, message: GroupMessage, version: int) -> None:
        incarnation = self.incarnation
        answered = False

        def answer(response: GroupResponse) -> None:
            nonlocal answered
            if self.alive and self.incarnation == incarnation and not answered:
                answered = True
                self._answered(response)

        def give_up() -> None:
            if self.alive and self.incarnation == incarnation and not answered:
                self._join()

        self.world.send(self.name, message, version, answer)
        self.world.at(REQUEST_TIMEOUT_MS, give_up)

    def _join(self) -> None:
        self._next_incarnation()
        self.assigned = False
        self.positions = {}
        self._ask(join_request(self.member_id, self.instance_id, self.metadata), 9)

    def _start_over(self) -> None:
        self.member_id = ""
        self._join()

    def _answered(self, response: GroupResponse) -> None:
        match response:
            case JoinGroupResponse():
                self._joined(response)
            case SyncGroupResponse():
                self._synced(response)
            case OffsetFetchResponse():
                self._fetched(response)
            case HeartbeatResponse():
                self._checked(response.error_code)
            case OffsetCommitResponse():
                self._checked(response.topics[0].partitions[0].error_code)
            case _:
                raise AssertionError(response)

    def _checked(self, code: int) -> None:
        if code in REJOIN_CODES:
            self._join()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.crash()
        elif code != ErrorCode.NONE:
            self._start_over()

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._join()
            return
        if response.error_code != ErrorCode.NONE:
            self._checked(response.error_code)
            return
        self.member_id = response.member_id
        self.generation = response.generation_id
        leads = response.leader == self.member_id and not response.skip_assignment
        members = [member.member_id for member in response.members] if leads else []
        shares: dict[str, list[int]] = {member_id: [] for member_id in members}
        for partition in range(PARTITIONS if leads else 0):
            shares[members[partition % len(members)]].append(partition)
        self._ask(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(share))
                    for member_id, share in shares.items()
                ],
            ),
            5,
        )

    def _synced(self, response: SyncGroupResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            self._checked(response.error_code)
            return
        self.positions = dict.fromkeys(response.assignment, -1)
        self._ask(
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=GROUP,
                        topics=[
                            OffsetFetchRequestTopic(
                                name="topic", partition_indexes=list(self.positions)
                            )
                        ],
                    )
                ],
                require_stable=True,
            ),
            9,
        )

    def _fetched(self, response: OffsetFetchResponse) -> None:
        if response.groups[0].error_code != ErrorCode.NONE:
            self._join()
            return
        for partition in response.groups[0].topics[0].partitions:
            self.positions[partition.partition_index] = max(partition.committed_offset, 0)
        self.assigned = True
        self._work_later()

    def _work_later(self) -> None:
        incarnation = self.incarnation
        self.world.at(
            self.world.draw.randrange(1, WORK_MS),
            lambda: self._work() if self.alive and self.incarnation == incarnation else None,
        )

    def _work(self) -> None:
        if self.positions and self.world.draw.random() < 0.6:
            self._commit()
        else:
            self._ask(heartbeat_request(self.member_id, self.instance_id, self.generation), 4)
        self._work_later()

    def _commit(self) -> None:
        if not self.positions:
            return
        partition = self.world.draw.choice(list(self.positions))
        self.positions[partition] += self.world.draw.randrange(5)
        self._ask(
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name="topic",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=self.positions[partition],
                            )
                        ],
                    )
                ],
            ),
            9,
        )
