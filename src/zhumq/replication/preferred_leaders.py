"""Preferred-leader election for raft partitions, on request and periodically."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from zhumq.metadata.image import NO_BROKER, ClusterImage
from zhumq.model.cluster_errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from zhumq.model.errors import (
    BrokerError,
    ErrorCode,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.model.replication_mode import Mode
from zhumq.protocol.messages.replicas import (
    ElectPreferredAnswer,
    ElectPreferredRequest,
    ElectPreferredResponse,
    LogEndsPartition,
)
from zhumq.protocol.peer_api import PeerApi
from zhumq.replication.inter_broker.peer_service import PeerConnection
from zhumq.replication.inter_broker.peers import Peers
from zhumq.replication.partition import Partition

logger = logging.getLogger(__name__)

ELECT_PREFERRED: Final = PeerApi(ElectPreferredRequest, ElectPreferredResponse)
TIMEOUT_MS: Final = 10_000
# Concurrent transfers: each leader refuses appends while its transfer runs.
TRANSFERS_AT_ONCE_MAX: Final = 16
# Transfers in one periodic round; the rest waits for the next one.
TRANSFERS_PER_ROUND_MAX: Final = 200
# Another replica may win if the preferred one is slow to ask for votes.
ELECTIONS_MAX: Final = 3
# How long to wait until the metadata image shows the elected leader.
ELECTION_SECONDS_MAX: Final = 5.0
POLL_SECONDS: Final = 0.02

Outcomes = dict[TopicPartition, BrokerError | None]


class _LostElection(PreferredLeaderNotAvailable):
    """The leader resigned for the preferred replica, and another replica won the election."""


class PreferredLeaders:
    """Asks leaders to transfer leadership to the preferred (first) replicas."""

    def __init__(
        self,
        broker_id: BrokerId,
        peers: Peers,
        image: Callable[[], ClusterImage | None],
        led: Mapping[TopicPartition, Partition],
    ) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._image = image
        self._partitions = led

    async def elect(self, partitions: Iterable[TopicPartition], timeout_ms: int) -> Outcomes:
        """Transfer leadership of each of these raft partitions to its preferred replica, whatever broker
        leads it. The outcome is None if the preferred replica leads."""
        until = asyncio.get_running_loop().time() + timeout_ms / 1000
        outcomes = await self._elect_once(partitions, until)
        for _ in range(ELECTIONS_MAX - 1):
            lost = [each for each, reason in outcomes.items() if isinstance(reason, _LostElection)]
            if not lost:
                break
            for each, reason in (await self._elect_once(lost, until)).items():
                outcomes[each] = None if isinstance(reason, ElectionNotNeeded) else reason
        return outcomes

    async def _elect_once(self, partitions: Iterable[TopicPartition], until: float) -> Outcomes:
        image = self._image()
        outcomes: Outcomes = {}
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        epochs: dict[TopicPartition, int] = {}
        for topic_partition in partitions:
            state = image.partition(topic_partition) if image is not None else None
            if image is None or state is None:
                outcomes[topic_partition] = UnknownTopicOrPartition(
                    f"no partition {topic_partition}"
                )
                continue
            leader, preferred = image.leader_of(state), state.replicas[0]
            if leader == preferred:
                outcomes[topic_partition] = ElectionNotNeeded(
                    f"{topic_partition}: the preferred replica leads already"
                )
            elif state.mode is not Mode.RAFT:
                # Its mode has changed since the request arrived: a retry goes to the controller.
                outcomes[topic_partition] = PreferredLeaderNotAvailable(
                    f"{topic_partition} is in fetch mode now, and the controller names its leader"
                )
            elif preferred not in image.brokers or leader == NO_BROKER:
                outcomes[topic_partition] = _not_available(topic_partition)
            else:
                by_leader.setdefault(leader, []).append(topic_partition)
                epochs[topic_partition] = state.leader_epoch
        asked = await asyncio.gather(*(self._ask(*each, until) for each in by_leader.items()))
        for each in asked:
            outcomes.update(each)
        resigned = [each for each in epochs if outcomes[each] is None]
        won = await self._wait_for_results({each: epochs[each] for each in resigned}, until)
        return {**outcomes, **won}

    async def _wait_for_results(
        self, epochs: Mapping[TopicPartition, int], until: float
    ) -> Outcomes:
        """Wait until replicas are elected in the place of the leaders of these epochs, which resigned."""
        outcomes: Outcomes = dict.fromkeys(epochs, RequestTimedOut("no leader is elected yet"))
        waiting = set(epochs)
        loop = asyncio.get_running_loop()
        until = min(until, loop.time() + ELECTION_SECONDS_MAX)
        while True:
            image = self._image()
            for topic_partition in tuple(waiting):
                state = image.partition(topic_partition) if image is not None else None
                if image is None or state is None or state.leader_epoch <= epochs[topic_partition]:
                    continue
                leader = image.leader_of(state)
                if leader == NO_BROKER:
                    continue
                outcomes[topic_partition] = (
                    None
                    if leader == state.replicas[0]
                    else _LostElection(f"broker {leader} won the election of {topic_partition}")
                )
                waiting.remove(topic_partition)
            if not waiting or loop.time() > until:
                return outcomes
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(
        self, leader: BrokerId, partitions: Sequence[TopicPartition], until: float
    ) -> Outcomes:
        try:
            async with asyncio.timeout_at(until):
                if leader == self._broker_id:
                    return await self.preferred_leaders(partitions)
                return await self._ask_peer(leader, partitions)
        except TimeoutError:
            reason: BrokerError = RequestTimedOut(f"broker {leader} has not resigned in time")
        except BrokerError as refusal:
            reason = refusal
        return dict.fromkeys(partitions, reason)

    async def _ask_peer(self, leader: BrokerId, partitions: Sequence[TopicPartition]) -> Outcomes:
        request = ElectPreferredRequest(
            partitions=[LogEndsPartition(topic=each[0], partition=each[1]) for each in partitions]
        )
        response = await self._peers.request(
            leader, ELECT_PREFERRED, request, timeout_ms=TIMEOUT_MS
        )
        answers = {
            TopicPartition(each.topic, each.partition): each.error_code for each in response.answers
        }
        return {
            each: None if answers.get(each) == ErrorCode.NONE else _not_available(each)
            for each in partitions
        }

    async def preferred_leaders(self, partitions: Sequence[TopicPartition]) -> Outcomes:
        """Transfer leadership of partitions that this broker leads."""
        gate = asyncio.Semaphore(TRANSFERS_AT_ONCE_MAX)

        async def transfer_leadership(topic_partition: TopicPartition) -> BrokerError | None:
            partition = self._partitions.get(topic_partition)
            image = self._image()
            state = image.partition(topic_partition) if image is not None else None
            if partition is None or state is None:
                return _not_available(topic_partition)
            async with gate:
                done = await partition.transfer_leadership(state.replicas[0])
            return None if done else _not_available(topic_partition)

        results = await asyncio.gather(*map(transfer_leadership, partitions))
        return dict(zip(partitions, results, strict=True))

    async def answer(
        self, _: PeerConnection, request: ElectPreferredRequest
    ) -> ElectPreferredResponse:
        """Handle an ElectPreferredRequest of another broker."""
        asked = [TopicPartition(each.topic, each.partition) for each in request.partitions]
        outcomes = await self.preferred_leaders(asked)
        return ElectPreferredResponse(
            answers=[
                ElectPreferredAnswer(
                    topic=each.topic,
                    partition=each.partition,
                    error_code=ErrorCode.NONE if reason is None else reason.code,
                )
                for each, reason in outcomes.items()
            ]
        )

    async def balance(self) -> None:
        """Transfer the partitions that this broker leads in the place of a live preferred replica."""
        image = self._image()
        if image is None:
            return
        misplaced: list[TopicPartition] = []
        for topic_partition, partition in self._partitions.items():
            state = image.partition(topic_partition)
            if state is None or state.mode is not Mode.RAFT or not partition.leads:
                continue
            preferred = state.replicas[0]
            if preferred != self._broker_id and preferred in image.brokers:
                misplaced.append(topic_partition)
        if misplaced:
            outcomes = await self.preferred_leaders(misplaced[:TRANSFERS_PER_ROUND_MAX])
            done = sum(1 for reason in outcomes.values() if reason is None)
            logger.info("transferred %d partitions to their preferred leaders", done)


def _not_available(topic_partition: TopicPartition) -> PreferredLeaderNotAvailable:
    return PreferredLeaderNotAvailable(
        f"the preferred replica of {topic_partition} is not alive, or has not caught up"
    )
