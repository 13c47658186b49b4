"""Reassigns replicas between brokers at an interval during a run."""

import contextlib
import random
import threading
from collections.abc import Sequence
from typing import Final

from chaos.clients import partition_name
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataResponse
from zhumq.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from zhumq.testing.raw_client import RawClient

ASK_SECONDS_MAX: Final = 5.0
GIVEN_UP: Final = 0.15  # share of requests that cancel a move instead


class Mover:
    """A thread that requests other replicas for random partitions, also of internal topics, whether the
    last move is over or not.

    It sends raw requests, because confluent-kafka has no API for them.
    """

    def __init__(
        self, addresses: Sequence[str], *, replicas: int, seed: int, every_seconds: float
    ) -> None:
        self.granted = 0
        self._addresses = addresses
        self._replicas = replicas
        self._every_seconds = every_seconds
        self._draw = random.Random(seed)  # noqa: S311 (repeatable, not secret)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-mover", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def move(self) -> bool:
        """Request a move, or cancel one; whether the broker accepted it."""
        address = self._draw.choice(self._addresses)
        with (
            contextlib.suppress(OSError, MalformedFrame),
            RawClient(address, seconds_max=ASK_SECONDS_MAX) as client,
        ):
            known: MetadataResponse = client.ask(ApiKey.METADATA, MetadataRequest(topics=None))
            alive = [each.node_id for each in known.brokers]
            places = [(one.name, each) for one in known.topics for each in one.partitions]
            if len(alive) < self._replicas or not places:
                return False
            name, partition = self._draw.choice(places)
            target = self._draw.sample(alive, self._replicas)
            request = ReassignablePartition(
                partition_index=partition.partition_index,
                replicas=None if self._draw.random() < GIVEN_UP else target,
            )
            answer = client.ask(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                AlterPartitionReassignmentsRequest(
                    topics=[ReassignableTopic(name=name or "", partitions=[request])]
                ),
            )
            codes = [each.error_code for one in answer.responses for each in one.partitions]
            return codes == [ErrorCode.NONE]
        return False

    def _run(self) -> None:
        while not self._stopping.wait(self._every_seconds):
            self.granted += self.move()


def moves_left(address: str) -> list[str] | None:
    """The partitions that are being moved; None if the broker does not answer."""
    with (
        contextlib.suppress(OSError, MalformedFrame),
        RawClient(address, seconds_max=ASK_SECONDS_MAX) as client,
    ):
        listed = client.ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=None)
        )
        return [
            partition_name(topic.name, each.partition_index)
            for topic in listed.topics
            for each in topic.partitions
        ]
    return None
