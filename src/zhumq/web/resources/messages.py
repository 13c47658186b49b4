"""Messages: a page of a topic from a position on, those with a key or a tag, and sending."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from zhumq.admin import messages
from zhumq.admin.decoding import MessageDecoder
from zhumq.admin.errors import NotFound
from zhumq.admin.key_trace import trace_key
from zhumq.admin.lookup import FoundMessage, lookup
from zhumq.admin.offsets import EARLIEST, LATEST, Position, resolve_offsets
from zhumq.admin.positions import parse_position
from zhumq.admin.topics import led_partitions
from zhumq.client.filtering import message_test
from zhumq.model.isolation import Isolation, IsolationLevel
from zhumq.web.brokers import Brokers
from zhumq.web.content import (
    SHOWN_BYTES_DEFAULT,
    SHOWN_BYTES_MAX,
    Content,
    Format,
    GivenContent,
    Header,
    read_content,
    show,
    show_decoded,
    show_headers,
)
from zhumq.web.names import (
    INT64_MAX,
    FilterText,
    Milliseconds,
    PartitionNumber,
    PositionText,
    TopicName,
)
from zhumq.web.paging import LIMIT_DEFAULT, After, Limit, format_offsets, parse_offsets
from zhumq.web.problems import invalid

WAIT_MS_MAX: Final = 10_000
SENT_MAX: Final = 1_000  # messages of a request
HEADERS_MAX: Final = 1_000  # of a message
FOUND_MAX: Final = 100  # messages of a lookup
NEWEST_READ_MAX: Final = 5_000  # messages that are read to find the newest of all partitions

ShownBytes = Annotated[
    int, Meta(ge=0, le=SHOWN_BYTES_MAX, description="The most bytes of each value that are shown.")
]


class ShownQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How messages are shown."""

    limit: Limit = LIMIT_DEFAULT
    format: Format = "auto"
    value_bytes: ShownBytes = SHOWN_BYTES_DEFAULT
    decode: Annotated[
        bool,
        Meta(
            description="With what a message is by its schema, if it begins with the id of one that the registry has."
        ),
    ] = False


