"""An admin client that retries while leaders, coordinators or the controller change."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

RETRY_SECONDS: Final = 30.0  # much longer than a cluster takes to detect a dead broker
FIRST_ANSWER_SECONDS: Final = 2.0  # doubled each time: the broker may only be slow
CHANGE_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 0.1

# A broker that answers with these has done nothing: another one is responsible.
_NOT_RESPONSIBLE: Final = frozenset(
    {
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_NO_ANSWER: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
)
TRANSIENT: Final = (
    _NOT_RESPONSIBLE
    | _NO_ANSWER
    | {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
    }
)

Answer = TypeVar("Answer")
# Takes the client and the request timeout in seconds.
AdminRequest = Callable[[AdminClient, float], Answer]


class RetryingAdmin:
    """Repeats a request at the current controller, coordinator or leader. Raises KafkaException.

    librdkafka alone does not: a request to the controller waits for the controller of its first
    metadata response, even when that broker is dead and another one is the controller.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        on_no_answer: Callable[[], None] | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """`on_no_answer` is called when no broker answers; what it raises ends the request."""
        self._settings = dict(settings)
        self._retry_seconds = retry_seconds
        self._on_no_answer = on_no_answer
        self._admin = AdminClient(self._settings)

    def ask(self, request: AdminRequest[Answer]) -> Answer:
        """The answer to a request that may be repeated."""
        deadline = time.monotonic() + self._retry_seconds
        seconds = FIRST_ANSWER_SECONDS
        while True:
            try:
                return request(self._admin, seconds)
            except KafkaException as error:
                self._admin.poll(0)  # Delivers connection errors to `error_cb`.
                code = error.args[0].code()
                if code not in TRANSIENT or time.monotonic() >= deadline:
                    raise
            if code in _NO_ANSWER:
                if self._on_no_answer is not None:
                    self._on_no_answer()
                seconds = min(seconds * 2, max(deadline - time.monotonic(), FIRST_ANSWER_SECONDS))
            self._replace_client()

    def metadata(self) -> ClusterMetadata:
        """The brokers and topics of the cluster."""
        return self.ask(lambda admin, seconds: admin.list_topics(timeout=seconds))

    def change(self, request: AdminRequest[Answer]) -> Answer:
        """The result of a request that must not be carried out twice.

        It is sent after the controller has answered another request, and repeated only if a broker
        refused it because it is not the controller.
        """
        deadline = time.monotonic() + self._retry_seconds
        while True:
            self.ask(
                lambda admin, seconds: admin.describe_cluster(request_timeout=seconds).result()
            )
            try:
                return request(self._admin, CHANGE_SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_RESPONSIBLE or time.monotonic() > deadline:
                    raise
            self._replace_client()

    def _replace_client(self) -> None:
        """Replace the client: the new one asks for the current controller."""
        time.sleep(PAUSE_SECONDS)
        self._admin = AdminClient(self._settings)
