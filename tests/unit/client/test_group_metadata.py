"""The membership of a consumer is read from what librdkafka gives out."""

import sys

import confluent_kafka
import pytest

from zhumq.client.errors import RequestFailed
from zhumq.client.group_metadata import GroupMetadata, parse_group_metadata


@pytest.mark.parametrize("instance", [None, "host-1"])
def test_the_installed_librdkafka_writes_the_form_that_is_read(instance: str | None) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "güte", "log_level": 0}
    if instance is not None:
        settings["group.instance.id"] = instance
    consumer = confluent_kafka.Consumer(settings)
    try:
        found = parse_group_metadata(consumer.consumer_group_metadata())
    finally:
        consumer.close()
    assert found == GroupMetadata(group="güte", generation=-1, member="", instance=instance)


def test_a_member_of_a_generation() -> None:
    data = b"CGMDv2:" + (9).to_bytes(4, sys.byteorder) + b"g\x00member\x00\x01"
    assert parse_group_metadata(data) == GroupMetadata(group="g", generation=9, member="member")


@pytest.mark.parametrize("data", [b"", b"CGMDv2:", b"CGMDv2:abcd", b"CGMDv3:abcdg\x00m\x00\x01"])
def test_an_unknown_form_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(RequestFailed, match="unknown form"):
        parse_group_metadata(data)
