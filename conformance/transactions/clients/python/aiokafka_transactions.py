"""aiokafka: transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError, ProducerFenced
from transaction_steps import END, WAIT_S, Arguments, Client, arguments, run, values

Result = TypeVar("Result")


class Aiokafka(Client):
    def __init__(self, given: Arguments) -> None:
        super().__init__(given)
        self._loop = asyncio.new_event_loop()
        self._producer = self._wait(self._connect)

    def _wait(self, call: Callable[[], Awaitable[Result]]) -> Result:
        async def limited() -> Result:
            return await asyncio.wait_for(call(), WAIT_S)

        return self._loop.run_until_complete(limited())

    async def _connect(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.given.bootstrap,
            transactional_id=self.given.id,
            transaction_timeout_ms=60_000,
        )
        await producer.start()
        return producer

    def transact(self, word: str, *, is_commit: bool) -> None:
        self._wait(lambda: self._transact(word, is_commit=is_commit))

    async def _transact(self, word: str, *, is_commit: bool) -> None:
        await self._producer.begin_transaction()
        for value in values(word):
            for topic in self.given.topics:
                await self._producer.send_and_wait(topic, value)
        await self._end(is_commit=is_commit)

    async def _end(self, *, is_commit: bool) -> None:
        if is_commit:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()

    def send_end(self) -> None:
        async def send() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self.given.bootstrap) as plain:
                for topic in self.given.topics:
                    await plain.send_and_wait(topic, END)

        self._wait(send)

    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        async def read() -> list[bytes]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.given.bootstrap,
                isolation_level="read_committed" if committed else "read_uncommitted",
            )
            await consumer.start()
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found = []
            async for record in consumer:
                if record.value == END:
                    break
                found.append(record.value)
            await consumer.stop()
            return found

        return self._wait(read)

    def send_offsets(self, offset: int, *, is_commit: bool) -> None:
        async def send() -> None:
            await self._producer.begin_transaction()
            await self._producer.send(self.given.second, b"with offsets")
            await self._producer.send_offsets_to_transaction(
                {TopicPartition(self.given.first, 0): offset}, self.given.group
            )
            await self._end(is_commit=is_commit)

        self._wait(send)

    def committed_offset(self) -> int:
        async def ask() -> int:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.given.bootstrap,
                group_id=self.given.group,
                enable_auto_commit=False,
            )
            await consumer.start()
            found = await consumer.committed(TopicPartition(self.given.first, 0))
            await consumer.stop()
            return -1 if found is None else found

        return self._wait(ask)

    def fenced(self) -> bool:
        async def fence() -> bool:
            await self._producer.begin_transaction()
            await self._producer.send_and_wait(self.given.second, b"fenced")
            second = await self._connect()
            first, self._producer = self._producer, second
            try:
                await first.commit_transaction()
            except ProducerFenced:
                return True
            return False

        return self._wait(fence)

    def misuse(self) -> bool:
        async def misuse() -> int:
            refused = 0
            for call in (
                lambda: self._producer.send_and_wait(self.given.first, b"outside"),
                self._producer.commit_transaction,
            ):
                try:
                    await call()
                except (KafkaError, IllegalOperation, AssertionError):
                    refused += 1
            return refused

        refused = self._wait(misuse)
        self.transact("after misuse", is_commit=True)
        return refused == 2


if __name__ == "__main__":
    run(Aiokafka(arguments()))
