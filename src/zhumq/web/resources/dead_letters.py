"""Dead letters: count, read and replay them."""

import contextlib
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from zhumq.admin import dead_letters
from zhumq.admin.decoding import MessageDecoder
from zhumq.admin.encoding import MessageEncoder
from zhumq.admin.messages import PAGE_BYTES_MAX
from zhumq.web.brokers import Brokers
from zhumq.web.content import Content, GivenContent, Header, read_content, show_headers
from zhumq.web.names import Offset, PartitionNumber, TopicName
from zhumq.web.paging import After, Page, PageQuery, format_offsets, page_of, parse_offsets
from zhumq.web.resources.messages import HEADERS_MAX, GivenHeader, ShownQuery, show_content

REPLAYED_MAX: Final = 10_000  # by one request
REPLAYED_DEFAULT: Final = 1_000

GroupFilter = Annotated[str, Meta(max_length=255, description="Only those of this group.")]


class DeadLetterTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A dead-letter topic, and how many of its dead letters are left to replay, and were replayed."""

    topic: str
    left: int
    replayed: int


class DeadLetterQuery(ShownQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters."""

    group: GroupFilter = ""
    after: After = ""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The message that a dead letter was."""

    topic: str
    partition: int
    offset: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that could not be delivered: where it is, where it came from, and why."""

    topic: str  # the dead-letter topic
    partition: int
    offset: int
    origin: Origin
    group: str
    reason: str
    deliveries: int
    time_ms: int
    replayed: bool
    key: Content | None
    value: Content | None
    headers: list[Header]


class EditedMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is sent back in place of a dead letter. A value of null is a tombstone."""

    value: GivenContent | str | None
    key: GivenContent | str | None = None
    headers: Annotated[list[GivenHeader], Meta(max_length=HEADERS_MAX)] = []


class DeadLetterPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of a dead letter in its dead-letter topic, and what is sent in place of it."""

    partition: PartitionNumber
    offset: Offset
    edited: EditedMessage | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters are sent back. Those that were replayed before are not, unless they are named here."""

    group: GroupFilter | None = None
    only: Annotated[list[DeadLetterPlace], Meta(min_length=1, max_length=REPLAYED_MAX)] | None = (
        None
    )
    again: bool = False
    limit: Annotated[int, Meta(ge=1, le=REPLAYED_MAX)] = REPLAYED_DEFAULT


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """How many were sent back. There may be more if it is as many as the limit."""

    replayed: int


def list_topics(brokers: Brokers, query: PageQuery) -> Page[DeadLetterTopic]:
    """List the dead-letter topics, with how many dead letters each has."""
    found = [
        DeadLetterTopic(topic=name, left=count.left, replayed=count.replayed)
        for name, count in sorted(dead_letters.count_dead_letters(brokers.connection).items())
    ]
    return page_of(found, lambda each: each.topic, limit=query.limit, after=query.after)


def read_dead_letters(
    brokers: Brokers, topic: TopicName, query: DeadLetterQuery
) -> Page[DeadLetter]:
    """Read the dead letters of a topic, oldest first: of the topic itself, or by the name of its dead-letter topic."""
    begin = parse_offsets(query.after)
    found = dead_letters.read_dead_letters(
        brokers.connection,
        topic,
        group=query.group or None,
        begin=dict(begin),
    )
    shown: list[dead_letters.DeadLetter] = []
    has_more, size = False, 0
    with contextlib.closing(found):
        for each in found:
            if len(shown) == query.limit or size > PAGE_BYTES_MAX:
                has_more = True
                break
            shown.append(each)
            begin[each.partition] = each.offset + 1
            size += len(each.key or b"") + len(each.value or b"")
    # Partitions of which nothing was read begin at their beginning again.
    return Page(
        items=_shown_all(brokers, shown, query),
        next=format_offsets(begin) if has_more else None,
    )


def count_reasons(brokers: Brokers, topic: TopicName) -> list[dead_letters.ReasonCount]:
    """Count the dead letters of a topic by group and reason."""
    return dead_letters.count_reasons(brokers.connection, topic)


def replay(brokers: Brokers, topic: TopicName, body: Replay) -> Replayed:
    """Send dead letters back to the topic they came from, up to a limit: repeat it until fewer are replayed."""
    offsets: dict[int, set[int]] | None = None
    edited: dict[tuple[int, int], dead_letters.EditedMessage] = {}
    encoder = brokers.encoder()
    if body.only is not None:
        offsets = {}
        for each in body.only:
            offsets.setdefault(each.partition, set()).add(each.offset)
            if each.edited is not None:
                edited[each.partition, each.offset] = _edited(each.edited, encoder)
    count = dead_letters.replay_dead_letters(
        brokers.connection,
        topic,
        group=body.group,
        offsets=offsets,
        edited=edited,
        again=body.again,
        limit=body.limit,
    )
    return Replayed(replayed=count)


def _edited(given: EditedMessage, encoder: MessageEncoder) -> dead_letters.EditedMessage:
    return dead_letters.EditedMessage(
        key=read_content(given.key, "the key", encoder),
        value=read_content(given.value, "the value", encoder),
        headers=tuple(
            (each.name, read_content(each.value, f"the header {each.name!r}"))
            for each in given.headers
        ),
    )


def _shown_all(
    brokers: Brokers, found: list[dead_letters.DeadLetter], query: ShownQuery
) -> list[DeadLetter]:
    if not query.decode:
        return [_shown(each, query, None) for each in found]
    contents = [content for each in found for content in (each.key, each.value)]
    decoder = MessageDecoder(brokers.schemas, brokers.schema_link, contents)
    return [_shown(each, query, decoder) for each in found]


def _shown(
    each: dead_letters.DeadLetter, query: ShownQuery, decoder: MessageDecoder | None
) -> DeadLetter:
    return DeadLetter(
        topic=each.topic,
        partition=each.partition,
        offset=each.offset,
        origin=Origin(
            topic=each.story.topic, partition=each.story.partition, offset=each.story.offset
        ),
        group=each.story.group,
        reason=each.story.reason,
        deliveries=each.story.deliveries,
        time_ms=each.story.time_ms,
        replayed=each.replayed,
        key=show_content(each.key, f"{each.story.topic}-key", query, decoder),
        value=show_content(each.value, f"{each.story.topic}-value", query, decoder),
        headers=show_headers(each.headers, query.format, query.value_bytes),
    )