class MessageQuery(ShownQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages of a topic: from a position on, or the newest, or after the page before."""

    partition: PartitionNumber | None = None
    from_: PositionText = msgspec.field(name="from", default="earliest")
    last: Annotated[bool, Meta(description="The newest messages instead of those of `from`.")] = (
        False
    )
    after: After = ""
    filter: FilterText = ""
    isolation: IsolationLevel = "read_committed"
    wait_ms: Annotated[
        int, Meta(ge=0, le=WAIT_MS_MAX, description="Wait this long if there is none yet.")
    ] = 0


class LookupQuery(ShownQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages with a key, or with a tag. One of key, key_base64 and tag is given."""

    # Fewer than of other pages: a lookup has no bound in bytes.
    limit: Annotated[int, Meta(ge=1, le=FOUND_MAX, description="The most items.")] = FOUND_MAX
    key: Annotated[str, Meta(max_length=8_192)] | None = None
    key_base64: Annotated[str, Meta(max_length=8_192)] | None = None
    tag: Annotated[str, Meta(max_length=8_192)] | None = None
    partition: PartitionNumber | None = None
    from_ms: Milliseconds | None = None
    to_ms: Milliseconds | None = None


class KeyQuery(ShownQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages with a key, in all topics with index.keys=true. One of key and key_base64 is given."""

    limit: Annotated[int, Meta(ge=1, le=FOUND_MAX, description="The most items.")] = FOUND_MAX
    key: Annotated[str, Meta(max_length=8_192)] | None = None
    key_base64: Annotated[str, Meta(max_length=8_192)] | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: Content | None
    value: Content | None
    headers: list[Header]


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """A page of messages. `next` goes on after it, also at the end, where new ones come."""

    items: list[Message]
    next: str
    is_at_end: bool  # There were no more messages when the page was read.
    scanned: int  # messages that were looked at


class FoundMessages(msgspec.Struct, frozen=True, kw_only=True):
    """What a lookup found, newest first."""

    items: list[Message]
    is_complete: bool  # No older messages were left out.
    scanned: int  # offsets that were read one by one, as the index does not have them yet


class FollowedKey(msgspec.Struct, frozen=True, kw_only=True):
    """Messages with a key, newest first, and the topics that were looked into."""

    items: list[Message]
    searched: list[str]
    # Topics with an index that were not looked into: there are too many, it took too long, or they may not be read.
    left_out: list[str]
    is_complete: bool


class GivenHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A header to send."""

    name: Annotated[str, Meta(max_length=1_024, pattern="^[^\\x00]*$")]
    value: GivenContent | str | None = None


class GivenMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to send. Without a partition its key chooses one. A value of null is a tombstone."""

    value: GivenContent | str | None
    key: GivenContent | str | None = None
    headers: Annotated[list[GivenHeader], Meta(max_length=HEADERS_MAX)] = []
    partition: PartitionNumber | None = None
    timestamp_ms: Milliseconds | None = None


class GivenMessages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to send to one topic."""

    messages: Annotated[list[GivenMessage], Meta(min_length=1, max_length=SENT_MAX)]


class SentMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Where the messages were written, in the order of the request."""

    messages: list[messages.SentMessage]


def read_messages(brokers: Brokers, topic: TopicName, query: MessageQuery) -> Messages:
    """Read a page of messages.

    Begin with `from` or `last`; then give `next` as `after`. With `wait_ms` a page that would be empty is answered
    when a message comes. A filter looks at a bounded number of messages a page: `items` may be empty before the end.
    """
    passes = message_test(query.filter)
    isolation = Isolation.named(query.isolation)
    numbers = _partitions(brokers, topic, query.partition)
    ends = resolve_offsets(brokers.connection, topic, numbers, LATEST, isolation)
    begin, limit = _begin(brokers, topic, query, ends), query.limit
    is_newest = query.last and not query.after
    page = messages.read_messages(
        brokers.connection,
        topic,
        begin=begin,
        ends=ends,
        limit=NEWEST_READ_MAX if is_newest else limit,
        isolation=isolation,
        passes=passes,
    )
    if not page.messages and page.is_at_end and query.wait_ms:
        page = _wait(brokers, topic, page.next_offsets, query, isolation, passes)
    found = sorted(page.messages, key=lambda each: (each.timestamp_ms, each.partition, each.offset))
    return Messages(
        items=_shown(brokers, found[-limit:] if is_newest else found, query),
        next=format_offsets(page.next_offsets),
        is_at_end=page.is_at_end,
        scanned=page.scanned,
    )


def follow_key(brokers: Brokers, query: KeyQuery) -> FollowedKey:
    """Find the messages with a key in all topics with index.keys=true, newest first.

    It looks into up to 50 topics, and takes the newest 20 messages of each.
    """
    key = _sought_key(query)
    if key is None or None not in (query.key, query.key_base64):
        raise invalid("give one of key and key_base64")
    found = trace_key(brokers.connection, key, limit=query.limit)
    return FollowedKey(
        items=_shown(brokers, found.messages, query),
        searched=list(found.searched),
        left_out=list(found.left_out),
        is_complete=found.is_complete,
    )


def look_up(brokers: Brokers, topic: TopicName, query: LookupQuery) -> FoundMessages:
    """Find messages by their key or a tag, newest first. The topic has index.keys=true."""
    key = _sought_key(query)
    if [query.key, query.key_base64, query.tag].count(None) != 2:
        raise invalid("a lookup has one of key, key_base64 and tag")
    found = lookup(
        brokers.connection,
        topic,
        key=key,
        tag=query.tag,
        partition=query.partition,
        from_ms=query.from_ms,
        to_ms=query.to_ms,
        limit=query.limit,
    )
    return FoundMessages(
        items=_shown(brokers, found.messages, query),
        is_complete=found.is_complete,
        scanned=found.scanned,
    )


def _sought_key(query: LookupQuery | KeyQuery) -> bytes | None:
    if query.key is not None:
        return query.key.encode()
    if query.key_base64 is None:
        return None
    return read_content(GivenContent(base64=query.key_base64), "key_base64")


def send_messages(brokers: Brokers, topic: TopicName, body: GivenMessages) -> SentMessages:
    """Send messages, and answer when they are durable on all in-sync replicas.

    A key or a value with a `schema` is written as serializers write it. Headers delay a message (`zhumq-delay-ms`) and give it tags (`zhumq-tags`). Where only some could be sent, the
    problem says how many.
    """
    encoder = brokers.encoder()
    given = []
    for index, each in enumerate(body.messages):
        # One alone has no number.
        of = "the" if len(body.messages) == 1 else f"of messages[{index}] the"
        headers = [
            (header.name, read_content(header.value, f"{of} header {header.name!r}"))
            for header in each.headers
        ]
        given.append(
            messages.NewMessage(
                value=read_content(each.value, f"{of} value", encoder),
                key=read_content(each.key, f"{of} key", encoder),
                headers=headers,
                partition=each.partition,
                timestamp_ms=each.timestamp_ms,
            )
        )
    _partitions(brokers, topic, None)  # Sending must not create the topic.
    return SentMessages(messages=brokers.sender.send(topic, given))


def _partitions(brokers: Brokers, topic: str, partition: int | None) -> list[int]:
    numbers = led_partitions(brokers.connection, topic)
    if partition is None:
        return numbers
    if partition not in numbers:
        raise NotFound(f"{topic!r} has no partition {partition}, or it has no leader")
    return [partition]


def _begin(
    brokers: Brokers, topic: str, query: MessageQuery, ends: Mapping[int, int]
) -> dict[int, int]:
    if query.after:
        after = parse_offsets(query.after)
        # Partitions that were added after the page before begin at their beginning.
        return {number: after.get(number, 0) for number in ends}
    if query.last:
        # With a filter, as many as may be read: what passes is somewhere among them.
        room = max(NEWEST_READ_MAX // max(len(ends), 1), 1)
        each_last = room if query.filter else min(query.limit, room)
        first = resolve_offsets(brokers.connection, topic, ends, EARLIEST)
        return {number: max(end - each_last, first[number]) for number, end in ends.items()}
    position: Position = parse_position(query.from_, name="from")
    return resolve_offsets(brokers.connection, topic, ends, position)


def _wait(
    brokers: Brokers,
    topic: str,
    begin: Mapping[int, int],
    query: MessageQuery,
    isolation: Isolation,
    passes: messages.MessageTest | None,
) -> messages.MessagePage:
    """The page of messages that come within the time, empty if none does, or too many callers wait already."""
    if not brokers.waiting_slots.acquire(blocking=False):
        return messages.MessagePage(
            messages=(), next_offsets=dict(begin), scanned=0, is_at_end=True
        )
    try:
        return messages.read_messages(
            brokers.connection,
            topic,
            begin=begin,
            ends=dict.fromkeys(begin, INT64_MAX),
            limit=query.limit,
            isolation=isolation,
            passes=passes,
            seconds_max=query.wait_ms / 1000,
            is_tail=True,
        )
    finally:
        brokers.waiting_slots.release()


def _shown(brokers: Brokers, found: Sequence[FoundMessage], query: ShownQuery) -> list[Message]:
    if not query.decode:
        return [_message(each, query, None) for each in found]
    contents = [content for each in found for content in (each.key, each.value)]
    decoder = MessageDecoder(brokers.schemas, brokers.schema_link, contents)
    return [_message(each, query, decoder) for each in found]


def show_content(
    given: bytes | None, subject: str, query: ShownQuery, decoder: MessageDecoder | None
) -> Content | None:
    """A key or a value as a query wants it. `subject` is the one that serializers of Confluent use by default."""
    shown = show(given, query.format, query.value_bytes)
    if decoder is None:
        return shown
    return show_decoded(shown, decoder.decode(given, subject), query.value_bytes)


def _message(message: FoundMessage, query: ShownQuery, decoder: MessageDecoder | None) -> Message:
    return Message(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp_ms if message.timestamp_ms >= 0 else None,
        key=show_content(message.key, f"{message.topic}-key", query, decoder),
        value=show_content(message.value, f"{message.topic}-value", query, decoder),
        headers=show_headers(message.headers, query.format, query.value_bytes),
    )
