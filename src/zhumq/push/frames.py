"""Translates between push frames and model types: subscriptions, refusals, leaders."""

from collections.abc import Iterable
from typing import Final

from zhumq.metadata.image import ClusterImage
from zhumq.model.errors import (
    BrokerError,
    InvalidGroupId,
    InvalidRecord,
    InvalidRequest,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import TopicPartition
from zhumq.protocol.push import push_pb2 as pb
from zhumq.share.acknowledgement import AckKind
from zhumq.share.subscription import (
    PartitionTaken,
    Start,
    StartKind,
    SubscriptionMode,
    TopicTaken,
)

MODES: Final[dict[pb.Mode, SubscriptionMode]] = {
    pb.PTP_EXCLUSIVE: SubscriptionMode.PTP_EXCLUSIVE,
    pb.PTP_SHARED: SubscriptionMode.PTP_SHARED,
    pb.PSB: SubscriptionMode.PSB,
}
MODE_CODES: Final = {mode: code for code, mode in MODES.items()}
ACK_KINDS: Final[dict[int, AckKind]] = {
    pb.ACK: AckKind.ACCEPT,
    pb.NACK: AckKind.RELEASE,
    pb.REJECT: AckKind.REJECT,
    pb.EXTEND: AckKind.RENEW,
    pb.RELEASE: AckKind.RELEASE,
}


class Refusal(Exception):
    """Ends the stream with this code and message."""

    def __init__(self, code: pb.Code, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retry = retry

    @classmethod
    def of(cls, error: BrokerError) -> "Refusal":
        # The partition may belong to an old connection of this consumer that the broker still counts as open.
        retry = error.retriable or isinstance(error, PartitionTaken)
        return cls(code_of(error), str(error), retry=retry)

    def frame(self) -> pb.ServerFrame:
        refused = pb.Refused(code=self.code, message=str(self), retry=self.retry)
        return pb.ServerFrame(refused=refused)


def code_of(error: BrokerError) -> pb.Code:
    """The push protocol's code for a broker error."""
    match error:
        case TopicTaken() | PartitionTaken():
            return pb.GROUP_CONFLICT
        case UnknownTopicOrPartition():
            return pb.UNKNOWN_TOPIC
        case OffsetOutOfRange():
            return pb.OFFSET_OUT_OF_RANGE
        case NotLeaderOrFollower():
            return pb.NOT_LEADER
        case InvalidRequest() | InvalidGroupId() | InvalidRecord() | MessageTooLarge():
            return pb.INVALID
        case _:
            return pb.UNAVAILABLE if error.retriable else pb.INTERNAL


def start_of(subscribe: pb.Subscribe, mode: SubscriptionMode) -> Start:
    """Where the subscription begins. Without `restart` a group continues at its stored position."""
    given = subscribe.start
    kinds = {pb.EARLIEST: StartKind.EARLIEST, pb.LATEST: StartKind.LATEST}
    kinds |= {pb.OFFSET: StartKind.OFFSET, pb.TIME: StartKind.TIME}
    kind = kinds.get(given.kind)
    if kind is None:
        raise Refusal(pb.INVALID, f"there is no start of kind {given.kind}")
    if mode.is_point_to_point and subscribe.restart:
        raise Refusal(
            pb.INVALID, "a point-to-point group keeps its own position: restart is for psb"
        )
    match kind:
        case StartKind.OFFSET:
            return Start.offset(given.offset)
        case StartKind.TIME:
            return Start.time(given.timestamp_ms)
        case _ if subscribe.restart:
            return Start(kind)
        case _:
            return Start(StartKind.STORED, otherwise=kind)


def leaders(
    image: ClusterImage, places: Iterable[TopicPartition], addresses: dict[int, str]
) -> list[pb.Leader]:
    """The leaders of these partitions with their push addresses."""
    found = []
    for place in places:
        state = image.partition(place)
        leader = int(image.leader_of(state)) if state is not None else -1
        found.append(
            pb.Leader(
                topic=place.topic,
                partition=place.partition,
                broker_id=leader,
                address=addresses.get(leader, ""),
            )
        )
    return found
