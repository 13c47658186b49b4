"""A consumer whose positions are committed by transactions: consume, process and produce exactly once."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Self

import confluent_kafka

from zhumq.client.errors import RequestFailed, TransactionAborted
from zhumq.client.group_metadata import GroupMetadata, parse_group_metadata
from zhumq.client.routes import REQUEST_SECONDS_MAX, quiet_settings
from zhumq.client.security import Security, as_security
from zhumq.client.task import Task, is_transient, task_of
from zhumq.client.waiting import Waiting
from zhumq.model.ids import TopicPartition

POLL_SECONDS: Final = 0.2
MESSAGES_MAX: Final = 500
REBALANCED: Final = "the group was rebalanced while messages were processed"


class TransactionalConsumer:
    """A member of a Kafka group that commits nothing itself: `producer.transaction(consumer)` does.

    It returns committed messages only. A transaction that commits for a partition which another member has got is
    aborted by the brokers (KIP-447): a message is processed exactly once, whatever crashes.

    >>> import zhumq
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     producer.send("numbers", b"6", partition=0)
    >>> with (
    ...     zhumq.TransactionalProducer(bootstrap, transactional_id="docs-squares") as producer,
    ...     zhumq.TransactionalConsumer("numbers", group="docs-squarers", bootstrap=bootstrap) as consumer,
    ... ):
    ...     for messages in consumer:
    ...         with producer.transaction(consumer) as transaction:
    ...             for message in messages:
    ...                 transaction.send("squares", b"%d" % int(message.value) ** 2)
    ...         break
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        bootstrap: str = "127.0.0.1:9092",
        start: Literal["earliest", "latest"] = "earliest",
        security: Security = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`start` is where a group without a position begins. `security` is a ClientSecurity, or settings with Kafka's
        names. `settings` are librdkafka's."""
        if start not in ("earliest", "latest"):
            raise ValueError(f"start is earliest or latest, not {start!r}")
        secured = as_security(security)
        self._waiting = Waiting(bootstrap, secured)
        self._consumer = confluent_kafka.Consumer(
            quiet_settings(bootstrap, secured, error_cb=self._waiting.on_error)
            | {
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": start,
                "fetch.queue.backoff.ms": 5,
            }
            | dict(settings or {})
            # With read_committed the coordinator gives no offsets of which a transaction is open (KIP-447).
            | {"enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        # Taken before the messages: a generation that is older than theirs is refused, a newer one would be accepted.
        self._metadata = self._early_metadata = GroupMetadata(group=group)
        # Of the messages that the program got since the last transaction: the first offset, and the next one.
        self._first: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        self._must_rewind = False
        self._is_rebalanced = False  # during the last `poll`
        # Whether another member has got a partition whose messages the program is processing.
        self.has_lost = False
        # Messages of partitions that were assigned while the others were paused.
        self._early: deque[Task] = deque()
        self._consumer.subscribe(
            [topics] if isinstance(topics, str) else list(topics),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group. Messages whose transaction was not committed are read again."""
        self._consumer.close()

    def __iter__(self) -> Iterator[list[Task]]:
        while True:
            if found := self.poll(POLL_SECONDS):
                yield found

    def poll(
        self, seconds: float = POLL_SECONDS, *, messages_max: int = MESSAGES_MAX
    ) -> list[Task]:
        """The messages that are there or arrive within this time; the next transaction commits their offsets.

        Raises TransactionAborted if the group is rebalanced while there are earlier messages that no transaction has
        committed: they are returned again.
        """
        if self._must_rewind:
            self._seek_committed()
        self._is_rebalanced = False
        is_first = not self._next
        if is_first:
            self._metadata = self._early_metadata if self._early else self._membership()
        if self._early:
            found = [self._early.popleft() for _ in range(min(messages_max, len(self._early)))]
        else:
            found = self._receive(self._consumer.consume(1, timeout=seconds))
            if found and messages_max > 1:
                found += self._receive(self._consumer.consume(messages_max - 1, timeout=0))
        for task in found:
            place = TopicPartition(task.topic, task.partition)
            self._first.setdefault(place, task.offset)
            self._next[place] = task.offset + 1
        if self._is_rebalanced and not is_first:
            self.rewind()
            raise TransactionAborted(REBALANCED)
        if not found:
            self._waiting.raise_if_refused()
        elif self._is_rebalanced or not self._metadata.is_member:
            # The generation of these messages may have begun during this call: read them again, with that one.
            self.rewind()
            return []
        return found

    def keep_alive(self) -> None:
        """Stay in the group while messages are being processed, without reading more."""
        self._consumer.pause(self._consumer.assignment())
        if not self._early:
            self._early_metadata = self._membership()
        self._early += self._receive(self._consumer.consume(1, timeout=0))

    def resume(self) -> None:
        """Read on after `keep_alive`."""
        self._consumer.resume(self._consumer.assignment())

    # What a transaction needs

    def metadata(self) -> GroupMetadata:
        """The membership with which the messages were read."""
        return self._metadata

    def positions(self) -> Mapping[TopicPartition, int]:
        """The offsets after the messages that `poll` returned since the last transaction."""
        if self.has_lost:
            raise TransactionAborted(REBALANCED)
        return dict(self._next)

    def mark_committed(self) -> None:
        """A transaction has committed the positions."""
        for place in self._next:
            del self._first[place]
        self._next.clear()

    def rewind(self) -> None:
        """Return the messages again whose transaction was not committed, from the next `poll` on."""
        self._must_rewind = True
        self.has_lost = False
        self._next.clear()

    def _seek_committed(self) -> None:
        """Read on from the committed positions: a transaction's outcome may not have been known."""
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        places = [
            confluent_kafka.TopicPartition(*place) for place in self._first if place in assigned
        ]
        for place in self._committed(places) if places else ():
            known = TopicPartition(place.topic, place.partition)
            offset = place.offset if place.offset >= 0 else self._first[known]
            try:
                self._consumer.seek(confluent_kafka.TopicPartition(*known, offset))
            except confluent_kafka.KafkaException as error:
                # A partition that was assigned just now begins at its committed position by itself.
                if error.args[0].code() != confluent_kafka.KafkaError._STATE:
                    raise
        self._drop_early(set(self._first))
        self._first.clear()
        self._must_rewind = False

    def _drop_early(self, places: set[TopicPartition]) -> None:
        self._early = deque(
            task for task in self._early if (task.topic, task.partition) not in places
        )

    def _membership(self) -> GroupMetadata:
        return parse_group_metadata(self._consumer.consumer_group_metadata())

    def _committed(self, places: list[Any]) -> list[Any]:
        try:
            found = self._consumer.committed(places, timeout=REQUEST_SECONDS_MAX)
        except confluent_kafka.KafkaException as error:
            message = f"cannot read the positions of the group: {error.args[0].str()}"
            raise RequestFailed(self._waiting.explain(message)) from error
        for place in found:
            if place.error is not None:
                raise RequestFailed(f"cannot read the position of {place}: {place.error.str()}")
        return list(found)

    def _receive(self, messages: Sequence[Any]) -> list[Task]:
        found = []
        for message in messages:
            error = message.error()
            if error is None:
                found.append(task_of(message))
            elif not is_transient(error):
                text = f"cannot read {message.topic()!r}: {error.str()}"
                raise RequestFailed(self._waiting.explain(text))
        return found

    def _assigned(self, consumer: Any, places: list[Any]) -> None:
        del consumer, places
        self._is_rebalanced = True

    def _revoked(self, consumer: Any, places: list[Any]) -> None:
        """Another member reads these from the committed positions on."""
        del consumer
        self._is_rebalanced = True
        revoked = {TopicPartition(place.topic, place.partition) for place in places}
        self._drop_early(revoked)
        self.has_lost |= not revoked.isdisjoint(self._next)
