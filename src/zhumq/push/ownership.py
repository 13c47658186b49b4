"""PTP exclusive: applies the group's assignments and revocations to a consumer's delivery buffer."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Final

from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.answers import Answers
from zhumq.push.delivery_buffer import DeliveryBuffer
from zhumq.push.frames import Refusal
from zhumq.push.membership import Membership
from zhumq.push.services import PushServices
from zhumq.push.subscribing import Accepted

# How long a consumer may take to finish the in-flight deliveries of a revoked partition.
REVOKE_SECONDS_MAX: Final = 5.0


class Ownership:
    """A consumer's group membership and its assigned partitions. Not a member until `join`."""

    def __init__(
        self,
        services: PushServices,
        accepted: Accepted,
        buffer: DeliveryBuffer,
        answers: Answers,
        *,
        peer: str,
        send: Callable[[pb.ServerFrame], None],
        end: Callable[[Refusal], None],
    ) -> None:
        self._services = services
        self._buffer = buffer
        self._answers = answers
        self._send = send
        self._end = end
        self._revoked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._accepted = accepted
        self._peer = peer
        self._membership: Membership | None = None
        # Assigned partitions, on this broker and others, and their leaders as last sent to the client.
        self._places: frozenset[TopicPartition] = frozenset()
        self._sent_leaders: list[pb.Leader] = []

    @property
    def is_member(self) -> bool:
        return self._membership is not None

    def join(self) -> None:
        """Join the group, in the background."""
        accepted = self._accepted
        membership = self._membership = Membership(
            self._services.groups,
            self,
            group=accepted.session.group,
            topics=accepted.topics,
            client_id=accepted.client_id,
            client_host=self._peer,
            interval_ms=self._services.settings.heartbeat_interval_ms,
            # Stable across reconnects: the group recognizes the member after this broker restarts.
            member_id=accepted.instance or str(uuid.uuid4()),
        )
        self._buffer.member = self._answers.member = membership.member_id

        async def keep_membership() -> None:
            try:
                await membership.run(self._services.topic_ids)
            except Refusal as refusal:
                self._end(refusal)
            except BrokerError as error:
                self._end(Refusal.of(error))

        self._task = asyncio.get_running_loop().create_task(keep_membership())
        self._task.add_done_callback(self._ended)

    async def leave(self) -> None:
        """Leave the group, which frees the partitions at once."""
        membership, self._membership = self._membership, None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if membership is not None:
            self._buffer.forget(self._buffer.stream_partitions.places | self._places)
            with contextlib.suppress(BrokerError):
                await membership.leave()

    async def refresh(self) -> None:
        """Send changed leaders to the client, and open the partitions that this broker leads by now."""
        leaders = self._buffer.leaders(sorted(self._places))
        if self.is_member and leaders != self._sent_leaders:
            await self.assign(self._places, self._buffer.member, self._buffer.epoch)

    def on_revoked(self) -> None:
        """Handle the client's confirmation that it has finished with the revoked partitions."""
        self._revoked.set()

    # Called by the membership

    async def assign(self, places: frozenset[TopicPartition], member: str, epoch: int) -> None:
        buffer = self._buffer
        buffer.epoch = epoch
        buffer.forget((buffer.stream_partitions.places | self._places) - places)
        self._places = places
        self._sent_leaders = buffer.leaders(sorted(places))
        assigned = pb.Assigned(partitions=self._sent_leaders, member_id=member, member_epoch=epoch)
        self._send(pb.ServerFrame(assigned=assigned))
        for place in places:
            if self._services.leads(place):
                await buffer.open(place, first_time=place not in buffer.stream_partitions)

    async def revoke(self, places: frozenset[TopicPartition]) -> None:
        buffer = self._buffer
        self._revoked.clear()
        stream_partitions = [
            stream_partition
            for stream_partition in buffer.stream_partitions
            if stream_partition.place in places
        ]
        for stream_partition in stream_partitions:
            stream_partition.blocked += 1
        self._send(pb.ServerFrame(revoke=pb.Revoke(partitions=buffer.leaders(sorted(places)))))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REVOKE_SECONDS_MAX):
                await self._revoked.wait()
        await self._answers.settled()
        for stream_partition in stream_partitions:
            await buffer.release(stream_partition, "")
            buffer.stream_partitions.remove(stream_partition.place)

    async def lose(self) -> None:
        self._buffer.forget(self._buffer.stream_partitions.places | self._places)
        self._places = frozenset()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self._end(Refusal(pb.INTERNAL, "the broker failed; its log says why", retry=True))
