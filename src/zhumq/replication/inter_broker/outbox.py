"""Batches the election messages from this broker to one other broker."""

import asyncio
import logging
from typing import Final, Protocol

from zhumq.consensus.contract import (
    LeaderAnnounced,
    LogPosition,
    Message,
    Mode,
    VoteAnswered,
    VoteAsked,
)
from zhumq.model.errors import BrokerError
from zhumq.net.channel import Channel
from zhumq.protocol.messages.replicas import (
    LeaderAnnouncement,
    ReplicaMessagesRequest,
    ReplicaMessagesResponse,
    VoteQuestion,
    VoteReply,
)
from zhumq.protocol.peer_api import PeerApi
from zhumq.replication.inter_broker.follower_session import PartitionKey

logger = logging.getLogger(__name__)

REPLICA_MESSAGES: Final = PeerApi(ReplicaMessagesRequest, ReplicaMessagesResponse)
# Messages that wait for a broker that does not answer. The oldest is dropped; its replica sends another.
WAITING_MAX: Final = 100_000
# Messages in one request, so that the other broker's event loop has turns in between.
MESSAGES_PER_REQUEST_MAX: Final = 5_000
# A vote that arrives later than this is too late.
TIMEOUT_MS: Final = 2_000
# Between attempts to reach a broker that is down. Short: when it is back, an election may wait for its
# vote, and a lost election costs an election timeout.
BACKOFF_MAX_MS: Final = 100


class Receiver(Protocol):
    """Receives the messages of other brokers."""

    def receive(self, key: PartitionKey, message: Message, sender_id: int) -> None: ...


class Outbox:
    """Messages to one broker. Those of one turn of the event loop share a request, as do those that
    are put while the previous request is in flight."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: dict[tuple[PartitionKey, type[Message]], Message] = {}
        self._sender: asyncio.Task[None] | None = None
        self.requests_count = 0

    def put(self, key: PartitionKey, message: Message) -> None:
        """Send it soon. A newer message of the same type about the same partition replaces it."""
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[key, type(message)] = message
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        self._channel.close()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _send(self) -> None:
        while self._waiting:
            # Messages that are put meanwhile go along, and replace older ones of their type.
            await asyncio.sleep(0)
            # A loop that counts whole milliseconds wakes a moment early, and the channel would refuse.
            while (pause := self._channel.retry_seconds) > 0:  # noqa: ASYNC110 (it is time that passes)
                await asyncio.sleep(pause)
            keys = list(self._waiting)[:MESSAGES_PER_REQUEST_MAX]
            request = ReplicaMessagesRequest()
            for key in keys:
                _add(request, key[0], self._waiting.pop(key))
            self.requests_count += 1
            try:
                await self._channel.request(REPLICA_MESSAGES, request, timeout_ms=TIMEOUT_MS)
            except BrokerError as reason:
                # The messages are lost, as on a bad network. Elections tolerate that.
                logger.debug("%d messages were lost: %s", len(keys), reason)


def _add(request: ReplicaMessagesRequest, key: PartitionKey, message: Message) -> None:
    topic_id, partition = key
    match message:
        case VoteAsked():
            request.questions.append(
                VoteQuestion(
                    topic_id=topic_id,
                    partition=partition,
                    epoch=message.epoch,
                    last_epoch=message.position.last_epoch,
                    end_offset=message.position.end_offset,
                    pre_vote=message.pre_vote,
                    is_raft=message.mode is Mode.RAFT,
                    voters=list(message.voters),
                )
            )
        case VoteAnswered():
            request.replies.append(
                VoteReply(
                    topic_id=topic_id,
                    partition=partition,
                    asked_epoch=message.asked_epoch,
                    epoch=message.epoch,
                    leader_id=-1 if message.leader_id is None else message.leader_id,
                    granted=message.granted,
                    pre_vote=message.pre_vote,
                    last_epoch=message.position.last_epoch,
                    end_offset=message.position.end_offset,
                )
            )
        case LeaderAnnounced():
            request.announcements.append(
                LeaderAnnouncement(topic_id=topic_id, partition=partition, epoch=message.epoch)
            )
        case _:
            raise AssertionError(f"a {type(message).__name__} is not an election message")


def deliver(request: ReplicaMessagesRequest, sender_id: int, receiver: Receiver) -> None:
    """Deliver the messages of an authenticated sender."""
    for question in request.questions:
        receiver.receive(
            (question.topic_id, question.partition),
            VoteAsked(
                candidate_id=sender_id,
                epoch=question.epoch,
                position=LogPosition(question.last_epoch, question.end_offset),
                pre_vote=question.pre_vote,
                mode=Mode.RAFT if question.is_raft else Mode.FETCH,
                voters=tuple(question.voters),
            ),
            sender_id,
        )
    for reply in request.replies:
        receiver.receive(
            (reply.topic_id, reply.partition),
            VoteAnswered(
                voter_id=sender_id,
                asked_epoch=reply.asked_epoch,
                epoch=reply.epoch,
                leader_id=None if reply.leader_id < 0 else reply.leader_id,
                granted=reply.granted,
                pre_vote=reply.pre_vote,
                position=LogPosition(reply.last_epoch, reply.end_offset),
            ),
            sender_id,
        )
    for announced in request.announcements:
        receiver.receive(
            (announced.topic_id, announced.partition),
            LeaderAnnounced(leader_id=sender_id, epoch=announced.epoch),
            sender_id,
        )
