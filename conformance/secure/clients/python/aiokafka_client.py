"""aiokafka over a secured listener."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from steps import (
    MECHANISM,
    PARTITIONS,
    RECORDS,
    WAIT_S,
    Arguments,
    Client,
    arguments,
    equal,
    numbers,
    run,
)  # fmt: skip


class Aiokafka(Client):
    def create(self) -> None:
        new = NewTopic(self.given.topic, PARTITIONS, 1)
        answer = asyncio.run(self.with_admin(lambda admin: admin.create_topics([new])))
        equal([(self.given.topic, 0)], [each[:2] for each in answer.topic_errors])

    def describe(self) -> None:
        topics = [self.given.topic]
        (found,) = asyncio.run(self.with_admin(lambda admin: admin.describe_topics(topics)))
        equal(PARTITIONS, len(found["partitions"]))

    def send(self, values: list[bytes]) -> None:
        asyncio.run(self.sent(values))

    async def sent(self, values: list[bytes]) -> None:
        producer = AIOKafkaProducer(**settings(self.given), acks="all", enable_idempotence=True)
        await producer.start()
        try:
            sent = [await producer.send(self.given.topic, value, value) for value in values]
            await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
        finally:
            await producer.stop()

    def consume(self) -> None:
        partitions = [TopicPartition(self.given.topic, each) for each in range(PARTITIONS)]

        async def alone() -> list[bytes]:
            reader = AIOKafkaConsumer(**settings(self.given), auto_offset_reset="earliest")
            reader.assign(partitions)
            return await read(reader, RECORDS)

        equal(sorted(numbers(0, RECORDS)), sorted(asyncio.run(alone())))

    def member(self, count: int) -> list[bytes]:
        async def read_and_commit() -> list[bytes]:
            joined = AIOKafkaConsumer(
                self.given.topic, **settings(self.given), group_id=self.given.topic,
                auto_offset_reset="earliest", enable_auto_commit=False,
            )  # fmt: skip
            return await read(joined, count, joined.commit)

        return asyncio.run(read_and_commit())

    def committed(self) -> int:
        group = self.given.topic
        found = asyncio.run(self.with_admin(lambda admin: admin.list_consumer_group_offsets(group)))
        return sum(each.offset for each in found.values())

    def delete(self) -> None:
        topic = self.given.topic

        async def gone(admin: AIOKafkaAdminClient) -> None:
            await admin.delete_topics([topic])
            while topic in await admin.list_topics():
                await asyncio.sleep(0.1)

        asyncio.run(asyncio.wait_for(self.with_admin(gone), WAIT_S))

    def refused(self) -> None:
        async def start() -> str:
            admin = AIOKafkaAdminClient(**settings(self.given.with_wrong_credentials()))
            try:
                await admin.start()
            except KafkaError as error:
                return repr(error)
            finally:
                await admin.close()
            return "no error"

        # The client logs why, and tells its caller that no broker could be reached.
        assert "KafkaConnectionError" in asyncio.run(start())

    async def with_admin(self, body: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        admin = AIOKafkaAdminClient(**settings(self.given))
        await admin.start()
        try:
            return await body(admin)
        finally:
            await admin.close()


async def read(
    consumer: AIOKafkaConsumer, count: int, done: Callable[[], Awaitable[None]] | None = None
) -> list[bytes]:
    await consumer.start()
    try:
        found = [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(count)]
        if done is not None:
            await done()
    finally:
        await consumer.stop()
    return found


def settings(given: Arguments) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": given.bootstrap,
        "security_protocol": given.protocol,
        "ssl_context": given.tls(),
    }
    if given.uses_sasl:
        found |= {
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": given.user,
            "sasl_plain_password": given.password,
        }
    return found


if __name__ == "__main__":
    run(Aiokafka(arguments()))
