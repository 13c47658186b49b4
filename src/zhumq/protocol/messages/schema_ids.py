"""Requests between brokers: which ids of schemas are registered. The leader of `_schemas` answers."""

from zhumq.protocol.schema import Message, field, int16, int32


class IdsOfSubject(Message):
    subject: str = ""  # empty: any subject
    ids: list[int32] = field()


class SchemaIdsRequest(Message, versions="0"):
    subjects: list[IdsOfSubject] = field()


class SchemaIdsResponse(Message, versions="0"):
    error_code: int16 = 0
    registered: list[IdsOfSubject] = field()  # those of the request
