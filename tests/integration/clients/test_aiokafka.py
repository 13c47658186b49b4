"""aiokafka, the asyncio client."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 30
COUNT = 500


async def take(reader: AIOKafkaConsumer, count: int) -> list[object]:
    async with asyncio.timeout(SECONDS_MAX):
        return [await reader.getone() for _ in range(count)]


def test_messages_come_back_as_they_were_sent(zhumq_broker: RunningBroker) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=zhumq_broker.bootstrap, enable_idempotence=True
        )
        await producer.start()
        for index in range(COUNT):
            await producer.send("t", key=b"k%d" % index, value=b"v%d" % index)
        await producer.stop()
        reader = AIOKafkaConsumer(
            "t",
            bootstrap_servers=zhumq_broker.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await reader.start()
        messages = await take(reader, COUNT)
        assert [message.offset for message in messages] == list(range(COUNT))
        assert (messages[3].key, messages[3].value) == (b"k3", b"v3")
        await reader.commit()
        assert await reader.committed(TopicPartition("t", 0)) == COUNT
        assert await reader.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): COUNT}
        await reader.stop()

    asyncio.run(scenario())


def test_two_members_share_the_partitions(zhumq_broker: RunningBroker) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=zhumq_broker.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic("t", num_partitions=6, replication_factor=1)])
        await admin.close()
        readers = [
            AIOKafkaConsumer("t", bootstrap_servers=zhumq_broker.bootstrap, group_id="g")
            for _ in range(2)
        ]
        for reader in readers:
            await reader.start()
        async with asyncio.timeout(SECONDS_MAX):
            while sorted(len(reader.assignment()) for reader in readers) != [3, 3]:
                await asyncio.gather(*(reader.getmany(timeout_ms=100) for reader in readers))
        assert not readers[0].assignment() & readers[1].assignment()
        for reader in readers:
            await reader.stop()

    asyncio.run(scenario())
