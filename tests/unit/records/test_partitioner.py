"""Keys go to the partitions that Kafka's producers choose."""

import pytest

from zhumq.records.partitioner import CACHED_KEY_BYTES_MAX, murmur2, partition_of


# From UtilsTest of Apache Kafka.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_the_partition_is_the_hash_without_its_sign() -> None:
    assert partition_of(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    long = b"x" * (CACHED_KEY_BYTES_MAX + 1)
    assert partition_of(long, 7) == (murmur2(long) & 0x7FFFFFFF) % 7
    assert partition_of(b"", 1) == 0
