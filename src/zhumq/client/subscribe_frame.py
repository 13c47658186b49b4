"""Builds parts of a Subscribe frame from the client's arguments: topics with partitions, and the start."""

from collections.abc import Mapping, Sequence
from typing import Final

from zhumq.protocol.push import push_pb2 as pb

MODES: Final = {"ptp": pb.PTP_EXCLUSIVE, "ptp-shared": pb.PTP_SHARED, "psb": pb.PSB}
MODE_NAMES: Final = {code: name for name, code in MODES.items()}

Topics = str | Sequence[str] | Mapping[str, Sequence[int]]


def topic_choices(topics: Topics) -> list[pb.TopicChoice]:
    """The topics of a name, of names, or of names with chosen partitions."""
    if isinstance(topics, str):
        return [pb.TopicChoice(name=topics)]
    if isinstance(topics, Mapping):
        return [pb.TopicChoice(name=name, partitions=each) for name, each in topics.items()]
    return [pb.TopicChoice(name=name) for name in topics]


def has_partitions(topics: Topics) -> bool:
    """Whether partitions were chosen."""
    return isinstance(topics, Mapping) and any(topics.values())


def start_frame(start: str | int, start_time_ms: int | None) -> pb.Start:
    """The start: a time if one is given, else earliest, latest or an offset."""
    if start_time_ms is not None:
        return pb.Start(kind=pb.TIME, timestamp_ms=start_time_ms)
    match start:
        case "earliest":
            return pb.Start(kind=pb.EARLIEST)
        case "latest":
            return pb.Start(kind=pb.LATEST)
        case int():
            return pb.Start(kind=pb.OFFSET, offset=start)
        case _:
            raise ValueError(f"start is earliest, latest or an offset, not {start!r}")
