"""Votes to a broker that was down: a pause between attempts does not lose the first one after its return."""

import uuid

import pytest
from replication_support import CLUSTER_ID, SECRET, run, until

from zhumq.consensus.contract import LogPosition, Message, Mode, VoteAsked
from zhumq.model.errors import BrokerError
from zhumq.net.channel import ChannelLimits, PeerAddress, PeerUnavailable
from zhumq.net.listener import Endpoint, Listener
from zhumq.protocol.messages.replicas import ReplicaMessagesRequest, ReplicaMessagesResponse
from zhumq.replication.inter_broker.follower_session import PartitionKey
from zhumq.replication.inter_broker.handshake import Identity
from zhumq.replication.inter_broker.outbox import REPLICA_MESSAGES, Outbox, deliver
from zhumq.replication.inter_broker.peer_service import PeerConnection, PeerService
from zhumq.replication.inter_broker.peers import Peers

KEY = (uuid.UUID(int=1), 0)
LONG_MS = 700
SLOW_MACHINE_MS = 60_000


def _question(epoch: int) -> VoteAsked:
    return VoteAsked(
        candidate_id=2,
        epoch=epoch,
        position=LogPosition(0, 0),
        pre_vote=True,
        mode=Mode.RAFT,
        voters=(1, 2, 3),
    )


class Received(list[VoteAsked]):
    def receive(self, key: PartitionKey, message: Message, sender_id: int) -> None:
        assert (key, sender_id) == (KEY, 2)
        assert isinstance(message, VoteAsked)
        self.append(message)


def test_a_message_put_in_a_pause_between_attempts_waits_for_the_next_one() -> None:
    async def body() -> None:
        address: tuple[str, int] | None = None
        limits = ChannelLimits(
            backoff_min_ms=LONG_MS, backoff_max_ms=LONG_MS, connect_ms=SLOW_MACHINE_MS
        )
        identity = Identity(cluster_id=CLUSTER_ID, broker_id=2, secret=SECRET)
        channel = Peers(
            identity, lambda _: address and PeerAddress(*address), limits=limits
        ).new_channel(1, "votes")
        outbox = Outbox(channel)
        with pytest.raises(BrokerError):
            await channel.request(REPLICA_MESSAGES, ReplicaMessagesRequest(), timeout_ms=LONG_MS)

        received = Received()
        service = PeerService(Identity(cluster_id=CLUSTER_ID, broker_id=1, secret=SECRET))

        def answer(_: PeerConnection, request: ReplicaMessagesRequest) -> ReplicaMessagesResponse:
            deliver(request, 2, received)
            return ReplicaMessagesResponse()

        service.register(REPLICA_MESSAGES, answer)
        async with await Listener.open(
            Endpoint(host="127.0.0.1", port=0), service=service
        ) as listener:
            address = listener.address
            outbox.put(KEY, _question(2))
            outbox.put(KEY, _question(3))
            await until(lambda: received, "the vote request arrived")
            # Of two requests about one partition only the newer one is sent.
            assert received == [_question(3)]
            await outbox.close()

    run(body())


class PausingChannel:
    """A channel in a pause, on a loop that wakes too early: uvloop counts whole milliseconds."""

    def __init__(self, *pauses: float) -> None:
        self._pauses = list(pauses)
        self.requests: list[ReplicaMessagesRequest] = []

    @property
    def retry_seconds(self) -> float:
        return self._pauses.pop(0) if self._pauses else 0.0

    async def request(
        self, _api: object, message: ReplicaMessagesRequest, *, timeout_ms: int
    ) -> ReplicaMessagesResponse:
        assert timeout_ms > 0
        if self.retry_seconds > 0:
            raise PeerUnavailable("the pause is not over")
        self.requests.append(message)
        return ReplicaMessagesResponse()

    def close(self) -> None:
        """Nothing to do."""


def test_the_outbox_sleeps_again_if_it_wakes_before_the_end_of_a_pause() -> None:
    async def body() -> None:
        channel = PausingChannel(0.01, 0.0004, 0.0001)
        outbox = Outbox(channel)  # type: ignore[arg-type]
        outbox.put(KEY, _question(1))
        await until(lambda: outbox.requests_count, "the vote request was sent")
        await outbox.close()
        assert len(channel.requests) == 1, "the request was lost in the rest of the pause"

    run(body())
