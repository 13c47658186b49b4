"""Reads the compacted topics with librdkafka, from the first offset to the end; each prints PASS or FAIL."""

import os
import sys
import time

from confluent_kafka import Consumer, TopicPartition, libversion

WAIT_S = 20.0


def read(topic: str) -> tuple[list[str], list[str]]:
    """The records up to the end of the partition as `offset:key`, and the errors on the way."""
    reader = Consumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP"],
            "group.id": f"{topic}-reader",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    errors: list[str] = []
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        message = reader.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(f"{message.offset()}:{(message.key() or b'').decode()}")
        elif error.name() == "_PARTITION_EOF":
            break
        else:
            errors.append(str(error))
    reader.close()
    return found, errors


def main() -> None:
    failed = False
    print(f"librdkafka {libversion()[0]}", file=sys.stderr)
    topics = os.environ["COMPACTED_TOPICS"].split(",")
    for topic, expected in zip(topics, os.environ["COMPACTED_RECORDS"].split(";"), strict=True):
        found, errors = read(topic)
        good = ",".join(found) == expected and not errors
        failed = failed or not good
        print(f"{'PASS' if good else 'FAIL'}\t{topic} is read to its end", flush=True)
        print(f"{topic}: read {found}, errors {errors[:3]}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
