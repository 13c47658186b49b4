"""Checks whether a subscription can be served, before anything is delivered."""

import asyncio
import uuid
from dataclasses import dataclass, replace
from typing import Final

from zhumq.filters.filter import Filter, compile_filter
from zhumq.filters.invalid import FilterInvalid
from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.callers import Caller, may_subscribe, not_permitted
from zhumq.push.frames import MODES, Refusal, start_of
from zhumq.push.services import PushServices
from zhumq.push.sessions import LiveStream, reconnected
from zhumq.security.acl import Operation, ResourceType
from zhumq.share.push_session import PushSession, SessionState, resumed
from zhumq.share.subscription import Start, StartKind, Subscription, SubscriptionMode

TOPICS_MAX: Final = 1_000
NAME_CHARACTERS_MAX: Final = 250
CREDITS_MAX: Final = 1_000_000
MAX_DELIVERIES_MAX: Final = 1_000
ANONYMOUS_GROUP: Final = "zhumq.anonymous."
# Followed by the topic's name: the group of a point-to-point subscription that names none.
DEFAULT_GROUP: Final = "zhumq.ptp."
TAKE_OVER_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A subscription that passed the checks, as model types."""

    mode: SubscriptionMode
    topics: tuple[str, ...]
    places: tuple[TopicPartition, ...]
    start: Start
    credits: int
    ack_timeout_ms: int
    max_deliveries: int | None
    isolation: Isolation
    message_filter: Filter | None
    session: PushSession
    # The session outlives the connection.
    durable: bool
    anonymous: bool
    client_id: str
    instance: str
    # Of two streams of one instance, the higher one stays.
    generation: int
    attachment: pb.Attachment | None
    # Topics whose partitions are all subscribed, also those that are added later.
    whole_topics: frozenset[str]
    caller: Caller

    @property
    def joins(self) -> bool:
        """Whether the consumer becomes a member of its group, which assigns it partitions."""
        return (
            self.mode is SubscriptionMode.PTP_EXCLUSIVE
            and self.attachment is None
            and bool(self.whole_topics)
        )

    @property
    def is_permitted(self) -> bool:
        """Whether the caller has the rights that the subscription needs."""
        group = None if self.anonymous else self.session.group
        return may_subscribe(self.caller, self.topics, group)

    @property
    def chooses(self) -> bool:
        """Whether the consumer chooses its partitions itself, without being a member of its group."""
        return (
            self.mode is SubscriptionMode.PTP_EXCLUSIVE
            and self.attachment is None
            and not self.whole_topics
        )

    @property
    def continued_start(self) -> Start:
        """Where the consumer continues after an interruption: at its group's position."""
        if self.mode.is_point_to_point:
            return self.start  # applies only to partitions on which the group has no position
        otherwise = (
            StartKind.LATEST if self.start.kind is StartKind.LATEST else self.start.otherwise
        )
        return Start(StartKind.STORED, otherwise=otherwise)


