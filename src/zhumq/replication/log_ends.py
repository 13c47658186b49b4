"""Collects the log end offsets of live replicas, which the controller needs to name a leader."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from zhumq.metadata.image import ClusterImage
from zhumq.metadata.leadership import LogEnd, LogEnds
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from zhumq.protocol.messages.replicas import (
    LogEndAnswer,
    LogEndsPartition,
    LogEndsRequest,
    LogEndsResponse,
)
from zhumq.protocol.peer_api import PeerApi
from zhumq.replication.inter_broker.peer_service import PeerService
from zhumq.replication.inter_broker.peers import Peers

logger = logging.getLogger(__name__)

LOG_ENDS: Final = PeerApi(LogEndsRequest, LogEndsResponse)
TIMEOUT_MS: Final = 1_000

# The log end of a replica of this broker; None if it has no replica that could lead.
OwnLogEnd = Callable[[TopicPartition], LogEnd | None]


def answer_log_ends(request: LogEndsRequest, own_log_end: OwnLogEnd) -> LogEndsResponse:
    """The log ends of this broker's replicas."""
    found = []
    for each in request.partitions:
        end = own_log_end(TopicPartition(each.topic, each.partition))
        if end is not None:
            found.append(
                LogEndAnswer(
                    topic=each.topic,
                    partition=each.partition,
                    last_epoch=end.last_epoch,
                    end_offset=end.end_offset,
                )
            )
    return LogEndsResponse(log_ends=found)


class LogEndsClient:
    """Asks the brokers for the log ends of their replicas."""

    def __init__(
        self, image: Callable[[], ClusterImage], peers: Peers, service: PeerService
    ) -> None:
        self._image = image
        self._peers = peers
        self._service = service

    async def ask(self, partitions: Sequence[TopicPartition]) -> LogEnds:
        """The log ends of the live replicas of these partitions. Brokers that do not answer are left out."""
        image = self._image()
        by_broker: dict[BrokerId, list[TopicPartition]] = {}
        for topic_partition in partitions:
            state = image.partition(topic_partition)
            for broker_id in () if state is None else state.replicas:
                if broker_id in image.brokers:
                    by_broker.setdefault(broker_id, []).append(topic_partition)
        ends: dict[TopicPartition, dict[BrokerId, LogEnd]] = {}

        async def ask(broker_id: BrokerId, asked: Iterable[TopicPartition]) -> None:
            request = LogEndsRequest(
                partitions=[LogEndsPartition(topic=each[0], partition=each[1]) for each in asked]
            )
            try:
                response = await self._request(broker_id, request)
            except BrokerError as reason:
                logger.info("broker %d did not report its log ends: %s", broker_id, reason)
                return
            for each in response.log_ends:
                end = LogEnd(LeaderEpoch(each.last_epoch), Offset(each.end_offset))
                ends.setdefault(TopicPartition(each.topic, each.partition), {})[broker_id] = end

        await asyncio.gather(*(ask(broker_id, asked) for broker_id, asked in by_broker.items()))
        return ends

    async def _request(self, broker_id: BrokerId, request: LogEndsRequest) -> LogEndsResponse:
        peers = self._peers
        if broker_id == peers.broker_id:
            return await self._service.answer_own(LOG_ENDS, request)
        return await peers.request(broker_id, LOG_ENDS, request, timeout_ms=TIMEOUT_MS)
