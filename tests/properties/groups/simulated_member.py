"""A simulated member of the consumer protocol: sends heartbeats, reads, commits, and fails."""

import itertools
import uuid
from dataclasses import dataclass, field

from consumer_world import HEARTBEAT_INTERVAL_MS, ConsumerWorld, Partition
from group_world import GROUP

from zhumq.groups.requests import GroupMessage, GroupResponse
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicIdPartitions,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

REQUEST_TIMEOUT_MS = 3_000
REBALANCE_TIMEOUT_MS = 6_000
START_OVER_CODES = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNRELEASED_INSTANCE_ID}
)


@dataclass
class Member:
    """One client. `incarnation` counts restarts and rejoins: responses to an earlier one are ignored."""

    name: str
    world: ConsumerWorld
    instance_id: str | None = None
    subscribed: list[str] = field(default_factory=lambda: ["orders"])
    regex: str | None = None
    alive: bool = False
    paused: bool = False
    incarnation: int = 0
    member_id: str = ""
    epoch: int = 0
    # The next offset of every partition that it reads; None until it is fetched.
    positions: dict[Partition, int | None] = field(default_factory=dict)
    says_all: bool = True
    owned_changed: bool = False

    def __post_init__(self) -> None:
        self._starts = itertools.count()

    # Faults

    def start(self) -> None:
        assert not self.alive
        self.alive = True
        self.paused = False
        self.member_id = f"{self.name}-{next(self._starts)}"
        self._start_over()

    def crash(self) -> None:
        self._drop_all()
        self.incarnation += 1
        self.alive = False

    def leave(self) -> None:
        self._drop_all()
        self.world.send(
            self.name,
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=-1 if self.instance_id is None else -2,
                instance_id=self.instance_id,
            ),
            1,
            lambda _: None,
        )
        self.crash()

    def pause(self, milliseconds: int) -> None:
        """A long garbage collection: afterwards it continues as if no time had passed."""
        self.incarnation += 1
        self.paused = True
        incarnation = self.incarnation
        self.world.at(milliseconds, lambda: self._wake(incarnation))

    def subscribe(self, topics: list[str], regex: str | None) -> None:
        self.subscribed, self.regex = topics, regex
        self.says_all = True

    def _wake(self, incarnation: int) -> None:
        if self.alive and self.incarnation == incarnation:
            self.paused = False
            self.says_all = True
            self._commit()
            self._beat()

    # Its own actions

    def _start_over(self) -> None:
        self._drop_all()
        self.epoch = 0
        self.says_all = True
        self._beat()

    def _believe(self) -> None:
        self.world.believed[self.member_id] = set(self.positions)

    def _drop_all(self) -> None:
        self.positions = {}
        self._believe()

    def _ask(self, message: GroupMessage, version: int) -> None:
        self.incarnation += 1
        incarnation = self.incarnation

        def answer(response: GroupResponse) -> None:
            if self.alive and self.incarnation == incarnation:
                self.incarnation += 1
                self._answered(response)

        def give_up() -> None:
            if self.alive and self.incarnation == incarnation and not self.paused:
                self.says_all = True
                self._beat()

        self.world.send(self.name, message, version, answer)
        self.world.at(REQUEST_TIMEOUT_MS, give_up)

    def _later(self, delay_ms: int) -> None:
        incarnation = self.incarnation
        self.world.at(
            delay_ms,
            lambda: self._work() if self.alive and self.incarnation == incarnation else None,
        )

    def _work(self) -> None:
        self._commit()
        self._beat()

    def _beat(self) -> None:
        full = self.says_all
        owned = None
        if full or self.owned_changed:
            by_topic: dict[uuid.UUID, list[int]] = {}
            for topic_id, index in self.positions:
                by_topic.setdefault(topic_id, []).append(index)
            owned = [
                TopicIdPartitions(topic_id=each, partitions=indexes)
                for each, indexes in by_topic.items()
            ]
        # Later changes go into the next heartbeat; after an error or a timeout it sends all fields again.
        self.says_all = self.owned_changed = False
        self._ask(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=self.instance_id,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if full else -1,
                subscribed_topic_names=self.subscribed if full else None,
                subscribed_topic_regex=(self.regex or "") if full else None,
                topic_partitions=owned,
            ),
            1,
        )

    def _answered(self, response: GroupResponse) -> None:
        match response:
            case ConsumerGroupHeartbeatResponse():
                self._beaten(response)
            case OffsetFetchResponse():
                self._fetched(response)
            case _:
                raise AssertionError(response)

    def _beaten(self, response: ConsumerGroupHeartbeatResponse) -> None:
        code = response.error_code
        if code in START_OVER_CODES:
            self._drop_all()
            self.epoch = 0
            self.says_all = True
            self._later(HEARTBEAT_INTERVAL_MS)
            return
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.crash()
            return
        if code != ErrorCode.NONE:
            assert code == ErrorCode.NOT_COORDINATOR, ErrorCode(code)
            self.says_all = True
            self._later(100)
            return
        self.epoch = response.member_epoch
        if response.assignment is None:
            self._later(self.world.draw.randrange(100, HEARTBEAT_INTERVAL_MS))
            return
        assigned = {
            (each.topic_id, index)
            for each in response.assignment.topic_partitions
            for index in each.partitions
        }
        # It takes a while to stop reading; until then it reports the partitions as owned.
        incarnation = self.incarnation
        self.world.at(
            self.world.draw.randrange(1, 1_500),
            lambda: (
                self._take(assigned) if self.alive and self.incarnation == incarnation else None
            ),
        )

    def _take(self, assigned: set[Partition]) -> None:
        self._commit()
        self.positions = {each: self.positions.get(each) for each in sorted(assigned)}
        self._believe()
        self.owned_changed = True
        self._fetch()

    def _fetch(self) -> None:
        unknown = sorted(each for each, position in self.positions.items() if position is None)
        names: dict[str, list[int]] = {}
        for topic_id, index in unknown:
            name = self.world.topics.topic_name(topic_id)
            if name is not None:
                names.setdefault(name, []).append(index)
        if not names:
            self._later(10)
            return
        self._ask(
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=GROUP,
                        member_id=self.member_id,
                        member_epoch=self.epoch,
                        topics=[
                            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                            for name, indexes in names.items()
                        ],
                    )
                ],
            ),
            9,
        )

    def _fetched(self, response: OffsetFetchResponse) -> None:
        group = response.groups[0]
        if group.error_code == ErrorCode.NONE:
            for topic in group.topics:
                topic_id = self.world.topics.ids.get(topic.name)
                for each in topic.partitions:
                    if (topic_id, each.partition_index) in self.positions:
                        key = (topic_id, each.partition_index)
                        self.positions[key] = max(each.committed_offset, 0)
        self._later(10)

    def _commit(self) -> None:
        known = [each for each, position in self.positions.items() if position is not None]
        if not known or self.world.draw.random() < 0.3:
            return
        topic_id, index = self.world.draw.choice(known)
        name = self.world.topics.topic_name(topic_id)
        if name is None:
            return
        position = (self.positions[topic_id, index] or 0) + self.world.draw.randrange(5)
        self.positions[topic_id, index] = position
        # The response is not awaited: the next owner continues from what was accepted.
        self.world.send(
            self.name,
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self.epoch,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=name,
                        topic_id=topic_id,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=index, committed_offset=position
                            )
                        ],
                    )
                ],
            ),
            9,
            lambda _: None,
        )