async def accept(services: PushServices, subscribe: pb.Subscribe, caller: Caller) -> Accepted:
    """Check a subscription. Raises Refusal."""
    mode = MODES.get(subscribe.mode)
    if mode is None:
        raise Refusal(pb.INVALID, "the mode of a subscription is PTP_EXCLUSIVE, PTP_SHARED or PSB")
    if len(services.sessions.streams) >= services.settings.streams_max:
        raise Refusal(pb.UNAVAILABLE, "this broker is at its limit of push streams", retry=True)
    try:
        message_filter = compile_filter(subscribe.filter)
    except FilterInvalid as error:
        raise Refusal(pb.FILTER_INVALID, str(error)) from None
    if not 0 < subscribe.credits <= CREDITS_MAX:
        raise Refusal(
            pb.CREDIT_INVALID,
            f"credit {subscribe.credits} is not between 1 and {CREDITS_MAX}: it is the number"
            " of unanswered messages that this consumer may hold",
        )
    if not 0 <= subscribe.ack_timeout_ms <= services.settings.ack_timeout_ms_max:
        raise Refusal(
            pb.INVALID, f"ack_timeout_ms is at most {services.settings.ack_timeout_ms_max}"
        )
    if not 0 <= subscribe.max_deliveries <= MAX_DELIVERIES_MAX:
        raise Refusal(
            pb.INVALID,
            f"max_deliveries is 1 to {MAX_DELIVERIES_MAX}, or 0 for the broker's setting,"
            f" not {subscribe.max_deliveries}",
        )
    for name in (subscribe.group, subscribe.consumer, subscribe.client_id, subscribe.instance):
        if len(name) > NAME_CHARACTERS_MAX:
            raise Refusal(pb.INVALID, f"a name has at most {NAME_CHARACTERS_MAX} characters")
    topics = _topics(subscribe, mode)
    anonymous = not subscribe.group and mode is SubscriptionMode.PSB
    # Before anything is looked up: the answer is the same whether the topics exist.
    if not may_subscribe(caller, topics, subscribe.group or None):
        raise not_permitted("this subscription")
    group = subscribe.group or await _unnamed_group(services, topics, anonymous=anonymous)
    if not anonymous and not caller.may(Operation.READ, ResourceType.GROUP, group):
        raise not_permitted("this subscription")
    start = start_of(subscribe, mode)
    places = await _places(services, subscribe, mode=mode, group=group, start=start)
    consumer = subscribe.consumer or (
        group if mode is SubscriptionMode.PSB else f"consumer-{uuid.uuid4().hex[:8]}"
    )
    durable = not anonymous and (mode is SubscriptionMode.PSB or bool(subscribe.consumer))
    fresh = PushSession(
        group=group,
        consumer=consumer,
        topic=",".join(topics),
        mode=mode,
        client=subscribe.client_id,
        state_since_ms=services.clock.now_ms(),
    )
    attachment = subscribe.attachment if subscribe.HasField("attachment") else None
    session = fresh
    if durable and attachment is None:
        session = await _session(services, fresh, resume=subscribe.resume)
    # A member has one stream on a broker: its first stream or an attachment. The deliveries of an earlier
    # stream are released before a later one begins; else the later one would begin after them.
    instance = subscribe.instance if attachment is None else attachment.member_id
    await _check_other_streams(services, session, instance, subscribe.generation)
    return Accepted(
        mode=mode,
        topics=topics,
        places=places,
        start=start,
        credits=subscribe.credits,
        ack_timeout_ms=subscribe.ack_timeout_ms or services.settings.ack_timeout_ms,
        max_deliveries=subscribe.max_deliveries or None,
        isolation=(
            Isolation.READ_UNCOMMITTED if subscribe.read_uncommitted else Isolation.READ_COMMITTED
        ),
        message_filter=message_filter,
        session=session,
        durable=durable and attachment is None,
        anonymous=anonymous,
        client_id=subscribe.client_id,
        instance=instance,
        generation=subscribe.generation,
        attachment=attachment,
        whole_topics=frozenset(each.name for each in subscribe.topics if not each.partitions),
        caller=caller,
    )


def _topics(subscribe: pb.Subscribe, mode: SubscriptionMode) -> tuple[str, ...]:
    names = tuple(choice.name for choice in subscribe.topics)
    if not names or len(set(names)) != len(names) or len(names) > TOPICS_MAX:
        raise Refusal(
            pb.INVALID, f"a subscription names 1 to {TOPICS_MAX} topics, each of them once"
        )
    chosen = {bool(choice.partitions) for choice in subscribe.topics}
    if mode is SubscriptionMode.PTP_EXCLUSIVE and len(chosen) > 1:
        raise Refusal(
            pb.INVALID,
            "a ptp consumer chooses partitions for all of its topics, or for none of them",
        )
    return names


async def _unnamed_group(
    services: PushServices, topics: tuple[str, ...], *, anonymous: bool
) -> str:
    """The group of a subscription that names none: for PTP the one that claims the topic, or a new one."""
    if anonymous:
        return f"{ANONYMOUS_GROUP}{uuid.uuid4().hex}"
    try:
        for topic in topics:
            claim = await services.deliveries.claim_of(topic)
            if claim is not None:
                return claim.group
    except BrokerError as error:
        raise Refusal.of(error) from error
    return f"{DEFAULT_GROUP}{topics[0]}"


