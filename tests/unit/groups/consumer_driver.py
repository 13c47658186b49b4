"""Drives a shard with the consumer protocol: members report owned partitions and apply assignments."""

import itertools
from dataclasses import dataclass, field

from group_driver import GROUP, Driver

from zhumq.groups.consumer import ConsumerGroup
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicIdPartitions,
)

REBALANCE_TIMEOUT_MS = 60_000
Owned = dict[str, list[int]]


@dataclass
class ConsumerDriver(Driver):
    """A shard with a topic `topic` of six partitions."""

    def __post_init__(self) -> None:
        self.topics.put("topic", 6)
        self._names = itertools.count(1)
        super().__post_init__()

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: list[str] | None = None,
        regex: str | None = None,
        owned: Owned | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = -1,
        group_id: str = GROUP,
        version: int = 1,
    ) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat. Owned partitions are given by topic name; a deleted topic keeps its id."""
        response = self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=topics,
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=None
                if owned is None
                else [
                    TopicIdPartitions(topic_id=self.topics.ids[name], partitions=indexes)
                    for name, indexes in owned.items()
                ],
            ),
            version,
        )
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def consumer(self, member_id: str = "", **options: object) -> "SimpleMember":
        """A member that has joined."""
        member = SimpleMember(self, member_id or f"m{next(self._names)}", options)
        member.join()
        return member

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def describe_consumers(self, group_id: str = GROUP) -> ConsumerGroupDescribedGroup:
        response = self.ask(ConsumerGroupDescribeRequest(group_ids=[group_id]), 1)
        assert isinstance(response, ConsumerGroupDescribeResponse)
        return response.groups[0]

    def named(self, response: ConsumerGroupHeartbeatResponse) -> Owned:
        assert response.assignment is not None
        return {
            self.topics.topic_name(each.topic_id) or str(each.topic_id): each.partitions
            for each in response.assignment.topic_partitions
        }

    def settle(self, *members: "SimpleMember") -> None:
        """Send heartbeats of these members until no assignment changes."""
        for _ in range(20):
            before = [(member.epoch, member.owned) for member in members]
            for member in members:
                member.beat()
            if before == [(member.epoch, member.owned) for member in members]:
                return
        raise AssertionError("it never comes to rest")


@dataclass
class SimpleMember:
    """A client that applies every assignment at once."""

    driver: ConsumerDriver
    member_id: str
    options: dict[str, object] = field(default_factory=dict)
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    answer: ConsumerGroupHeartbeatResponse = field(default_factory=ConsumerGroupHeartbeatResponse)

    def join(self) -> ConsumerGroupHeartbeatResponse:
        topics = None if "regex" in self.options else ["topic"]
        self.owned = {}
        return self._take(
            self.driver.beat(
                self.member_id,
                0,
                owned={},
                **{"topics": topics, "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, **self.options},  # type: ignore[arg-type]
            )
        )

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        """Report the owned partitions, and apply the assignment in the response."""
        owned = {name: each for name, each in self.owned.items() if name in self.driver.topics.ids}
        return self._take(self.driver.beat(self.member_id, self.epoch, owned=owned))

    def leave(self, epoch: int = -1) -> int:
        instance_id = self.options.get("instance_id")
        assert instance_id is None or isinstance(instance_id, str)
        return self.driver.beat(self.member_id, epoch, instance_id=instance_id).error_code

    @property
    def partitions(self) -> list[int]:
        return self.owned.get("topic", [])

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        self.answer = answer
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = self.driver.named(answer)
        return answer
