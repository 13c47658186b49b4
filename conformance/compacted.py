"""Topics that compaction has emptied whole segments of: made once per broker, read by every suite.

.venv/bin/python -m conformance.compacted --bootstrap 127.0.0.1:9092 --data-dir DIR
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
}
VALUE_BYTES = 100_000
KEYS = 11
WAIT_S = 120.0
# How often both brokers look for something to compact; their default is 15 s.
BROKER_SETTINGS = {"log.cleaner.backoff.ms": "500"}
PREFIX = "compacted-"
MANY = f"{PREFIX}many"  # more emptied segments than a client accepts empty responses in a row
IDEMPOTENT = f"{PREFIX}idempotent"  # the last batch of each live producer stays, emptied


def make(bootstrap: str, data: Path) -> dict[str, str]:
    """Fill the topics, wait for their compaction, and return what a client must read from each.

    The result is the environment of a suite: the names of the topics, separated by commas, and for each
    the records that are left as `offset:key`, the topics' lists separated by semicolons.
    """
    expected = {
        **{f"{PREFIX}{codec}": fill(bootstrap, codec, 11) for codec in CODECS},
        MANY: fill(bootstrap, "many", 130),
        IDEMPOTENT: fill(bootstrap, "idempotent", 11),
    }
    for topic in expected:
        wait_until(lambda topic=topic: is_compacted(data / f"{topic}-0"), f"{topic} is compacted")
    return {
        "COMPACTED_TOPICS": ",".join(expected),
        "COMPACTED_RECORDS": ";".join(expected.values()),
    }


def fill(bootstrap: str, name: str, repetitions: int) -> str:
    """Write one key repeatedly, then keys that stay: each record is a batch of 100 kB, ten a segment."""
    topic = f"{PREFIX}{name}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=SETTINGS)])[topic].result(WAIT_S)
    # Slightly compressible: a codec makes it smaller, or the producer would send it uncompressed, and
    # ten of them still fill a segment with every codec.
    value = random.Random(7).randbytes(VALUE_BYTES - 2000) + bytes(2000)
    keys = ["same"] * repetitions + [f"key-{place}" for place in range(KEYS)]
    producer: Producer | None = None
    for key in keys:
        if producer is None or name == "idempotent":
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "compression.type": name if name in CODECS else "none",
                    "enable.idempotence": name == "idempotent",
                    "linger.ms": 0,
                }
            )
        producer.produce(topic, value, key)
        assert producer.flush(WAIT_S) == 0, f"{topic} did not take a record"
    return ",".join(f"{offset}:{keys[offset]}" for offset in range(repetitions - 1, len(keys)))


def is_compacted(folder: Path) -> bool:
    """Whether the log holds little more than one record of each key."""
    left = sum(path.stat().st_size for path in folder.glob("*.log"))
    return left < (KEYS + 2) * VALUE_BYTES


def wait_until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        if time.monotonic() > deadline:
            raise SystemExit(f"timed out after {WAIT_S:.0f} s waiting until {what}")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="where the broker keeps its logs"
    )
    arguments = parser.parse_args()
    for name, value in make(arguments.bootstrap, arguments.data_dir).items():
        print(f"export {name}='{value}'")


if __name__ == "__main__":
    main()
