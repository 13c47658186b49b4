"""`zhumq cluster rebalance`: previews and carries out moves of partitions to their place on the hash ring."""

import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from zhumq.cli.client import Cluster
from zhumq.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, CommandFailed, JsonOption
from zhumq.cli.output import print_json, print_note, print_table
from zhumq.cli.requests import BrokerConnection
from zhumq.cli.throttle import OFF, parse_rate, set_rate, throttled
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.reassignment import Move, plan_moves
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataResponse
from zhumq.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

POLL_SECONDS: Final = 0.5
AT_ONCE: Final = 20
ELECTIONS_MS_MAX: Final = 10_000  # later elections are left to the controller
FAILURES_IN_A_ROW_MAX: Final = 20
_VIRTUAL_NODES_SETTING: Final = "placement.virtual.nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The metadata image as a broker reports it to clients, and the partitions that move."""

    image: ClusterImage
    moving: frozenset[TopicPartition]


def rebalance(
    without: Annotated[
        list[int] | None,
        typer.Option("--without", metavar="ID", help="A broker to empty."),
    ] = None,
    at_once: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="How many partitions move at the same time."),
    ] = AT_ONCE,
    throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Bytes a second that each broker sends to new replicas, such as 50M, while this command"
            f" runs. `{OFF}` removes the throttle that an interrupted command has left.",
        ),
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show the moves.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Move partitions to their place on the hash ring of the live brokers.

    A broker that has joined gets its share; --without empties a broker before it leaves. The command
    shows a preview first. A broker keeps its replica until the new replicas have caught up.
    """
    rate = None if throttle is None else parse_rate(throttle)
    virtual_nodes = _virtual_nodes(bootstrap)
    with BrokerConnection(bootstrap) as broker:
        placement = _read(broker)
        moves = [
            move
            for move in _plan(placement.image, without or [], virtual_nodes)
            # A partition that moves already is left alone.
            if move.topic_partition not in placement.moving
        ]
        if as_json:
            print_json([_as_row(move) for move in moves])
        else:
            _show(placement.image, moves)
        if preview:
            return
        if throttle is not None and rate is None:
            set_rate(broker, None)
        if not moves:
            return
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Move {len(moves)} partitions?", abort=True, err=True)
        with throttled(broker, rate):
            run_moves(broker, moves, at_once, _progress(len(moves)))
        broker.ask(
            ApiKey.ELECT_LEADERS,
            ElectLeadersRequest(topic_partitions=None, timeout_ms=ELECTIONS_MS_MAX),
        )
    print_note(f"partitions moved: {len(moves)}")


def run_moves(
    broker: BrokerConnection, moves: Sequence[Move], at_once: int, done: Callable[[int], None]
) -> None:
    """Keep up to `at_once` moves running until all finish."""
    waiting = list(moves)
    begun: set[TopicPartition] = set()
    failures = 0
    while True:
        try:
            moving = _moving(broker)
            room = max(at_once - len(begun & moving), 0)
            batch = waiting[:room]
            if batch:
                _begin(broker, batch)
        except CommandFailed:
            # Brokers may restart while replicas move; the moves continue without this command.
            failures += 1
            if failures == FAILURES_IN_A_ROW_MAX:
                raise
            time.sleep(POLL_SECONDS)
            continue
        failures = 0
        waiting = waiting[len(batch) :]
        begun.update(move.topic_partition for move in batch)
        done(len(begun - moving) - len(batch))
        if not waiting and not batch and not begun & moving:
            return
        time.sleep(POLL_SECONDS)


def _moving(broker: BrokerConnection) -> frozenset[TopicPartition]:
    listed = broker.ask(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=None)
    )
    return frozenset(
        TopicPartition(topic.name, partition.partition_index)
        for topic in listed.topics
        for partition in topic.partitions
    )


def _begin(broker: BrokerConnection, moves: Sequence[Move]) -> None:
    topics: dict[str, ReassignableTopic] = {}
    for move in moves:
        name = move.topic_partition.topic
        topic = topics.setdefault(name, ReassignableTopic(name=name))
        topic.partitions.append(
            ReassignablePartition(
                partition_index=move.topic_partition.partition, replicas=list(move.after)
            )
        )
    answer = broker.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(topics=list(topics.values())),
    )
    for response in answer.responses:
        for partition in response.partitions:
            if partition.error_code != ErrorCode.NONE:
                raise CommandFailed(
                    f"{response.name}-{partition.partition_index} cannot move:"
                    f" {partition.error_message or ErrorCode(partition.error_code).name}"
                )


def _read(broker: BrokerConnection) -> Placement:
    answer: MetadataResponse = broker.ask(ApiKey.METADATA, MetadataRequest(topics=None))
    brokers = {
        BrokerId(each.node_id): Broker(
            broker_id=BrokerId(each.node_id), host=each.host, port=each.port, rack=each.rack
        )
        for each in answer.brokers
    }
    topics: dict[str, Topic] = {}
    for described in answer.topics:
        states = tuple(
            PartitionState(
                replicas=tuple(map(BrokerId, each.replica_nodes)),
                leader=BrokerId(each.leader_id),
                leader_epoch=LeaderEpoch(each.leader_epoch),
                in_sync=tuple(map(BrokerId, each.isr_nodes)),
            )
            for each in sorted(described.partitions, key=lambda each: each.partition_index)
        )
        name = described.name or ""
        topics[name] = Topic(name=name, topic_id=described.topic_id, partitions=states)
    image = ClusterImage(
        version=0,
        cluster_id=answer.cluster_id or "",
        controller_id=BrokerId(answer.controller_id),
        brokers=brokers,
        topics=topics,
        topics_by_id=dict[uuid.UUID, Topic](),
    )
    return Placement(image=image, moving=_moving(broker))


def _plan(image: ClusterImage, without: Sequence[int], virtual_nodes: int) -> list[Move]:
    unknown = [each for each in without if each not in image.brokers]
    if unknown:
        raise CommandFailed(f"broker {unknown[0]} is not alive: see `zhumq cluster status`")
    staying = [each for each in image.brokers.values() if each.broker_id not in without]
    try:
        return plan_moves(image, staying, virtual_nodes=virtual_nodes)
    except BrokerError as reason:
        raise CommandFailed(str(reason)) from reason


def _show(image: ClusterImage, moves: Sequence[Move]) -> None:
    before: Counter[int] = Counter()
    after: Counter[int] = Counter()
    moved = {move.topic_partition: move for move in moves}
    fetched: Counter[int] = Counter()
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            before.update(state.replicas)
            move = moved.get(TopicPartition(topic.name, index))
            after.update(state.replicas if move is None else move.after)
            if move is not None:
                fetched.update(set(move.after) - set(move.before))
    rows = [
        {
            "broker": broker_id,
            "before": before[broker_id],
            "after": after[broker_id],
            "fetches": fetched[broker_id],
        }
        for broker_id in sorted({*image.brokers, *before})
    ]
    headings = {
        "broker": "BROKER",
        "before": "REPLICAS NOW",
        "after": "REPLICAS THEN",
        "fetches": "TO FETCH",
    }
    print_table(rows, headings, empty="no brokers")
    copies = sum(move.copies for move in moves)
    if moves:
        sys.stdout.write(f"\npartitions to move: {len(moves)}, replicas to copy: {copies}\n")
    else:
        sys.stdout.write("\nno partition needs to move\n")


def _as_row(move: Move) -> Mapping[str, object]:
    return {
        "topic": move.topic_partition.topic,
        "partition": move.topic_partition.partition,
        "before": list(move.before),
        "after": list(move.after),
    }


def _progress(total: int) -> Callable[[int], None]:
    """A progress bar at a terminal, nothing otherwise."""
    if not sys.stderr.isatty():
        return lambda _: None
    bar = Progress(
        TextColumn("moving"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    task = bar.add_task("moving", total=total)
    bar.start()

    def done(count: int) -> None:
        bar.update(task, completed=count)
        if count >= total:
            bar.stop()

    return done


def _virtual_nodes(bootstrap: str) -> int:
    """The brokers' setting: this command has to compute the same ring."""
    cluster = Cluster(bootstrap)

    def request(admin: AdminClient, seconds: float) -> int:
        # A live broker of fresh metadata: earlier metadata may name a dead one.
        alive = admin.list_topics(timeout=seconds).brokers
        resource = ConfigResource(ResourceType.BROKER, str(next(iter(alive))))
        futures = admin.describe_configs([resource], request_timeout=seconds)
        return int(futures[resource].result()[_VIRTUAL_NODES_SETTING].value)

    return cluster.ask("read the settings of a broker", request)
