"""The tables of the terminal UI: what each reads from the brokers, and its rows."""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from zhumq.admin.cluster import describe_cluster
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, NotFound
from zhumq.admin.groups import GroupSummary, describe_group, list_groups
from zhumq.admin.history import read_history
from zhumq.admin.producers import list_writing
from zhumq.admin.sizes import data_folders, replica_sizes, topic_sizes
from zhumq.admin.topics import describe_topic, list_topics
from zhumq.ui.cells import (
    NUMBER_WIDTH,
    lag_cell,
    name_cell,
    number_cell,
    rate_cell,
    seconds_cell,
    shown,
    size_cell,
    state_cell,
)

GROUPS_AT_ONCE_MAX: Final = 50  # whose lag is read for one refresh; of more, each has its turn
LAG_AGE_MS: Final = 60_000  # of a sample of the lag in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row, and the name of what it shows, by which it is found again at the next refresh."""

    key: str
    cells: tuple[Text, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a view has read, and a note on it."""

    rows: tuple[Row, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A table: `read` runs in a thread, again and again."""

    title: str
    columns: tuple[str, ...]
    read: Callable[[ClusterConnection], Rows]


def topics_view(*, with_internal: bool = False) -> View:
    def read(connection: ClusterConnection) -> Rows:
        found = [each for each in list_topics(connection) if with_internal or not each.is_internal]
        sizes = topic_sizes(connection)
        messages: defaultdict[str, float] = defaultdict(float)
        sent: defaultdict[str, float] = defaultdict(float)
        for each in list_writing(connection):
            messages[each.topic] += each.message_rate
            sent[each.topic] += each.byte_rate
        return Rows(
            rows=tuple(
                Row(
                    key=each.topic,
                    cells=(
                        name_cell(each.topic),
                        number_cell(each.partitions),
                        number_cell(each.replicas),
                        size_cell(sizes.get(each.topic)),
                        rate_cell(messages[each.topic]),
                        size_cell(round(sent[each.topic]), "/s"),
                    ),
                )
                for each in found
            ),
            note=_count(len(found), "topic"),
        )

    return View(
        title="Topics",
        columns=("Topic", *_over_numbers("Partitions", "Replicas", "Size", "Messages", "Bytes")),
        read=read,
    )


def partitions_view(topic: str) -> View:
    def read(connection: ClusterConnection) -> Rows:
        found = describe_topic(connection, topic)
        sizes: Counter[int] = Counter()
        for each in replica_sizes(connection, topic, [x.partition for x in found.partitions]):
            sizes[each.partition] += each.size_bytes
        return Rows(
            rows=tuple(
                Row(
                    key=str(each.partition),
                    cells=(
                        number_cell(each.partition),
                        number_cell(each.leader),
                        name_cell(_numbers(each.replicas)),
                        name_cell(_numbers(each.in_sync)),
                        number_cell(each.earliest),
                        number_cell(each.latest),
                        size_cell(sizes[each.partition]),
                    ),
                )
                for each in found.partitions
            ),
            note=_count(len(found.partitions), "partition"),
        )

    return View(
        title=f"Topic {shown(topic)}",
        columns=(
            *_over_numbers("Partition", "Leader"),
            "Replicas",
            "In sync",
            *_over_numbers("Earliest", "Latest", "Size"),
        ),
        read=read,
    )


class _Lags:
    """The lag of each group, as it was last read."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int | None, float | None]] = {}
        self._turn = 0

    def of(self, group: str) -> tuple[int | None, float | None]:
        """In messages and in seconds."""
        return self._known.get(group, (None, None))

    def read(self, connection: ClusterConnection, groups: Sequence[GroupSummary]) -> None:
        """Read those whose turn it is."""
        names = [each.group for each in groups]
        self._known = {name: self._known[name] for name in names if name in self._known}
        begin = self._turn if self._turn < len(names) else 0
        chosen = list(itertools.islice(names, begin, begin + GROUPS_AT_ONCE_MAX))
        self._turn = begin + len(chosen)
        for name in chosen:
            try:
                lags = [each.lag for each in describe_group(connection, name).offsets]
            except NotFound:
                continue  # It was deleted a moment ago.
            known = [each for each in lags if each is not None]
            lag = sum(known) if known else None
            self._known[name] = (lag, 0.0 if lag == 0 else _lag_seconds(connection, name))


def _lag_seconds(connection: ClusterConnection, group: str) -> float | None:
    """The newest sample that the brokers have."""
    now_ms = time.time_ns() // 1_000_000
    try:
        found = read_history(connection, "group", group, from_ms=now_ms - LAG_AGE_MS)
    except AdminError:
        return (
            None  # It is not among the groups that the brokers keep samples of, or may not be read.
        )
    return next((x for x in reversed(found.series.get("lag_seconds", ())) if x is not None), None)


def groups_view() -> View:
    lags = _Lags()

    def read(connection: ClusterConnection) -> Rows:
        found = list_groups(connection)
        lags.read(connection, found.groups)
        note = _count(len(found.groups), "group")
        return Rows(
            rows=tuple(
                Row(
                    key=each.group,
                    cells=(
                        name_cell(each.group),
                        name_cell(each.mode or each.type.lower()),
                        state_cell(each.state),
                        lag_cell(lags.of(each.group)[0]),
                        seconds_cell(lags.of(each.group)[1]),
                        name_cell(", ".join(each.claims) or None),
                    ),
                )
                for each in found.groups
            ),
            note=f"{note}; {shown(found.warning, 200)}" if found.warning else note,
        )

    return View(
        title="Groups",
        columns=("Group", "Kind", "State", *_over_numbers("Lag", "Late by"), "Claims"),
        read=read,
    )


def group_view(group: str) -> View:
    def read(connection: ClusterConnection) -> Rows:
        found = describe_group(connection, group)
        lag = sum(each.lag or 0 for each in found.offsets)
        return Rows(
            rows=tuple(
                Row(
                    key=f"{each.topic}-{each.partition}",
                    cells=(
                        name_cell(each.topic),
                        number_cell(each.partition),
                        number_cell(each.committed),
                        number_cell(each.latest),
                        lag_cell(each.lag),
                        number_cell(each.in_flight),
                        name_cell(each.member or ", ".join(each.consumers) or None),
                    ),
                )
                for each in found.offsets
            ),
            note=f"{shown(found.state)}, {_count(len(found.members), 'member')}, lag {lag:,}",
        )

    return View(
        title=f"Group {shown(group)}",
        columns=(
            "Topic",
            *_over_numbers("Partition", "Committed", "Latest", "Lag", "In flight"),
            "Read by",
        ),
        read=read,
    )


def brokers_view() -> View:
    def read(connection: ClusterConnection) -> Rows:
        found = describe_cluster(connection)
        folders = {each.broker: each for each in data_folders(connection)}
        rows = []
        for each in found.brokers:
            folder = folders.get(each.broker)
            rows.append(
                Row(
                    key=str(each.broker),
                    cells=(
                        number_cell(each.broker),
                        name_cell(each.address),
                        name_cell(each.rack),
                        name_cell("controller" if each.controller else None),
                        number_cell(each.leads),
                        number_cell(each.replicas),
                        size_cell(folder.size_bytes if folder else None),
                        size_cell(folder.usable_bytes if folder else None),
                    ),
                )
            )
        return Rows(
            rows=tuple(rows),
            note=f"{_count(found.partitions, 'partition')}, {found.leaderless} without a leader,"
            f" {found.underreplicated} under-replicated",
        )

    return View(
        title="Brokers",
        columns=(
            *_over_numbers("Broker"),
            "Address",
            "Rack",
            "Role",
            *_over_numbers("Leads", "Replicas", "Data", "Free"),
        ),
        read=read,
    )


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _over_numbers(*headings: str) -> tuple[str, ...]:
    return tuple(heading.rjust(NUMBER_WIDTH) for heading in headings)
