"""The topic that callers read replies from: created by the first caller, read by each from its end on."""

import random
from collections.abc import Callable
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from zhumq.client.errors import RequestFailed
from zhumq.client.retrying_admin import RetryingAdmin
from zhumq.client.routes import REQUEST_SECONDS_MAX, quiet_settings
from zhumq.client.security import ClientSecurity
from zhumq.client.task import Task, is_transient, task_of
from zhumq.client.waiting import Waiting

REPLY_PARTITIONS: Final = 4
# No caller waits longer, so that replies need not be kept longer.
REPLY_RETENTION_MS: Final = 3_600_000
BROKER_DEFAULT: Final = -1  # the protocol's value for the broker's default
REPLIES_AT_ONCE: Final = 1_000
GONE_MS: Final = 5_000  # how long the brokers may not know the topic before it counts as deleted


class ReplyReader:
    """Reads one partition of the reply topic from where it ended when the reader was made."""

    def __init__(
        self,
        topic: str,
        bootstrap: str,
        security: ClientSecurity,
        *,
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        """Creates the topic if it is not there. Callers share it: `choose` spreads them over its partitions."""
        self.topic = topic
        self._waiting = Waiting(bootstrap, security)
        self._outdated_cause = ""  # an error of before the last reply
        self._is_gone = False
        settings = quiet_settings(bootstrap, security, error_cb=self._on_error)
        try:
            self.partition = choose(self._partitions(settings))
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        self._consumer = confluent_kafka.Consumer(
            settings
            | {
                "group.id": "zhumq-callers",  # librdkafka needs one; nothing is committed
                "enable.auto.commit": False,
                "topic.metadata.propagation.max.ms": GONE_MS,
                "fetch.queue.backoff.ms": 5,
            }
        )
        try:
            place = TopicPartition(topic, self.partition)
            # The end is asked for before the first request is sent: its reply cannot come before it.
            _, place.offset = self._consumer.get_watermark_offsets(
                place, timeout=REQUEST_SECONDS_MAX
            )
            self._consumer.assign([place])
        except KafkaException as error:
            self._consumer.close()
            raise self._failed(error.args[0]) from error

    def poll(self, seconds: float) -> list[Task]:
        """The replies that are there or arrive within this time, also those to other callers."""
        if self._is_gone:
            raise RequestFailed(
                f"the reply topic {self.topic!r} was deleted: make a new Caller, which creates it again"
            )
        found = []
        for message in self._consumer.consume(REPLIES_AT_ONCE, timeout=0) or self._next(seconds):
            error = message.error()
            if error is None:
                found.append(task_of(message))
            elif not is_transient(error):
                raise self._failed(error)
        if found:
            self._outdated_cause = self._waiting.cause
        else:
            self._waiting.raise_if_refused()
        return found

    def explain(self, message: str) -> str:
        """The message with the error of the connections added, if there was one since the last reply."""
        is_outdated = self._waiting.cause == self._outdated_cause
        return message if is_outdated else self._waiting.explain(message)

    def close(self) -> None:
        self._consumer.close()

    def _on_error(self, error: Any) -> None:
        # librdkafka reports a partition that is not there any more to this callback alone, and waits for ever.
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            self._is_gone = True
        self._waiting.on_error(error)

    def _next(self, seconds: float) -> list[Any]:
        first = self._consumer.poll(seconds)
        return [] if first is None else [first]

    def _partitions(self, settings: dict[str, Any]) -> int:
        """How many partitions the topic has. It is created if it is not there."""
        admin = RetryingAdmin(settings, self._waiting.raise_if_refused)
        known = admin.metadata().topics.get(self.topic)
        if known is not None and known.partitions:
            return len(known.partitions)
        new = NewTopic(
            self.topic,
            REPLY_PARTITIONS,
            BROKER_DEFAULT,
            config={"retention.ms": str(REPLY_RETENTION_MS)},
        )

        def create(client: AdminClient, seconds: float) -> None:
            for future in client.create_topics([new], request_timeout=seconds).values():
                future.result()

        try:
            admin.change(create)
        except KafkaException as error:
            # Another caller may have been faster.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return len(admin.metadata().topics[self.topic].partitions)
        return REPLY_PARTITIONS

    def _failed(self, error: Any) -> RequestFailed:
        return RequestFailed(
            self._waiting.explain(f"cannot read replies from {self.topic!r}: {error.str()}")
        )
