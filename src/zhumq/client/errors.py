"""Errors that the client library raises."""

from typing import TYPE_CHECKING

from zhumq.model.errors import ZhumqError

if TYPE_CHECKING:
    from zhumq.client.message import Message
    from zhumq.client.task import Task


class ClientError(ZhumqError):
    """The base class of the client library's errors."""


class PushUnavailable(ClientError):
    """Push is not available: grpcio is not installed, or the broker has push turned off."""


class ExtraMissing(ClientError, ImportError):
    """A package is not installed that only some programs need; the message names the command that installs it."""


class EncodeFailed(ClientError, ValueError):
    """A serializer could not encode the key or the value of a message: it was not sent."""


class DecodeFailed(ClientError):
    """A serializer could not decode the key or the value of a message. `message` is the message with its bytes, not
    answered: `reject()` makes it a dead letter, `ack()` skips it, and else it is delivered again."""

    def __init__(self, what: str, message: "Message | Task", reason: str) -> None:
        place = f"{message.topic}-{message.partition}@{message.offset}"
        super().__init__(f"cannot decode the {what} of {place}: {reason}")
        self.message = message


class SubscriptionRefused(ClientError):
    """The broker refused this subscription; `code` is the code of push.proto."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SessionParked(ClientError):
    """The broker parked this session because the consumer did not answer. `resume()` continues it."""


class AnswerRefused(ClientError):
    """The broker refused an acknowledgement: the message is delivered again, here or elsewhere."""


class HandlerFailed(ClientError):
    """A worker's handler failed more often than `retries` allows, and `on_failure` is `stop`."""


class RequestFailed(ClientError):
    """A request failed; the message names the reason."""


class CallFailed(ClientError):
    """A call has no result: the handler raised, or the reply could not be read. The message names the reason."""


class CallTimedOut(CallFailed):
    """No reply came in time: the request was not handled, or it was and the reply is late or lost."""


class TooManyCalls(CallFailed):
    """The caller has `pending_max` calls without a reply. Nothing was sent."""


class BlobMissing(ClientError):
    """The blob that a message refers to is not in the store."""


class BlobDamaged(ClientError):
    """A blob is not what its message says: its size or its SHA-256 differs."""


class BlobReferenceInvalid(ClientError):
    """A message says that it refers to a blob, and does not, or to one that is too large."""


class ClusterFailed(RequestFailed):
    """A request failed, and retries did not help."""


class TransactionAborted(ClientError):
    """The transaction was not committed, and nothing of it is visible; the message says why. The next one may begin."""


class ProducerFenced(ClientError):
    """Another producer has begun with the same transactional id: this one cannot go on. Its open transaction was
    aborted. If it was being committed, the other producer's beginning may have come after the commit."""


class OutcomeUnknown(ClientError):
    """No broker answered in time: a transaction is committed or aborted; a half message is prepared or decided, or not."""


class TransactionMisuse(ClientError):
    """The state of the producer does not allow this call: the program is wrong."""


class HalfMessageRefused(ClientError):
    """The broker refused a half message, a decision on one, or its producer; `code` is the code of push.proto."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class HalfMessageDecided(HalfMessageRefused):
    """The opposite was decided before: by another producer in a check, by an operator, or by the broker, which rolls
    back what no producer decides."""


class SecurityInvalid(ClientError, ValueError):
    """The security settings of a client are wrong; the message names the setting and never a secret."""


class SecurityFailed(ClientError):
    """The connection cannot be made secure with these settings: trying again does not help."""


class AuthenticationFailed(SecurityFailed):
    """The broker refused the credentials, or did not prove that it knows them."""
