"""Members of a share group that acknowledge records at random while brokers fail."""

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, TopicPartition
from share_member import ShareMember, Taken

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from zhumq.share.acknowledgement import AckKind
from zhumq.testing.raw_client import RawClient

SECONDS_MAX = 90.0
RETRY_SECONDS = 0.05
Where = tuple[int, int]  # partition and offset


class Worker:
    """One member for each partition in turn, connected to its leader."""

    def __init__(
        self,
        number: int,
        group: str,
        topic_id: uuid.UUID,
        partitions: int,
        leader_of: Callable[[int], str | None],
        *,
        seed: int,
    ) -> None:
        self.accepted: set[Where] = set()  # the broker confirmed it
        self.unsure: set[Where] = set()  # sent, and not answered
        self.taken_after_accept: list[Taken] = []
        self.failure: BaseException | None = None
        self._draw = random.Random(seed + number)
        self._group = group
        self._topic_id = topic_id
        self._partitions = partitions
        self._leader_of = leader_of
        self._workers: list[Worker] = []
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"worker-{number}")

    def start(self, workers: "list[Worker]") -> None:
        self._workers = workers
        self.thread.start()

    def stop(self) -> None:
        self._stop.set()
        self.thread.join(SECONDS_MAX)
        assert not self.thread.is_alive()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._visit(self._draw.randrange(self._partitions))
        except BaseException as failure:
            self.failure = failure
            raise

    def _visit(self, partition: int) -> None:
        leader = self._leader_of(partition)
        if leader is None:
            self._stop.wait(RETRY_SECONDS)
            return
        try:
            with ShareMember(leader, self._group, self._topic_id, (partition,)) as member:
                for _ in range(10):
                    if self._stop.is_set() or not self._work(member, partition):
                        return
        except OSError:
            self._stop.wait(RETRY_SECONDS)  # the broker is down

    def _work(self, member: ShareMember, partition: int) -> bool:
        """Whether to continue on this partition."""
        # Before the fetch: its response may contain records that are acknowledged meanwhile.
        done = set().union(*(each.accepted for each in self._workers))
        response = member.fetch_raw(
            max_records=self._draw.choice((1, 7, 40)), max_wait_ms=100, strict=True
        )
        if response.error_code or any(
            answer.error_code for topic in response.responses for answer in topic.partitions
        ):
            self._stop.wait(RETRY_SECONDS)  # it is not the leader any more, or not yet
            return False
        for each in member.taken(response):
            where = (partition, each.offset)
            if where in done:
                self.taken_after_accept.append(each)
            chance = self._draw.random()
            if chance < 0.85:
                self.unsure.add(where)
                code = member.say(AckKind.ACCEPT, partition, each.offset)
                if code == ErrorCode.NONE:
                    self.accepted.add(where)
                if code in (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE):
                    self.unsure.discard(where)
            elif chance < 0.93:
                member.say(AckKind.RELEASE, partition, each.offset)
            elif chance < 0.98:
                member.say(AckKind.REJECT, partition, each.offset)
        return True


class Verdict:
    """The final state of every message."""

    def __init__(self, workers: list[Worker], bootstrap: str, topic: str, partitions: int) -> None:
        self._accepted = set().union(*(worker.accepted for worker in workers))
        self._unsure = set().union(*(worker.unsure for worker in workers))
        self._resurrected = [each for worker in workers for each in worker.taken_after_accept]
        self.dead = Counter(dead_letters(bootstrap, topic, partitions))

    def check(self, written: set[Where]) -> None:
        assert not self._resurrected, f"delivered after acknowledgement: {self._resurrected}"
        twice = [where for where, count in self.dead.items() if count > 1]
        assert not twice, f"dead letter written twice: {twice}"
        assert not self._accepted & set(self.dead), "acknowledged and dead-lettered"
        missing = written - self._accepted - set(self.dead)
        assert missing <= self._unsure, f"lost: {sorted(missing - self._unsure)}"


def start_offsets(bootstrap: str, group: str) -> dict[int, int]:
    """Start offsets of a group; empty while it has none."""
    with RawClient(bootstrap) as client:
        answer = client.ask(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
            ),
        )
    return {
        partition.partition_index: partition.start_offset
        for topic in answer.groups[0].topics
        for partition in topic.partitions
    }


def dead_letters(bootstrap: str, topic: str, partitions: int) -> list[Where]:
    """Partition and offset of each message that has a dead letter."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "log_level": 0,
            "enable.partition.eof": True,
        }
    )
    found: list[Where] = []
    try:
        for partition in range(partitions):
            consumer.assign([TopicPartition(f"{topic}.dlq", partition, 0)])
            while True:
                message = consumer.poll(20)
                assert message is not None
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    break
                headers = dict(message.headers())
                assert int(headers["zhumq.partition"]) == partition
                found.append((partition, int(headers["zhumq.offset"])))
        return found
    finally:
        consumer.close()
