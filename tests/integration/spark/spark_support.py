"""Topics with known contents, for the tests of the Spark source."""

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_SECONDS_MAX = 60.0


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, 1, config=dict(config or {}))
    admin.create_topics([topic])[name].result(30)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(30)


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes],
    *,
    partition: int = 0,
    compression: str = "none",
    timestamp: Callable[[int], int] | None = None,
    batch_rows: int | None = None,
    keys: int | None = None,
) -> None:
    """Produce the values, in order, to one partition; the key of each is its index, or repeats."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": compression,
            "linger.ms": 5,
            "log_level": 0,
            "enable.idempotence": True,
        }
    )
    for index, value in enumerate(values):
        producer.produce(
            topic,
            value,
            b"%d" % (index if keys is None else index % keys),
            partition,
            timestamp=0 if timestamp is None else timestamp(index),
            headers=[("index", b"%d" % index)],
        )
        if batch_rows is not None and index % batch_rows == batch_rows - 1:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


def wait_until(fact: Callable[[], bool], what: str, *, seconds: float = WAIT_SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.05)
