"""The records of `_schemas`: the bytes of Confluent's registry, and messages that are none of its records."""

import pytest

from zhumq.schemas.log_records import (
    ConfigRecord,
    DeleteSubjectRecord,
    LogRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
    decode,
    encode,
)
from zhumq.schemas.schema import Level, Mode, Reference, Schema, SchemaType, SubjectConfig, Version

AVRO = Version(
    subject="a-value", version=2, id=7, schema=Schema(type=SchemaType.AVRO, text='"string"')
)
JSON = Version(
    subject="b",
    version=1,
    id=8,
    schema=Schema(
        type=SchemaType.JSON,
        text="{}",
        references=(Reference(name="x.json", subject="x", version=3),),
        metadata='{"properties":{"owner":"café"}}',
    ),
    is_deleted=True,
)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            SchemaRecord(subject="a-value", version=2, value=AVRO),
            '{"keytype":"SCHEMA","subject":"a-value","version":2,"magic":1}',
            '{"subject":"a-value","version":2,"id":7,"schema":"\\"string\\"","deleted":false}',
        ),
        (
            SchemaRecord(subject="b", version=1, value=JSON),
            '{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}',
            (
                '{"subject":"b","version":1,"id":8,"schemaType":"JSON","references":[{"name":"x.json","subject":"x",'
                '"version":3}],"metadata":{"properties":{"owner":"café"}},"schema":"{}","deleted":true}'
            ),
        ),
        (
            SchemaRecord(subject="b", version=1, value=None),
            '{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}',
            None,
        ),
        (
            ConfigRecord(subject=None, value=SubjectConfig(level=Level.FULL)),
            '{"keytype":"CONFIG","magic":0}',
            '{"compatibilityLevel":"FULL"}',
        ),
        (
            ConfigRecord(subject="b", value=SubjectConfig(level=Level.NONE, normalize=True)),
            '{"keytype":"CONFIG","subject":"b","magic":0}',
            '{"subject":"b","normalize":true,"compatibilityLevel":"NONE"}',
        ),
        (
            ModeRecord(subject="b", value=Mode.READONLY),
            '{"keytype":"MODE","subject":"b","magic":0}',
            '{"subject":"b","mode":"READONLY"}',
        ),
        (
            ModeRecord(subject=None, value=None),
            '{"keytype":"MODE","magic":0}',
            None,
        ),
        (
            DeleteSubjectRecord(subject="b", version=4),
            '{"keytype":"DELETE_SUBJECT","subject":"b","magic":0}',
            '{"subject":"b","version":4}',
        ),
        (NoopRecord(max_id=9), '{"keytype":"NOOP","magic":0}', '{"maxId":9}'),
    ],
)
def test_a_record_has_the_bytes_of_confluents_registry(
    record: LogRecord, key: str, value: str | None
) -> None:
    encoded = (key.encode(), None if value is None else value.encode())
    assert encode(record) == encoded
    assert decode(*encoded) == record


def test_fields_of_newer_registries_are_ignored() -> None:
    found = decode(
        b'{"keytype":"SCHEMA","subject":"a-value","version":2,"magic":1,"new":1}',
        b'{"subject":"a-value","version":2,"id":7,"md5":"x","ts":5,"schema":"\\"string\\"","offset":3}',
    )
    assert found == SchemaRecord(subject="a-value", version=2, value=AVRO)
    assert decode(b'{"keytype":"NOOP","magic":0}', None) == NoopRecord()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b""),
        (b"\xff", None),
        (b"[]", None),
        (b"[" * 100_000, None),
        (b"{}", None),
        (b'{"keytype":"UNKNOWN"}', None),
        (b'{"keytype":["SCHEMA"]}', None),
        (b'{"keytype":"SCHEMA","subject":"a"}', None),
        (b'{"keytype":"SCHEMA","subject":5,"version":1}', None),
        (b'{"keytype":"SCHEMA","subject":"a","version":-1}', None),
        (b'{"keytype":"SCHEMA","subject":"a","version":true}', None),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"not JSON"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":"1","schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":1,"schema":{}}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":1,"schema":"x","schemaType":"XML"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":1,"schema":"x","references":[1]}'),
        (b'{"keytype":"CONFIG","subject":"a"}', b'{"compatibilityLevel":"SOME"}'),
        (b'{"keytype":"MODE","subject":"a"}', b"{}"),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a"}', b"{}"),
    ],
)  # fmt: skip
def test_a_message_that_is_no_record_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ValueError):
        decode(key, value)
