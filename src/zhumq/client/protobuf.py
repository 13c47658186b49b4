"""The serializer of Protocol Buffers: messages of one generated class."""

from typing import TYPE_CHECKING, Generic, TypeVar

from zhumq.client.errors import ExtraMissing

if TYPE_CHECKING:
    from google.protobuf.message import Message

P = TypeVar("P", bound="Message")


class Protobuf(Generic[P]):
    """Protocol Buffers: `Protobuf(Order)` of messages of a class that protoc has made. Needs `zhumq[protobuf]`."""

    def __init__(self, type_: type[P]) -> None:
        """Raises ExtraMissing, and TypeError for a class that is none of protoc's."""
        try:
            from google.protobuf.message import Message  # noqa: PLC0415 (an extra)
        except ImportError:
            raise ExtraMissing("Protobuf needs protobuf: pip install 'zhumq[protobuf]'") from None
        if not (isinstance(type_, type) and issubclass(type_, Message)):
            raise TypeError(f"{type_!r} is not a class of messages that protoc has made")
        self._type = type_

    def serialize(self, topic: str, value: P) -> bytes:
        del topic
        if not isinstance(value, self._type):
            raise TypeError(f"a {type(value).__name__} is not a {self._type.__name__}")
        return value.SerializeToString()

    def deserialize(self, topic: str, data: bytes) -> P:
        del topic
        return self._type.FromString(data)
