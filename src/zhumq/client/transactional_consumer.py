"""A consumer whose positions are committed by transactions: consume, process and produce exactly once."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Self

import confluent_kafka

from zhumq.client.errors import ClusterFailed, RequestFailed, TransactionAborted
from zhumq.client.group_metadata import GroupMetadata, parse_group_metadata
from zhumq.client.routes import quiet_settings
from zhumq.client.security import Security, as_security
from zhumq.client.stable_positions import StablePositions
from zhumq.client.task import Task, is_transient, task_of
from zhumq.client.waiting import Waiting
from zhumq.model.ids import TopicPartition

POLL_SECONDS: Final = 0.2
PLACE_SECONDS: Final = 0.1  # between two lookups of positions with an open transaction
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
        """`start` is where a group without a position begins; one whose position is no longer in the log reads on from
        the oldest message that is. `security` is a ClientSecurity, or settings with Kafka's names. `settings` are
        librdkafka's."""
        if start not in ("earliest", "latest"):
            raise ValueError(f"start is earliest or latest, not {start!r}")
        secured = as_security(security)
        self._waiting = Waiting(bootstrap, secured)
        self._consumer = confluent_kafka.Consumer(
            quiet_settings(bootstrap, secured, error_cb=self._waiting.on_error)
            | {
                "group.id": group,
                "group.protocol": "consumer",
                # Where librdkafka begins by a mistake of its own: before the position, where it is noticed.
                "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 5,
            }
            | dict(settings or {})
            # With read_committed the coordinator gives no offsets of which a transaction is open (KIP-447).
            | {"enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        # Of a group without a position, as a logical offset.
        is_earliest = start == "earliest"
        self._start = (
            confluent_kafka.OFFSET_BEGINNING if is_earliest else confluent_kafka.OFFSET_END
        )
        self._stable = StablePositions(group, bootstrap, secured)
        # Partitions that are not at their committed position yet, and where to begin without one. librdkafka cannot be
        # trusted with it: one that waits for an open transaction begins at `auto.offset.reset` if another one is
        # assigned meanwhile (rd_kafka_assignment_apply_offsets). So messages of unplaced partitions are dropped.
        self._unplaced: dict[TopicPartition, int] = {}
        self._placed_at = 0.0
        # The next offset of the others. librdkafka may go back to where the group has no position yet, or had one, even
        # after messages were returned: its own lookup of the position, begun with the assignment, ended so late.
        self._expected: dict[TopicPartition, int] = {}
        # Taken before the messages: a generation that is older than theirs is refused, a newer one would be accepted.
        self._metadata = GroupMetadata(group=group)
        # Of the messages that the program got since the last transaction: the first offset, and the next one.
        self._first: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        self._must_rewind = False
        self._is_rebalanced = False  # during the last `poll`
        # Whether another member has got a partition whose messages the program is processing.
        self.has_lost = False
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
        self._stable.close()

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
            self._unplace()
        if self._unplaced and time.monotonic() >= self._placed_at + PLACE_SECONDS:
            self._place()
        self._is_rebalanced = False
        is_first = not self._next
        if is_first:
            self._metadata = parse_group_metadata(self._consumer.consumer_group_metadata())
        # A partition waits for an open transaction: the poll ends soon, for the next lookup.
        seconds = min(seconds, PLACE_SECONDS) if self._unplaced else seconds
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
        # A pause also drops what librdkafka has queued, to be fetched again: what arrives is of partitions that are
        # assigned just now, and not placed yet.
        self._receive(self._consumer.consume(1, timeout=0))

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

    def _unplace(self) -> None:
        """Read on from the committed positions: a transaction's outcome may not have been known."""
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        self._unplaced |= {place: at for place, at in self._first.items() if place in assigned}
        self._placed_at = 0.0
        self._first.clear()
        self._must_rewind = False

    def _place(self) -> None:
        """Begin at the committed positions, except where a transaction is open that may change them."""
        try:
            found = self._stable.find(self._unplaced.keys())
        except ClusterFailed as error:
            self._waiting.note(str(error))
            found = {}
        # Nothing is read to be dropped.
        self._consumer.pause(
            [confluent_kafka.TopicPartition(*each) for each in self._unplaced if each not in found]
        )
        for place, committed in found.items():
            offset = self._unplaced[place] if committed is None else committed
            if not self._seek(place, offset):
                continue
            self._consumer.resume([confluent_kafka.TopicPartition(*place)])
            del self._unplaced[place]
            self._expected[place] = offset
        self._placed_at = time.monotonic()

    def _receive(self, messages: Sequence[Any]) -> list[Task]:
        found = []
        strayed: set[TopicPartition] = set()
        for message in messages:
            error = message.error()
            if error is None:
                task = task_of(message)
                place = TopicPartition(task.topic, task.partition)
                if place in self._unplaced:
                    continue
                expected = self._expected.get(place, 0)
                if task.offset < expected <= self._log_end(message):
                    strayed.add(place)
                    continue
                # Before it, if the log does not reach so far: its topic was made again, or has lost messages.
                self._expected[place] = task.offset + 1
                found.append(task)
            elif not is_transient(error):
                text = f"cannot read {message.topic()!r}: {error.str()}"
                raise RequestFailed(self._waiting.explain(text))
        for place in strayed:
            self._seek(place, self._expected[place])
        return found

    def _seek(self, place: TopicPartition, offset: int) -> bool:
        """Read on from this offset. False: the partition was assigned just now, and is not being read yet."""
        try:
            self._consumer.seek(confluent_kafka.TopicPartition(*place, offset))
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError._STATE:
                raise
            return False
        return True

    def _log_end(self, message: Any) -> int:
        """The end of the message's partition, as it was fetched with the message."""
        place = confluent_kafka.TopicPartition(message.topic(), message.partition())
        _, end = self._consumer.get_watermark_offsets(place, cached=True)
        return int(end)

    def _assigned(self, consumer: Any, places: list[Any]) -> None:
        del consumer
        self._is_rebalanced = True
        for place in places:
            self._unplaced[TopicPartition(place.topic, place.partition)] = self._start
        self._placed_at = 0.0

    def _revoked(self, consumer: Any, places: list[Any]) -> None:
        """Another member reads these from the committed positions on."""
        del consumer
        self._is_rebalanced = True
        revoked = {TopicPartition(place.topic, place.partition) for place in places}
        for place in revoked:
            self._unplaced.pop(place, None)
            self._expected.pop(place, None)
        self.has_lost |= not revoked.isdisjoint(self._next)
