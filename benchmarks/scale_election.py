"""Simulates the elections after a broker's death with the replicas' cores in virtual time."""

import heapq
import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from simulation.simulated_log import Entry, SimulatedLog

from benchmarks.scale_world import SESSION_EPOCH
from zhumq.consensus.contract import (
    BrokerLost,
    DeadlinePassed,
    FetchAnswered,
    FetchArrived,
    Input,
    Message,
    QuorumState,
    ReplicaSettings,
    Role,
)
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.voters import Voters
from zhumq.model.ids import BrokerId
from zhumq.protocol.messages.replicas import ReplicaMessagesRequest
from zhumq.protocol.peer_api import encode_peer_request
from zhumq.replication.inter_broker import outbox
from zhumq.replication.timers import TICK_MS

LATENCY_MS = 1
DEATH_MS = 10_000
GIVE_UP_MS = DEATH_MS + 60_000
# At one moment all events happen first; then the messages gathered by them leave.
HAPPENS, LEAVES = 0, 1


@dataclass(slots=True, kw_only=True)
class Elections:
    """The cost of the elections."""

    partitions: int
    requests: int = 0
    messages: int = 0
    bytes_sent: int = 0
    # Epochs and votes that a broker must persist before it sends them, by broker.
    persisted_votes: Counter[int] = field(default_factory=Counter)
    # When each elected leader won, in milliseconds after the death, by broker.
    won_at_ms: dict[int, list[int]] = field(default_factory=dict)


class _World:
    """Replicas of many brokers, and the requests between brokers.

    Each pair has one request in flight. Messages that come up meanwhile go with the next one, as in
    `replication.inter_broker.outbox`.
    """

    def __init__(self, dead: BrokerId, partitions: Sequence[tuple[BrokerId, ...]]) -> None:
        self.result = Elections(partitions=len(partitions))
        self._draw = random.Random(1).randint
        self._events: list[tuple[int, int, int, Callable[[], None]]] = []
        self._pushed = 0
        self._now_ms = DEATH_MS
        self._waiting: dict[tuple[int, int], list[tuple[int, Message]]] = {}
        self._under_way: set[tuple[int, int]] = set()
        self._open = set(range(len(partitions)))
        self._replicas: dict[tuple[int, int], RaftReplica] = {
            (number, broker_id): self._replica(broker_id, voters, dead)
            for number, voters in enumerate(partitions)
            for broker_id in voters
            if broker_id != dead
        }

    def _replica(
        self, broker_id: BrokerId, voters: tuple[BrokerId, ...], dead: BrokerId
    ) -> RaftReplica:
        log = SimulatedLog()
        log.append(Entry(1, -1, -1))
        log.flush(log.begin_flush())
        replica = RaftReplica(
            broker_id,
            Voters(voters),
            log,
            ReplicaSettings(),
            QuorumState(epoch=1, leader_id=dead),
            high_watermark=1,
            incarnation=SESSION_EPOCH,
            draw=self._draw,
            now_ms=DEATH_MS,
        )
        replica.take_ready()
        return replica

    def run(self, dead: BrokerId) -> Elections:
        for number, broker_id in self._replicas:
            self._step(number, broker_id, BrokerLost(broker_id=dead))
        while self._open:
            self._now_ms, _, _, happen = heapq.heappop(self._events)
            if self._now_ms > GIVE_UP_MS:
                raise TimeoutError(f"{len(self._open)} partitions elected no leader")
            happen()
        return self.result

    def _at(self, at_ms: int, turn: int, happen: Callable[[], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._events, (at_ms, turn, self._pushed, happen))

    def _step(self, number: int, broker_id: int, event: Input) -> None:
        replica = self._replicas[number, broker_id]
        replica.step(event, self._now_ms)
        ready = replica.take_ready()
        if ready.persist_quorum_state is not None:
            self.result.persisted_votes[broker_id] += 1
        for outgoing in ready.send:
            if not isinstance(outgoing.message, FetchArrived | FetchAnswered):
                self._enqueue((broker_id, outgoing.to), number, outgoing.message)
        if replica.role is Role.LEADER and number in self._open:
            self._open.discard(number)
            self.result.won_at_ms.setdefault(broker_id, []).append(self._now_ms - DEATH_MS)
        due_ms = replica.next_deadline_ms
        if due_ms is not None:
            at_ms = max(self._now_ms, -(-due_ms // TICK_MS) * TICK_MS)
            self._at(at_ms, HAPPENS, partial(self._look_at_deadline, number, broker_id))

    def _look_at_deadline(self, number: int, broker_id: int) -> None:
        due_ms = self._replicas[number, broker_id].next_deadline_ms
        if number in self._open and due_ms is not None and due_ms <= self._now_ms:
            self._step(number, broker_id, DeadlinePassed())

    def _enqueue(self, pair: tuple[int, int], number: int, message: Message) -> None:
        waiting = self._waiting.setdefault(pair, [])
        if not waiting and pair not in self._under_way:
            self._at(self._now_ms, LEAVES, partial(self._send, pair))
        waiting.append((number, message))

    def _send(self, pair: tuple[int, int]) -> None:
        self._under_way.discard(pair)
        batch = self._waiting.pop(pair, None)
        if batch is None:
            return
        self._under_way.add(pair)
        self.result.requests += 1
        self.result.messages += len(batch)
        self.result.bytes_sent += _request_bytes(batch)
        self._at(self._now_ms + LATENCY_MS, HAPPENS, partial(self._arrive, pair[1], batch))
        self._at(self._now_ms + 2 * LATENCY_MS, LEAVES, partial(self._send, pair))

    def _arrive(self, receiver: int, batch: Sequence[tuple[int, Message]]) -> None:
        for number, message in batch:
            if (number, receiver) in self._replicas:
                self._step(number, receiver, message)


def _request_bytes(batch: Sequence[tuple[int, Message]]) -> int:
    request = ReplicaMessagesRequest()
    for number, message in batch:
        outbox._add(request, (uuid.UUID(int=number + 1), number), message)
    return len(encode_peer_request(outbox.REPLICA_MESSAGES, 1, request))


def elect(dead: BrokerId, partitions: Sequence[tuple[BrokerId, ...]]) -> Elections:
    """Run the elections of all partitions that the dead broker led, until each has a new leader."""
    return _World(dead, partitions).run(dead)
