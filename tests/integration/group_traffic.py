"""A program that produces numbers, or consumes them as a group member that leaves and rejoins.

    group_traffic.py produce CLIENT BOOTSTRAP TOPIC PARTITIONS COUNT
    group_traffic.py consume CLIENT BOOTSTRAP TOPIC GROUP SEED MESSAGES_PER_STAY

Message n of a partition is the number n, so the value of every message is its offset. A member reads
a while, commits, leaves and joins again, until its stdin is closed. It prints a JSON line with the
ranges of offsets it read and committed in each stay.
"""

import asyncio
import contextlib
import json
import random
import select
import sys
from collections.abc import Iterator
from typing import ClassVar, Protocol

Position = tuple[int, int, bytes]  # partition, offset, value


class Member(Protocol):
    def poll(self) -> list[Position]: ...
    def commit(self) -> bool:
        """Commits what was read. Returns whether the group took it: a rebalance may be under way."""
        ...

    def close(self) -> None: ...


class ConfluentMember:
    PROTOCOL: ClassVar[dict[str, str]] = {"partition.assignment.strategy": "cooperative-sticky"}

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **self.PROTOCOL,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Position]:
        got = []
        for message in self._consumer.consume(2_000, 0.2):
            assert message.error() is None, message.error()
            got.append((message.partition(), message.offset(), message.value()))
        return got

    def commit(self) -> bool:
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            # A rebalance took the partitions: other members go on from the last commit.
            expected = {
                KafkaError.REBALANCE_IN_PROGRESS,
                KafkaError.ILLEGAL_GENERATION,
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.STALE_MEMBER_EPOCH,
                KafkaError._NO_OFFSET,
                KafkaError._STATE,
            }
            if error.args[0].code() not in expected:
                raise
            return False
        return True

    def close(self) -> None:
        self._consumer.close()


class ConfluentConsumerProtocolMember(ConfluentMember):
    """The broker assigns (KIP-848)."""

    PROTOCOL: ClassVar[dict[str, str]] = {"group.protocol": "consumer"}


class KafkaPythonMember:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            # A poll that times out between the assignment and its use leaves this client looping
            # without a heartbeat (3.0.12): make that rare, and let the group go on without it soon.
            session_timeout_ms=10_000,
        )

    def poll(self) -> list[Position]:
        batches = self._consumer.poll(timeout_ms=1_000, max_records=2_000)
        return [
            (where.partition, message.offset, message.value)
            for where, messages in batches.items()
            for message in messages
        ]

    def commit(self) -> bool:
        from kafka.errors import CommitFailedError, RebalanceInProgressError

        with contextlib.suppress(CommitFailedError, RebalanceInProgressError):
            self._consumer.commit()
            return True
        return False

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaMember:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from aiokafka import AIOKafkaConsumer

        self._runner = asyncio.Runner()

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await consumer.start()
            return consumer

        self._consumer = self._runner.run(start())

    def poll(self) -> list[Position]:
        batches = self._runner.run(self._consumer.getmany(timeout_ms=200, max_records=2_000))
        return [
            (where.partition, message.offset, message.value)
            for where, messages in batches.items()
            for message in messages
        ]

    def commit(self) -> bool:
        from aiokafka.errors import CommitFailedError, IllegalStateError

        with contextlib.suppress(CommitFailedError, IllegalStateError):
            self._runner.run(self._consumer.commit())
            return True
        return False

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


MEMBERS = {
    "confluent-kafka": ConfluentMember,
    "confluent-kafka-consumer-protocol": ConfluentConsumerProtocolMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


def numbers(partitions: int, count: int) -> Iterator[tuple[int, bytes]]:
    for index in range(count):
        number, partition = divmod(index, partitions)
        yield partition, b"%d" % number


def produce(client: str, bootstrap: str, topic: str, partitions: int, count: int) -> None:
    if client.startswith("confluent-kafka"):
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for partition, value in numbers(partitions, count):
            while True:
                try:
                    producer.produce(topic, value=value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0
    elif client == "kafka-python":
        from kafka import KafkaProducer

        sender = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, batch_size=65_536)
        for partition, value in numbers(partitions, count):
            sender.send(topic, value=value, partition=partition)
        sender.flush(120)
        sender.close()
    else:
        asyncio.run(produce_with_aiokafka(bootstrap, topic, partitions, count))


async def produce_with_aiokafka(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5, max_batch_size=65_536
    )
    await producer.start()
    for partition, value in numbers(partitions, count):
        await producer.send(topic, value=value, partition=partition)
    await producer.stop()


def consume(
    client: str, bootstrap: str, topic: str, group: str, seed: int, messages_per_stay: int
) -> None:
    draw = random.Random(seed)
    while not asked_to_stop():
        member = MEMBERS[client](bootstrap, topic, group)
        stay = draw.randrange(messages_per_stay // 2, messages_per_stay * 3 // 2)
        ranges: list[list[int]] = []  # [partition, first offset, next offset]
        current: dict[int, list[int]] = {}
        read = 0
        committed = True
        try:
            while read < stay and not asked_to_stop():
                got = member.poll()
                for partition, offset, value in got:
                    assert int(value) == offset, f"{value!r} at offset {offset}"
                    running = current.get(partition)
                    if running is None or running[2] != offset:
                        # Another member had the partition in between: a new range starts.
                        running = current[partition] = [partition, offset, offset]
                        ranges.append(running)
                    running[2] = offset + 1
                read += len(got)
                # Tried again when a rebalance was in the way: after the last message there is no other occasion.
                if got or not committed:
                    committed = member.commit()
        finally:
            member.close()
        sys.stdout.write(json.dumps({"member": seed, "read": read, "ranges": ranges}) + "\n")
        sys.stdout.flush()


def asked_to_stop() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "produce":
        name, address, into, partition_count, message_count = arguments
        produce(name, address, into, int(partition_count), int(message_count))
    else:
        name, address, source, group_id, seed_text, per_stay = arguments
        consume(name, address, source, group_id, int(seed_text), int(per_stay))
