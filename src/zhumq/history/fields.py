"""What a sample of a broker has: figures of the broker, of its busiest topics, and of the groups with most lag."""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

# Not a number: the figure is not known.
Values = tuple[float, ...]


class Subject(StrEnum):
    """What a history is about."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"


class Over(StrEnum):
    """How the figures of several samples, or of several brokers, become one."""

    SUM = "sum"
    MEAN = "mean"
    LAST = "last"
    MAX = "max"


class Field(NamedTuple):
    """One figure."""

    name: str
    over_time: Over
    over_brokers: Over = Over.SUM


FIELDS: Final[Mapping[Subject, tuple[Field, ...]]] = {
    Subject.BROKER: (
        Field("messages_in", Over.MEAN),  # a second, as are the next four
        Field("bytes_in", Over.MEAN),
        Field("messages_out", Over.MEAN),
        Field("bytes_out", Over.MEAN),
        Field("requests", Over.MEAN),
        Field("connections", Over.LAST),
        Field("producers", Over.LAST),
        Field("disk_used_bytes", Over.LAST),
        Field("disk_total_bytes", Over.LAST),
        # Every broker knows these of the whole cluster.
        Field("under_replicated", Over.MAX, Over.MAX),
        Field("leaderless", Over.MAX, Over.MAX),
    ),
    Subject.TOPIC: (
        Field("messages_in", Over.MEAN),
        Field("bytes_in", Over.MEAN),
        Field("messages_out", Over.MEAN),
        Field("bytes_out", Over.MEAN),
        Field("size_bytes", Over.LAST),
    ),
    Subject.GROUP: (
        Field("lag", Over.MAX),
        Field("lag_seconds", Over.MAX, Over.MAX),
    ),
}


class Sample(NamedTuple):
    """The figures at one time. Topics and groups are in the order of their weight: the first ones are kept."""

    time_ms: int
    broker: Values
    topics: Mapping[str, Values]
    groups: Mapping[str, Values]

    def of(self, subject: Subject, name: str) -> Values | None:
        """The figures of a subject; None if the sample does not have it."""
        if subject is Subject.BROKER:
            return self.broker
        return (self.topics if subject is Subject.TOPIC else self.groups).get(name)


def combine(samples: Sequence[Sample], time_ms: int) -> Sample:
    """One sample in the place of several, which are in the order of time."""
    assert samples
    return Sample(
        time_ms,
        combine_values([each.broker for each in samples], Subject.BROKER),
        _combine_named([each.topics for each in samples], Subject.TOPIC),
        _combine_named([each.groups for each in samples], Subject.GROUP),
    )


def combine_values(found: Sequence[Values | None], subject: Subject) -> Values:
    """The figures of one subject in several samples. In a mean, a sample without the subject counts as zero: it was
    not among the busiest then."""
    present = [values for values in found if values is not None]
    assert present
    return tuple(
        _OVER[field.over_time]([values[place] for values in present], len(found))
        for place, field in enumerate(FIELDS[subject])
    )


def _combine_named(found: Sequence[Mapping[str, Values]], subject: Subject) -> dict[str, Values]:
    names = dict.fromkeys(name for each in found for name in each)
    combined = {name: combine_values([each.get(name) for each in found], subject) for name in names}
    return dict(
        sorted(combined.items(), key=lambda item: weight_of(item[1], subject), reverse=True)
    )


def weight_of(values: Values, subject: Subject) -> tuple[float, ...]:
    """By which the busiest topics and the groups with most lag are chosen."""
    if subject is Subject.TOPIC:
        messages_in, bytes_in, messages_out, bytes_out, size_bytes = values
        return (bytes_in + bytes_out, messages_in + messages_out, size_bytes)
    return tuple(0.0 if math.isnan(value) else value for value in values)


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _mean(values: Sequence[float], count: int) -> float:
    known = _known(values)
    unknown = len(values) - len(known)
    return sum(known) / (count - unknown) if known else math.nan


def _max(values: Sequence[float], _count: int) -> float:
    return max(_known(values), default=math.nan)


def _last(values: Sequence[float], _count: int) -> float:
    return next((value for value in reversed(values) if not math.isnan(value)), math.nan)


_OVER: Final[Mapping[Over, Callable[[Sequence[float], int], float]]] = {
    Over.MEAN: _mean,
    Over.LAST: _last,
    Over.MAX: _max,
}
