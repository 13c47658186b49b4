"""A point-to-point member's streams to the other brokers that lead partitions assigned to it."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from zhumq.client.link import Credentials, Link, LinkListener, close_link
from zhumq.protocol.push import push_pb2 as pb

RETRY_SECONDS: Final = 0.2

Place = tuple[str, int]


class _Attached(NamedTuple):
    link: Link
    task: "asyncio.Task[None]"
    places: frozenset[Place]


class Attachments:
    """The streams beside the home stream, which gets the assignments. Each carries the member's epoch."""

    def __init__(
        self, listener: LinkListener, subscribe: "pb.Subscribe", credentials: Credentials
    ) -> None:
        self._listener = listener
        self._subscribe = subscribe
        self._credentials = credentials
        self._by_address: dict[str, _Attached] = {}
        # Being closed: their last answers are not settled yet.
        self._leaving: set[Link] = set()
        self._lock = asyncio.Lock()

    def __iter__(self) -> Iterator[Link]:
        return iter([*(each.link for each in self._by_address.values()), *self._leaving])

    async def follow(self, home: Link, assigned: "pb.Assigned", share: int) -> None:
        """Open a stream to every other broker that leads an assigned partition, under the newest epoch."""
        by_address: dict[str, list[Place]] = {}
        for each in assigned.partitions:
            if each.address and each.broker_id != home.broker_id:
                by_address.setdefault(each.address, []).append((each.topic, each.partition))
        async with self._lock:
            await self._detach(list(self._by_address))
            for address, places in by_address.items():
                if home.is_open:
                    self._attach(home, address, places, assigned, share)

    async def give_up(self, places: set[Place]) -> None:
        """Settle and close the streams that serve any of these partitions: a new assignment follows."""
        async with self._lock:
            await self._detach(
                address
                for address, attached in list(self._by_address.items())
                if places & attached.places
            )

    async def close(self) -> None:
        async with self._lock:
            await self._detach(list(self._by_address))

    def _attach(
        self,
        home: Link,
        address: str,
        places: list[Place],
        assigned: "pb.Assigned",
        share: int,
    ) -> None:
        subscribe = pb.Subscribe()
        subscribe.CopyFrom(self._subscribe)
        subscribe.ClearField("topics")
        subscribe.instance = ""
        # A later home stream is never ended by an attachment that was on its way meanwhile.
        subscribe.generation = home.subscribe.generation
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        subscribe.topics.extend(
            pb.TopicChoice(name=name, partitions=each) for name, each in by_topic.items()
        )
        subscribe.attachment.member_id = assigned.member_id
        subscribe.attachment.member_epoch = assigned.member_epoch
        subscribe.credits = share
        link = Link(address, subscribe, self._listener, self._credentials)
        task = asyncio.create_task(self._keep_connected(address, link))
        self._by_address[address] = _Attached(link, task, frozenset(places))

    async def _keep_connected(self, address: str, link: Link) -> None:
        """Reconnect until the partitions are revoked."""
        while True:
            await link.run()
            await asyncio.sleep(RETRY_SECONDS)
            attached = self._by_address.get(address)
            if attached is None or attached.link is not link:
                return
            link = Link(address, link.subscribe, self._listener, self._credentials)
            self._by_address[address] = attached._replace(link=link)

    async def _detach(self, addresses: Iterable[str]) -> None:
        detached = [self._by_address.pop(address) for address in list(addresses)]
        self._leaving.update(each.link for each in detached)
        try:
            await asyncio.gather(*(close_link(each.link, each.task) for each in detached))
        finally:
            self._leaving.difference_update(each.link for each in detached)
