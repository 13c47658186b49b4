"""A consumer's stream drops frames of a revoked partition until the next assignment."""

from zhumq.client.link import Link
from zhumq.client.message import MessageBatch
from zhumq.protocol.push import push_pb2 as pb


class Listener:
    def __init__(self) -> None:
        self.arrived: list[tuple[int, int]] = []

    def on_batch(self, link: Link, batch: MessageBatch) -> None:
        assert link
        self.arrived += [(batch.partition, each.first_offset) for each in batch.ranges]

    def on_frame(self, link: Link, frame: pb.ServerFrame) -> None: ...
    def on_answer_refused(self, message: str) -> None: ...
    def on_answers_lost(self, messages: int) -> None: ...


def _messages(partition: int, first: int, last: int) -> pb.ServerFrame:
    ranges = [pb.Range(first_offset=first, last_offset=last, delivery_count=1)]
    return pb.ServerFrame(messages=pb.Messages(topic="t", partition=partition, ranges=ranges))


def test_messages_of_a_revoked_partition_are_dropped() -> None:
    listener = Listener()
    link = Link("nowhere:1", pb.Subscribe(mode=pb.PTP_EXCLUSIVE), listener, None)
    link._handle(_messages(0, 0, 9))
    link.ignore({("t", 0)})
    # The consumer has dropped 0 to 9 by now: delivering these would skip them.
    link._handle(_messages(0, 10, 19))
    link._handle(_messages(1, 5, 6))
    assert listener.arrived == [(0, 0), (1, 5)]
    link.clear_ignored()
    link._handle(_messages(0, 0, 19))
    assert listener.arrived[-1] == (0, 0)
