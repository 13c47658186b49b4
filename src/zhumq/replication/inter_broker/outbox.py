"""What one broker has to tell another about elections, gathered so that it travels together."""

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
# What waits for a broker that does not answer; the oldest is dropped, and asked again by who cares.
WAITING_MAX: Final = 100_000
# In one request, so that the other side has its turns in between.
MESSAGES_PER_REQUEST_MAX: Final = 5_000
# A vote that comes later than this comes too late.
TIMEOUT_MS: Final = 2_000
# Between attempts to reach a broker that is down. Short: when it is back, its vote may be what an
# election waits for, and one that is lost costs an election timeout.
BACKOFF_MAX_MS: Final = 100


class Receiver(Protocol):
    """Where messages of another broker go."""

    def receive(self, key: PartitionKey, message: Message, sender_id: int) -> None: ...


class Outbox:
    """Messages to one broker. All of one turn of the loop, and all that came while the last ones
    were on their way, go in one request."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: dict[tuple[PartitionKey, type[Message]], Message] = {}
        self._sender: asyncio.Task[None] | None = None
        self.requests_count = 0

    def put(self, key: PartitionKey, message: Message) -> None:
        """Send it soon. Of two messages of a kind about one partition only the newer one counts."""
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
            # What is put meanwhile goes along, in the place of older messages of its kind.
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
                # Lost, as on a bad network. Elections are made for that.
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
            raise AssertionError(f"a {type(message).__name__} has a road of its own")


def deliver(request: ReplicaMessagesRequest, sender_id: int, receiver: Receiver) -> int:
    """Hand the messages on, in the name of who has proved to be the sender. Returns how many."""
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
    return len(request.questions) + len(request.replies) + len(request.announcements)
