"""What can go wrong for a program that uses the client, and what to do about it."""

from zhumq.model.errors import ZhumqError


class ClientError(ZhumqError):
    """The root of what the client library raises on purpose."""


class PushUnavailable(ClientError):
    """The push door cannot be used here: grpcio is not installed, or the broker has it off."""


class SubscriptionRefused(ClientError):
    """The broker does not serve this subscription; `code` is its reason as in push.proto."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SessionParked(ClientError):
    """The broker gave up on this consumer because it did not answer. `resume()` goes on."""


class AnswerRefused(ClientError):
    """The broker did not take an acknowledgement: the message comes again, here or elsewhere."""


class HandlerFailed(ClientError):
    """A worker's handler failed as often as it may, and the worker was told to stop then."""


class RequestFailed(ClientError):
    """The broker could not do what it was asked; the message says why."""
