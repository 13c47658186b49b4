"""The serializers of a client's keys and values, and what becomes of messages that they cannot decode."""

import logging
from typing import Any, Final, Generic, Literal

from zhumq.client.errors import DecodeFailed, EncodeFailed
from zhumq.client.message import DecodedMessage, K, Message, Unread, V
from zhumq.client.serializers import Serializer
from zhumq.client.task import Task

logger = logging.getLogger("zhumq.client")

OnUndecodable = Literal["raise", "dead-letter", "skip"]
CHOICES: Final = ("raise", "dead-letter", "skip")


class Codec(Generic[V, K]):
    """Encodes and decodes keys and values. Without serializers they are bytes, and stay what they are."""

    def __init__(
        self,
        value: Serializer[V] | None,
        key: Serializer[K] | None,
        on_undecodable: OnUndecodable = "raise",
    ) -> None:
        if on_undecodable not in CHOICES:
            raise ValueError(
                f"on_undecodable is raise, dead-letter or skip, not {on_undecodable!r}"
            )
        for name, serializer in (("value", value), ("key", key)):
            if serializer is not None and not hasattr(serializer, "deserialize"):
                raise TypeError(
                    f"{name}={serializer!r} is no serializer: for example {name}=zhumq.Text()"
                )
        self._value = value
        self._key = key
        self.on_undecodable = on_undecodable
        self._is_plain = value is None and key is None

    def encode(self, topic: str, value: Any, key: Any) -> tuple[bytes | None, bytes | None]:
        """A value and a key as bytes. Raises EncodeFailed."""
        if not self._is_plain:
            value = _encode(self._value, "value", topic, value)
            key = _encode(self._key, "key", topic, key)
        return value, key

    def accept(self, message: Message) -> Message[V, K] | None:
        """The message as the program gets it. None: it cannot be decoded, and was answered as `on_undecodable` says.
        Raises DecodeFailed, and has not answered it."""
        if self._is_plain:
            return message  # type: ignore[return-value]
        try:
            value, key = self._decode(message)
        except DecodeFailed as error:
            if self.on_undecodable == "raise":
                raise
            logger.warning("%s (%s)", error, self.on_undecodable)
            if self.on_undecodable == "skip":
                message.ack()
            else:
                message.reject(str(error))
            return None
        return DecodedMessage(message, value, key)

    def accept_all(self, unread: Unread) -> list[Message[V, K]]:
        """All that is left to read, up to a message for which the next call raises DecodeFailed."""
        found: list[Message[V, K]] = []
        for each in unread:
            try:
                message = self.accept(each)
            except DecodeFailed:
                if not found:
                    raise
                unread.put_back()
                break
            if message is not None:
                found.append(message)
        return found

    def decode_task(self, task: Task) -> Task[V, K]:
        """The task as its handler gets it. Raises DecodeFailed."""
        if self._is_plain:
            return task  # type: ignore[return-value]
        value, key = self._decode(task)
        return Task(
            topic=task.topic,
            partition=task.partition,
            offset=task.offset,
            key=key,
            value=value,
            headers=task.headers,
            timestamp_ms=task.timestamp_ms,
        )

    def _decode(self, message: Message | Task) -> tuple[Any, Any]:
        value = _decode(self._value, "value", message, message.value)
        return value, _decode(self._key, "key", message, message.key)


def _encode(serializer: Serializer[Any] | None, name: str, topic: str, value: Any) -> Any:
    if serializer is None or value is None:
        return value
    try:
        return serializer.serialize(topic, value)
    except Exception as error:  # whatever it is, also of a serializer of the program's own
        raise EncodeFailed(f"cannot encode the {name} for {topic!r}: {_reason(error)}") from error


def _decode(
    serializer: Serializer[Any] | None, name: str, message: Message | Task, data: bytes | None
) -> Any:
    if serializer is None or data is None:
        return data
    try:
        return serializer.deserialize(message.topic, data)
    except Exception as error:  # whatever it is, also of a serializer of the program's own
        raise DecodeFailed(name, message, _reason(error)) from error


def _reason(error: Exception) -> str:
    """What went wrong, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
