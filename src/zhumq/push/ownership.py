"""PTP exclusive: what the group gives a consumer and takes from it, carried out on its shelf."""

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

REVOKE_SECONDS_MAX: Final = (
    5.0  # what a consumer has to finish what it holds of a revoked partition
)


class Ownership:
    """A consumer's membership and what follows from it. Not a member until `join`."""

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
        # What it owns, on this broker and others, and what the client was told of that.
        self._places: frozenset[TopicPartition] = frozenset()
        self._told: list[pb.Leader] = []

    @property
    def is_member(self) -> bool:
        return self._membership is not None

    def join(self) -> None:
        """Become a member, in the background."""
        accepted = self._accepted
        membership = self._membership = Membership(
            self._services.groups,
            self,
            group=accepted.session.group,
            topics=accepted.topics,
            client_id=accepted.client_id,
            client_host=self._peer,
            interval_ms=self._services.settings.heartbeat_interval_ms,
            # The same over reconnects: a group that outlives this broker knows the member again.
            member_id=accepted.instance or str(uuid.uuid4()),
        )
        self._buffer.member = self._answers.member = membership.member_id

        async def belong() -> None:
            try:
                await membership.run(self._services.topic_ids)
            except Refusal as refusal:
                self._end(refusal)
            except BrokerError as error:
                self._end(Refusal.of(error))

        self._task = asyncio.get_running_loop().create_task(belong())
        self._task.add_done_callback(self._ended)

    async def leave(self) -> None:
        """Others get the partitions at once."""
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
        """Leaders have changed: tell the client, and open what this broker leads by now."""
        told = self._buffer.leaders(sorted(self._places))
        if self.is_member and told != self._told:
            await self.assign(self._places, self._buffer.member, self._buffer.epoch)

    def revoked(self) -> None:
        """The client has finished with what it was told to give up."""
        self._revoked.set()

    # What the membership tells

    async def assign(self, places: frozenset[TopicPartition], member: str, epoch: int) -> None:
        buffer = self._buffer
        buffer.epoch = epoch
        buffer.forget((buffer.stream_partitions.places | self._places) - places)
        self._places = places
        self._told = buffer.leaders(sorted(places))
        assigned = pb.Assigned(partitions=self._told, member_id=member, member_epoch=epoch)
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
            await buffer.give_back(stream_partition, "")
            buffer.stream_partitions.remove(stream_partition.place)

    async def lose(self) -> None:
        self._buffer.forget(self._buffer.stream_partitions.places | self._places)
        self._places = frozenset()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self._end(Refusal(pb.INTERNAL, "the broker failed; its log says why", retry=True))
