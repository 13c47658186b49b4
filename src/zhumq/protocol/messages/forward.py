"""Between brokers: a request for the leader of a partition, which any broker may have been asked."""

from zhumq.protocol.schema import Message, int8, int16, int32


class ForwardRequest(Message, api_key=1100):
    """A request about a partition that the other broker leads."""

    # Which route it belongs to; the body is in the encoding of that route.
    kind: int8 = 0
    topic: str = ""
    partition: int32 = 0
    body: bytes = b""


class ForwardResponse(Message, api_key=1100):
    body: bytes = b""


class ForwardedGroupRequest(Message):
    """The body of a forwarded request about a group: any group request of Kafka's, and who sent it."""

    api_key: int16 = 0
    version: int16 = 0
    client_id: str = ""
    client_host: str = ""
    message: bytes = b""
