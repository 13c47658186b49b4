"""An admin client for a cluster in which leaders, coordinators and the controller may just be changing."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

RETRY_SECONDS: Final = 30.0  # much longer than a cluster takes to notice that a broker is dead
FIRST_ANSWER_SECONDS: Final = 2.0  # and twice as long each time: the broker may only be slow
CHANGE_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 0.1

# Whoever says so has done nothing: another broker will.
_ELSEWHERE: Final = frozenset(
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
_PASSING: Final = (
    _ELSEWHERE
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
# It is given the client to ask, and how many seconds the answer may take, which librdkafka heeds.
Question = Callable[[AdminClient, float], Answer]


class RetryingAdmin:
    """Asks again, of whoever is in charge by then, while that may help. Raises KafkaException.

    librdkafka alone does not: a request for the controller waits for the one that it has heard of
    first, and goes on waiting when that one is dead and has a successor.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._admin = AdminClient(self._settings)

    def ask(self, question: Question[Answer]) -> Answer:
        """The answer to a question that may be put more than once."""
        deadline = time.monotonic() + RETRY_SECONDS
        seconds = FIRST_ANSWER_SECONDS
        while True:
            try:
                return question(self._admin, seconds)
            except KafkaException as error:
                self._admin.poll(0)  # What went wrong on the way reaches `error_cb`.
                code = error.args[0].code()
                if code not in _PASSING or time.monotonic() >= deadline:
                    raise
            if code in _NO_ANSWER:
                seconds = min(seconds * 2, max(deadline - time.monotonic(), FIRST_ANSWER_SECONDS))
            self._begin_anew()

    def metadata(self) -> ClusterMetadata:
        """The brokers and the topics that there are."""
        return self.ask(lambda admin, seconds: admin.list_topics(timeout=seconds))

    def change(self, wish: Question[Answer]) -> Answer:
        """The outcome of a request that must not be carried out twice.

        It is sent once the controller is known to answer, and again only if it was refused by one
        that is in charge no more.
        """
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            self.ask(
                lambda admin, seconds: admin.describe_cluster(request_timeout=seconds).result()
            )
            try:
                return wish(self._admin, CHANGE_SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _ELSEWHERE or time.monotonic() > deadline:
                    raise
            self._begin_anew()

    def _begin_anew(self) -> None:
        """With a client that has to ask who is in charge."""
        time.sleep(PAUSE_SECONDS)
        self._admin = AdminClient(self._settings)
