"""Admin client: topics, groups, push sessions and dead letters."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from zhumq.client import dead_letters
from zhumq.client.errors import RequestFailed
from zhumq.client.producer import Producer
from zhumq.client.replayed import Replayed
from zhumq.client.retrying_admin import RetryingAdmin
from zhumq.client.routes import REQUEST_SECONDS_MAX, quiet_settings
from zhumq.client.waiting import Waiting

if TYPE_CHECKING:
    from zhumq.client.subscription_groups import SubscriptionGroup

READ_SECONDS_MAX: Final = 30.0  # without a message, though the end is not reached
REPLAY_GROUP: Final = "zhumq.dlq.replay"
REPLAYED_FROM: Final = "zhumq.replayed"  # header: the dead letter that this message was
REPLAY_BATCH: Final = 1_000  # sent, made durable, then committed as replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A push consumer's session as the brokers report it."""

    name: str
    group: str
    consumer: str
    topics: tuple[str, ...]
    mode: str
    state: str  # active, retrying or parked
    reason: str
    attempt: int
    since_ms: int
    connected: bool
    in_flight: int
    delivered: int
    redelivered: int
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that could not be delivered, its position in the dead-letter topic, and why."""

    topic: str  # the dead-letter topic
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]  # the original headers
    story: dead_letters.Story
    replayed: bool  # sent back to its topic


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCount:
    """How many dead letters a topic has."""

    left: int  # to replay
    replayed: int


class Admin:
    """Operations of an administrator.

    >>> import zhumq
    >>> with zhumq.Admin(bootstrap) as admin:
    ...     admin.create_topic("invoices", partitions=2)
    ...     "invoices" in admin.topics()
    True
    """

    def __init__(self, bootstrap: str = "127.0.0.1:9092", *, push: str | None = None) -> None:
        self._bootstrap = bootstrap
        self._push = push
        self._waiting = Waiting(bootstrap)
        self._admin = RetryingAdmin(quiet_settings(bootstrap, error_cb=self._waiting.on_error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to close: no connection stays open."""

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replicas: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. -1: the broker's default. Raises RequestFailed if the topic exists."""
        new_topic = NewTopic(name, partitions, replicas, config=dict(settings or {}))
        with _failing(f"create {name!r}", self._waiting):
            self._admin.change(
                lambda admin, seconds: admin.create_topics([new_topic], request_timeout=seconds)[
                    name
                ].result()
            )

    def delete_topic(self, name: str) -> None:
        with _failing(f"delete {name!r}", self._waiting):
            self._admin.change(
                lambda admin, seconds: admin.delete_topics([name], request_timeout=seconds)[
                    name
                ].result()
            )

    def topics(self) -> dict[str, int]:
        """Topics with their partition counts."""
        with _failing("list topics", self._waiting):
            found = self._admin.metadata().topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    # Push sessions

    def sessions(self, group: str = "") -> list[Session]:
        """The sessions of a group's push consumers, or of all, on all brokers."""
        from zhumq.client import calls  # noqa: PLC0415 (grpcio is an extra)
        from zhumq.client.subscribe_frame import MODE_NAMES  # noqa: PLC0415
        from zhumq.protocol.push import push_pb2 as pb  # noqa: PLC0415

        found: dict[str, Session] = {}
        addresses = calls.push_addresses(self._bootstrap, self._push)
        request = pb.ListSessionsRequest(group=group)
        for answer in calls.call_all(addresses, "ListSessions", request, pb.ListSessionsResponse):
            for each in answer.sessions:
                session = Session(
                    name=each.name,
                    group=each.group,
                    consumer=each.consumer,
                    topics=tuple(each.topics),
                    mode=MODE_NAMES.get(each.mode, "unknown"),
                    state=each.state,
                    reason=each.reason,
                    attempt=each.attempt,
                    since_ms=each.since_ms,
                    connected=each.connected,
                    in_flight=each.in_flight,
                    delivered=each.delivered,
                    redelivered=each.redelivered,
                    broker_id=each.broker_id,
                )
                known = found.get(session.name)
                found[session.name] = session if known is None else _merge(known, session)
        return sorted(found.values(), key=lambda session: session.name)

    def resume_session(self, name: str) -> None:
        """Resume a parked session. Raises RequestFailed if there is none of that name."""
        from zhumq.client import calls  # noqa: PLC0415 (grpcio is an extra)
        from zhumq.protocol.push import push_pb2 as pb  # noqa: PLC0415

        message = f"there is no session {name!r}"
        resumed = False
        addresses = calls.push_addresses(self._bootstrap, self._push)
        request = pb.ResumeSessionRequest(name=name)
        for answer in calls.call_all(addresses, "ResumeSession", request, pb.ResumeSessionResponse):
            if answer.code == pb.OK:
                resumed = True
            else:
                message = answer.message
        if not resumed:
            raise RequestFailed(message)

    # Groups of subscriptions

    def subscription_groups(self, group: str = "") -> "dict[str, SubscriptionGroup]":
        """Groups that read with a mode, and share groups: claims, positions, consumers."""
        from zhumq.client import calls  # noqa: PLC0415 (grpcio is an extra)
        from zhumq.client.subscription_groups import list_groups  # noqa: PLC0415

        return list_groups(calls.push_addresses(self._bootstrap, self._push), group)

    def release_topic(self, topic: str, *, group: str = "") -> str:
        """Remove a point-to-point group's claim on a topic, so that another group may read it. Returns the
        name of that group. Raises RequestFailed if there is none, or if it has consumers."""
        from zhumq.client import calls  # noqa: PLC0415 (grpcio is an extra)
        from zhumq.client.subscription_groups import release  # noqa: PLC0415

        return release(calls.push_addresses(self._bootstrap, self._push), topic, group)

    # Dead letters

    def dead_letter_topics(self) -> dict[str, int]:
        """Dead-letter topics with how many dead letters of each are left to replay."""
        return {name: count.left for name, count in self.dead_letter_counts().items()}

    def dead_letter_counts(self) -> dict[str, DeadLetterCount]:
        """Dead-letter topics with how many dead letters of each are left to replay, and were replayed."""
        names = [name for name in self.topics() if name.endswith(dead_letters.SUFFIX)]
        with _DeadLetterReader(self._bootstrap) as reader:
            return {name: reader.count(name) for name in sorted(names)}

    def dead_letters(
        self, topic: str, *, group: str | None = None, limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """The dead letters of a topic (its own name, or that of the dead-letter topic), oldest first."""
        name = _dead_letter_topic(topic)
        with _DeadLetterReader(self._bootstrap) as reader:
            count = 0
            for dead_letter in reader.read(name, reader.committed(name)):
                if group is not None and dead_letter.story.group != group:
                    continue
                if limit is not None and count >= limit:
                    return
                count += 1
                yield dead_letter

    def replay(
        self,
        topic: str,
        *,
        group: str | None = None,
        offsets: Mapping[int, set[int]] | None = None,
        again: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Send dead letters back to the topics they came from. Returns how many were sent.

        Replayed dead letters are committed, so that a second replay, or one after a crash, skips them. `again`
        and `offsets` replay them all the same. A crash between sending and committing repeats at most
        REPLAY_BATCH dead letters: a header of each names the dead letter it was.
        """
        name = _dead_letter_topic(topic)
        chosen = group is not None or offsets is not None
        with (
            _DeadLetterReader(self._bootstrap) as reader,
            Producer(self._bootstrap) as producer,
        ):
            committed = reader.committed(name)
            leave_out = not again and offsets is None
            begin = {each: known.position for each, known in committed.items()} if leave_out else {}
            total = reader.total(name, begin)
            replayed = 0
            for seen, dead_letter in enumerate(reader.read(name, committed, begin), start=1):
                known = committed[dead_letter.partition]
                selected = group is None or dead_letter.story.group == group
                if offsets is not None and dead_letter.offset not in offsets.get(
                    dead_letter.partition, ()
                ):
                    selected = False
                if selected and not (leave_out and dead_letter.replayed):
                    mark = f"{dead_letter.topic}-{dead_letter.partition}@{dead_letter.offset}"
                    producer.send(
                        dead_letter.story.topic,
                        dead_letter.value,
                        key=dead_letter.key,
                        headers=[*dead_letter.headers, (REPLAYED_FROM, mark.encode())],
                        partition=dead_letter.story.partition,
                    )
                    replayed += 1
                    known.add(dead_letter.offset)
                if not chosen:
                    known.advance(dead_letter.offset + 1)
                if seen % REPLAY_BATCH == 0:
                    producer.flush()
                    reader.commit(name, committed)
                if progress is not None:
                    progress(seen, total)
            producer.flush()
            if replayed:
                reader.commit(name, committed)
        return replayed


class _DeadLetterReader:
    """Reads dead-letter topics from beginning to end, and commits which dead letters were replayed."""

    def __init__(self, bootstrap: str) -> None:
        self._waiting = Waiting(bootstrap)
        self._consumer = confluent_kafka.Consumer(
            quiet_settings(bootstrap, error_cb=self._waiting.on_error)
            | {
                "group.id": REPLAY_GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 5,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def count(self, topic: str) -> DeadLetterCount:
        committed = self.committed(topic)
        total = replayed = 0
        for partition, (low, high) in self._ends(topic).items():
            total += high - low
            replayed += committed[partition].count(low, high)
        return DeadLetterCount(left=total - replayed, replayed=replayed)

    def total(self, topic: str, begin: Mapping[int, int]) -> int:
        """The number of messages from these offsets on."""
        ends = self._ends(topic).items()
        return sum(high - max(low, begin.get(partition, low)) for partition, (low, high) in ends)

    def read(
        self,
        topic: str,
        committed: Mapping[int, Replayed],
        begin: Mapping[int, int] | None = None,
    ) -> Iterator[DeadLetter]:
        """The dead letters up to the current end; messages without the dead-letter headers are left out."""
        ends = self._ends(topic)
        places = []
        missing: dict[int, int] = {}
        for partition, (low, high) in ends.items():
            first = max(low, (begin or {}).get(partition, low))
            if first < high:
                places.append(TopicPartition(topic, partition, first))
                missing[partition] = high
        self._consumer.assign(places)
        while missing:
            message = self._consumer.poll(READ_SECONDS_MAX)
            if message is None:
                raise RequestFailed(
                    self._waiting.explain(f"{topic!r} could not be read to its end")
                )
            error = message.error()
            if error is not None:
                if error.retriable() or error.code() == KafkaError._TRANSPORT:
                    continue
                raise RequestFailed(f"cannot read {topic!r}: {error.str()}")
            number, offset = message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            if number not in missing or offset >= missing[number]:
                continue
            if offset + 1 >= missing[number]:
                del missing[number]
            headers: Any = message.headers() or []
            story = dead_letters.read_story(headers)
            if story is not None:
                yield DeadLetter(
                    topic=topic,
                    partition=number,
                    offset=offset,
                    key=message.key(),
                    value=message.value(),
                    headers=tuple(dead_letters.original_headers(headers)),
                    story=story,
                    replayed=offset in committed[number],
                )

    def committed(self, topic: str) -> dict[int, Replayed]:
        """Which dead letters of each partition were replayed before."""
        places = [TopicPartition(topic, partition) for partition in self._ends(topic)]
        found = self._consumer.committed(places, timeout=REQUEST_SECONDS_MAX)
        return {
            place.partition: Replayed.read(place.offset, place.metadata or "") for place in found
        }

    def commit(self, topic: str, replayed: Mapping[int, Replayed]) -> None:
        places = [
            TopicPartition(topic, partition, known.position, known.metadata)
            for partition, known in replayed.items()
        ]
        self._consumer.commit(offsets=places, asynchronous=False)

    def _ends(self, topic: str) -> dict[int, tuple[int, int]]:
        with _failing(f"read {topic!r}", self._waiting):
            known = self._consumer.list_topics(topic, timeout=REQUEST_SECONDS_MAX).topics[topic]
            if known.error is not None:
                raise RequestFailed(f"there is no dead-letter topic {topic!r}")
            return {
                partition: self._consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=REQUEST_SECONDS_MAX
                )
                for partition in known.partitions
            }


@contextmanager
def _failing(doing: str, waiting: Waiting) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        message = waiting.explain(f"cannot {doing}: {error.args[0].str()}")
        raise RequestFailed(message) from error


def _merge(one: Session, other: Session) -> Session:
    """Merge one consumer's session from two brokers: the worse state, and the sum of the counts."""
    states = ("active", "retrying", "parked")
    worse = max(one, other, key=lambda each: (states.index(each.state), each.connected))
    return replace(
        worse,
        connected=one.connected or other.connected,
        in_flight=one.in_flight + other.in_flight,
        delivered=one.delivered + other.delivered,
        redelivered=one.redelivered + other.redelivered,
    )


def _dead_letter_topic(topic: str) -> str:
    return topic if topic.endswith(dead_letters.SUFFIX) else dead_letters.topic_of(topic)
