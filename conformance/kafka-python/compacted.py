"""Reads the compacted topics with kafka-python, from the first offset to the end; each prints PASS or FAIL."""

import os
import sys

from kafka import KafkaConsumer

WAIT_MS = 20_000


def read(topic: str, count: int) -> list[str]:
    """The first records as `offset:key`."""
    reader = KafkaConsumer(
        topic,
        bootstrap_servers=os.environ["BOOTSTRAP"],
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_MS,
    )
    found: list[str] = []
    try:
        for message in reader:
            found.append(f"{message.offset}:{message.key.decode()}")
            if len(found) == count:
                break
    finally:
        reader.close()
    return found


def main() -> None:
    failed = False
    topics = os.environ["COMPACTED_TOPICS"].split(",")
    for topic, expected in zip(topics, os.environ["COMPACTED_RECORDS"].split(";"), strict=True):
        error = ""
        found: list[str] = []
        try:
            found = read(topic, expected.count(",") + 1)
        except Exception as reason:
            error = repr(reason)
        good = ",".join(found) == expected
        failed = failed or not good
        print(f"{'PASS' if good else 'FAIL'}\t{topic} is read to its end", flush=True)
        print(f"{topic}: read {found} {error}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
