"""What any group is, whatever its protocol, and the turn in which a shard handles one input."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from zhumq.groups.deadlines import Deadlines
from zhumq.groups.requests import GroupResponse
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Outcome, Reply, ReplyToken, StateRecord
from zhumq.protocol.messages.groups import ListedGroup


class GroupType(StrEnum):
    """Who assigns partitions to members; the names are those ListGroups shows."""

    CLASSIC = "classic"  # a leader among the members
    CONSUMER = "consumer"  # the coordinator (KIP-848)
    SHARE = "share"  # the coordinator; partitions may have several readers (KIP-932)


class DeadlineKind(StrEnum):
    """What can fall due in a shard."""

    SESSION = "session"  # a member has not been heard of
    JOIN = "join"  # a rebalance has waited long enough for members to join
    SYNC = "sync"  # members have joined and then not asked for their assignment
    # A member of a consumer group has not given up partitions, or not joined again, in its time.
    REBALANCE = "rebalance"
    OFFSETS_CHECK = "offsets check"  # look for offsets to expire, over all groups


class DeadlineKey(NamedTuple):
    """One waiting thing of one group (and member)."""

    kind: DeadlineKind
    group_id: str = ""
    member_id: str = ""


class Parked(NamedTuple):
    """A request that is answered later, in the form its version asks for."""

    token: ReplyToken
    version: int


class Turn:
    """One input being handled: the time it is, and what has been decided so far."""

    __slots__ = ("deadlines", "now_ms", "records", "replies")

    def __init__(self, now_ms: int, deadlines: Deadlines[DeadlineKey]) -> None:
        self.now_ms = now_ms
        self.deadlines = deadlines
        self.records: list[StateRecord] = []
        self.replies: list[Reply[GroupResponse]] = []

    def answer(self, token: ReplyToken, response: GroupResponse) -> None:
        self.replies.append(Reply(token, response))

    def record(self, records: Iterable[StateRecord]) -> None:
        self.records.extend(records)

    def set_deadline(self, key: DeadlineKey, after_ms: int) -> None:
        self.deadlines.set(key, self.now_ms + after_ms)

    def outcome(self) -> Outcome[GroupResponse]:
        return Outcome(records=tuple(self.records), replies=tuple(self.replies))


class Group(ABC):
    """A group as the shard sees it: something with offsets that can be listed and deleted."""

    type: GroupType
    group_id: str

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """No members, so that it may be deleted and anyone may commit offsets."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Empty, and nobody is on the way in either."""

    @property
    @abstractmethod
    def member_bytes(self) -> int:
        """About how much memory the members take with what they have sent."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as tools show it."""

    @abstractmethod
    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this sender may commit offsets now."""

    @abstractmethod
    def check_offset_delete(self) -> ErrorCode:
        """Whether offsets of this group may be deleted at all."""

    @abstractmethod
    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read this topic, so that its offsets must stay."""

    @abstractmethod
    def offset_age_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts; None while offsets do not expire."""

    @abstractmethod
    def heard_from(self, member_id: str, turn: Turn) -> None:
        """The member has shown a sign of life other than a heartbeat."""

    @abstractmethod
    def tombstones(self) -> list[StateRecord]:
        """The records that delete the group, its offsets aside."""

    @abstractmethod
    def listed(self) -> ListedGroup:
        """The group's line in ListGroups."""