async def _places(
    services: PushServices,
    subscribe: pb.Subscribe,
    *,
    mode: SubscriptionMode,
    group: str,
    start: Start,
) -> tuple[TopicPartition, ...]:
    """The chosen partitions of every topic, each topic checked, and claimed if PTP."""
    places: list[TopicPartition] = []
    for choice in subscribe.topics:
        topic = services.image.topics.get(choice.name)
        if topic is None:
            raise Refusal(
                pb.UNKNOWN_TOPIC,
                f"there is no topic {choice.name!r}: create it with `zhumq topic create`",
            )
        count = len(topic.partitions)
        for partition in choice.partitions:
            if not 0 <= partition < count:
                raise Refusal(
                    pb.PARTITION_OUT_OF_RANGE,
                    f"topic {choice.name!r} has partitions 0 to {count - 1}, not {partition}",
                )
        partitions = tuple(choice.partitions) or tuple(range(count))
        try:
            await services.deliveries.subscribe(
                Subscription(
                    topic=choice.name,
                    group=group,
                    mode=mode,
                    partitions=partitions,
                    start=start,
                    credit=subscribe.credits,
                )
            )
        except BrokerError as error:
            raise Refusal.of(error) from error
        places += (TopicPartition(choice.name, partition) for partition in partitions)
    return tuple(places)


async def _session(services: PushServices, fresh: PushSession, *, resume: bool) -> PushSession:
    """The stored session, made active. A parked one raises Refusal unless `resume` is set."""
    now_ms = services.clock.now_ms()
    try:
        known = await services.sessions.find(fresh.group, fresh.consumer)
        if known is None:
            return fresh
        if known.state is SessionState.PARKED:
            if not resume:
                raise Refusal(
                    pb.SESSION_PARKED,
                    f"the session of {fresh.consumer!r} in group {fresh.group!r} is parked"
                    f" ({known.reason}): subscribe with resume, or run"
                    f" `zhumq session resume {fresh.group}/{fresh.consumer}`",
                )
            known = resumed(known, now_ms)
        session = reconnected(known, fresh, now_ms)
        await services.sessions.save(session)
    except BrokerError as error:
        raise Refusal.of(error) from error
    return replace(fresh, state=session.state, state_since_ms=session.state_since_ms)


async def _check_other_streams(
    services: PushServices, session: PushSession, instance: str, generation: int
) -> None:
    """End an older stream of the same consumer, or refuse this one if it is the older; refuse a second consumer of
    a PSB group."""
    # Another stream of the consumer may have begun while this one waited: it looks again.
    while (stream := _earlier_stream(services, session, instance)) is not None:
        if stream.instance == instance and stream.generation > generation:
            raise Refusal(
                pb.FENCED, "a newer stream of this consumer is connected to this broker", retry=True
            )
        try:
            async with asyncio.timeout(TAKE_OVER_SECONDS_MAX):
                await stream.take_over()
        except TimeoutError:
            raise Refusal(
                pb.UNAVAILABLE, "this consumer's earlier connection is still closing", retry=True
            ) from None
    topics = set(session.topic.split(","))
    for stream in services.sessions.streams:
        other = stream.session
        if (
            other.group == session.group
            and session.mode is SubscriptionMode.PSB
            and other.mode is SubscriptionMode.PSB
            and topics & set(other.topic.split(","))
        ):
            raise Refusal(
                pb.GROUP_CONFLICT,
                f"psb group {session.group!r} already has a consumer ({other.client or 'unnamed'},"
                " connected): choose another group name",
                retry=True,
            )


def _earlier_stream(
    services: PushServices, session: PushSession, instance: str
) -> LiveStream | None:
    """A stream of this client object, or one of its consumer's name that does not answer."""
    for stream in services.sessions.streams:
        other = stream.session
        if other.group == session.group and (
            (bool(instance) and stream.instance == instance)
            or (other.consumer == session.consumer and other.state is not SessionState.ACTIVE)
        ):
            return stream
    return None
