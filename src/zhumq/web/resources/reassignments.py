"""Reassignments: propose moves of replicas, start them, follow and cancel them, and limit their rate."""

from collections.abc import Collection
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from zhumq.admin import moves_under_way, reassignment
from zhumq.model.ids import TopicPartition
from zhumq.web.brokers import Brokers
from zhumq.web.names import INT64_MAX, BrokerNumber, PartitionNumber, TopicName
from zhumq.web.paging import Page, PageQuery, page_of
from zhumq.web.problems import invalid
from zhumq.web.resources.topics import ReplicaCount

MOVES_MAX: Final = 1_000  # of one request
BROKERS_MAX: Final = 1_000
_PARTITION_DIGITS: Final = 10

BrokerNumbers = Annotated[list[BrokerNumber], Meta(min_length=1, max_length=BROKERS_MAX)]


class MoveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to move: the replicas of a topic, all that a broker has, or, if nothing is given, what is not at its place."""

    topic: TopicName | None = None
    # Of the topic: the brokers that may have replicas, else all live ones; and how many, else as many as now.
    brokers: BrokerNumbers | None = None
    replicas: ReplicaCount | None = None
    drain: BrokerNumber | None = None


class ProposedMove(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with its replicas before and after."""

    topic: str
    partition: int
    before: list[int]
    after: list[int]
    copied_bytes: int | None  # by all its new replicas; null: not known


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Moves that are not started. `left_out` more are for the next proposal."""

    moves: list[ProposedMove]
    left_out: int
    copied_bytes: int | None
    brokers: tuple[reassignment.BrokerShare, ...]  # after all moves, also those that are left out


class MoveTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition and the replicas that it is to have, the preferred leader first."""

    topic: TopicName
    partition: PartitionNumber
    replicas: BrokerNumbers


class MoveTargets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The moves to start, such as those of a proposal."""

    moves: Annotated[list[MoveTarget], Meta(min_length=1, max_length=MOVES_MAX)]


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """How many moves were started."""

    started: int


class MovingPartition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition whose move ends."""

    topic: TopicName
    partition: PartitionNumber


class Cancellation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The partitions whose moves are cancelled."""

    partitions: Annotated[list[MovingPartition], Meta(min_length=1, max_length=MOVES_MAX)]


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """How many moves were cancelled: one that had ended is not among them."""

    cancelled: int


class CopyRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bytes a second that each broker sends to new replicas at most; null: no limit."""

    bytes_per_second: Annotated[int, Meta(ge=1, lt=INT64_MAX)] | None


def list_moves(brokers: Brokers, query: PageQuery) -> Page[moves_under_way.Reassignment]:
    """List the reassignments under way, with the bytes that are left to copy."""
    found = moves_under_way.list_moves(brokers.connection)
    return page_of(found, _name, limit=query.limit, after=query.after)


def propose(brokers: Brokers, body: MoveRequest) -> Proposal:
    """Propose moves of replicas. Nothing is started.

    Partitions that move already are left out. A broker drops a replica only after the new one has caught up.
    """
    plan = _plan(brokers, body)
    moves = plan.moves[:MOVES_MAX]
    sizes = moves_under_way.copied_bytes(brokers.connection, moves)
    return Proposal(
        moves=[
            ProposedMove(
                topic=move.topic_partition.topic,
                partition=move.topic_partition.partition,
                before=list(move.before),
                after=list(move.after),
                copied_bytes=None if sizes is None else sizes[index],
            )
            for index, move in enumerate(moves)
        ],
        left_out=len(plan.moves) - len(moves),
        copied_bytes=None if sizes is None else sum(sizes),
        brokers=plan.brokers,
    )


def start(brokers: Brokers, body: MoveTargets) -> Started:
    """Start moves, which the brokers carry out. A partition that moves already goes to the new place instead."""
    targets = {TopicPartition(each.topic, each.partition): each.replicas for each in body.moves}
    _check_distinct(targets, len(body.moves))
    reassignment.begin_moves(brokers.connection, targets)
    return Started(started=len(targets))


def cancel(brokers: Brokers, body: Cancellation) -> Cancelled:
    """Cancel moves: the partitions have the replicas again that they had before."""
    names = {TopicPartition(each.topic, each.partition) for each in body.partitions}
    _check_distinct(names, len(body.partitions))
    return Cancelled(cancelled=reassignment.cancel_moves(brokers.connection, names))


def show_copy_rate(brokers: Brokers) -> CopyRate:
    """Show the limit of what each broker sends to new replicas."""
    return CopyRate(bytes_per_second=reassignment.copy_rate(brokers.connection))


def set_copy_rate(brokers: Brokers, body: CopyRate) -> None:
    """Limit what each broker sends to new replicas, until it is set to null. Replicas that are in sync are not limited."""
    reassignment.set_copy_rate(brokers.connection, body.bytes_per_second)


def _plan(brokers: Brokers, body: MoveRequest) -> reassignment.Plan:
    if body.topic is not None:
        if body.drain is not None:
            raise invalid(
                "a proposal is of a topic or of a broker", "give topic or drain, not both"
            )
        return reassignment.plan_topic(
            brokers.connection, body.topic, brokers=body.brokers, replicas=body.replicas
        )
    if body.brokers is not None or body.replicas is not None:
        raise invalid("brokers and replicas are of a topic", "give topic, too")
    if body.drain is not None:
        return reassignment.plan_draining(brokers.connection, body.drain)
    return reassignment.plan_rebalancing(brokers.connection)


def _check_distinct(names: Collection[TopicPartition], count: int) -> None:
    if len(names) < count:
        raise invalid("a partition is there twice")


def _name(each: moves_under_way.Reassignment) -> str:
    """A name that sorts as topic and partition do: a blank is before all characters of topics."""
    return f"{each.topic} {each.partition:0{_PARTITION_DIGITS}}"
