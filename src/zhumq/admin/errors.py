"""Errors of administrative operations: each names what failed and what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from zhumq.client.errors import RequestFailed
from zhumq.client.retrying_admin import TRANSIENT
from zhumq.client.waiting import Waiting
from zhumq.model.errors import ErrorCode


class AdminError(RequestFailed):
    """An operation failed. `failure` is what failed and why, `advice` what to do, or empty. `code` is the name of the
    error that a broker or Kafka's client library answered with, or empty."""

    def __init__(self, failure: str, advice: str = "", *, code: str = "") -> None:
        super().__init__(f"{failure}: {advice}" if advice else failure)
        self.failure = failure
        self.advice = advice
        self.code = code


class NotFound(AdminError):
    """There is no such topic, partition, group, session or broker."""


class AlreadyExists(AdminError):
    """There is a topic of that name."""


class InUse(AdminError):
    """Consumers use what the operation changes; it succeeds after they have stopped."""


class Refused(AdminError):
    """The request is wrong, and will be refused again."""


class Unavailable(AdminError):
    """No broker answered, or none that could serve the request; it may succeed later."""


_LOST: Final = (Unavailable, "the connection was lost: is the broker still running?")
_HAS_MEMBERS: Final = (InUse, "the group has members: stop its consumers first")
_TOO_LARGE: Final = "the message is larger than max.message.bytes of the topic"
# librdkafka does not pass on the reason that the broker gave.
_INVALID_RECORD: Final = (
    "the topic takes no such message: see its cleanup.policy (a compacted topic needs keys), schema.validation and"
    " delay.enable (headers that it cannot read) with `zhumq topic describe`"
)
# By the name of Kafka's or librdkafka's error: its class, and the failure with the advice after a colon.
_KNOWN: Final[dict[str, tuple[type[AdminError], str]]] = {
    "_TIMED_OUT": (Unavailable, "the broker did not answer in time: look at its log"),
    "_TRANSPORT": _LOST,
    "_ALL_BROKERS_DOWN": _LOST,
    "_MSG_TIMED_OUT": (Unavailable, "the broker did not take the message in time: look at its log"),
    "_UNKNOWN_TOPIC": (NotFound, "there is no such topic: create it with `zhumq topic create`"),
    "UNKNOWN_TOPIC_OR_PART": (
        NotFound,
        "there is no such topic or partition: see `zhumq topic list`",
    ),
    "_UNKNOWN_PARTITION": (NotFound, "there is no such partition: see `zhumq topic describe`"),
    "TOPIC_ALREADY_EXISTS": (AlreadyExists, "it exists already: see `zhumq topic describe`"),
    "GROUP_ID_NOT_FOUND": (NotFound, "there is no such group: see `zhumq group list`"),
    "NON_EMPTY_GROUP": _HAS_MEMBERS,
    "GROUP_SUBSCRIBED_TO_TOPIC": (
        InUse,
        "members of the group read the topic: stop its consumers first",
    ),
    "UNKNOWN_MEMBER_ID": _HAS_MEMBERS,
    "MSG_SIZE_TOO_LARGE": (Refused, _TOO_LARGE),
    "INVALID_RECORD": (Refused, _INVALID_RECORD),
}


def error_of(doing: str, error: KafkaError, *, cause: str = "") -> AdminError:
    """The error of an operation that a broker or Kafka's client library refused.

    `cause` is the last error of the connections, if that is known.
    """
    if error.name() in _KNOWN:
        kind, words = _KNOWN[error.name()]
        failure, _, advice = words.partition(": ")
    else:
        kind = Unavailable if error.code() in TRANSIENT else Refused
        failure, advice = f"{error.str()} ({error.name().lstrip('_')})", ""
    because = f" ({cause})" if cause and kind is Unavailable else ""
    return kind(f"cannot {doing}: {failure}{because}", advice, code=_code_of(error))


@contextmanager
def kafka_errors(doing: str, waiting: Waiting | None = None) -> Iterator[None]:
    """Turn errors of Kafka's client library into AdminError."""
    try:
        yield
    except KafkaException as error:
        cause = waiting.cause if waiting is not None else ""
        raise error_of(doing, error.args[0], cause=cause) from error
    except ValueError as error:  # an argument that the library refuses
        raise Refused(f"cannot {doing}: {error}") from error


def _code_of(error: KafkaError) -> str:
    """The brokers' name of an error, else that of Kafka's client library."""
    try:
        return ErrorCode(error.code()).name
    except ValueError:
        return error.name().lstrip("_")
