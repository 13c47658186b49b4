"""Between brokers: the heartbeat of a push consumer's membership, for the coordinator of its group."""

from zhumq.protocol.schema import Message


class AskMembershipRequest(Message, api_key=1110):
    """A ConsumerGroupHeartbeat that this broker sends on behalf of a consumer connected to it."""

    client_id: str = ""
    client_host: str = ""
    body: bytes = b""


class AskMembershipResponse(Message, api_key=1110):
    body: bytes = b""
