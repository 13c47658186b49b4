"""The interface of all group types, and the turn in which a shard handles one input."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from zhumq.groups.requests import GroupResponse
from zhumq.model.deadlines import Deadlines
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Outcome, Producer, Reply, ReplyToken, StateRecord
from zhumq.protocol.messages.groups import ListedGroup


class GroupType(StrEnum):
    """Who assigns partitions to members; ListGroups shows these names."""

    CLASSIC = "classic"  # a leader among the members
    CONSUMER = "consumer"  # the coordinator (KIP-848)
    SHARE = "share"  # the coordinator; partitions may have several readers (KIP-932)


class DeadlineKind(StrEnum):
    """Kinds of deadlines in a shard."""

    SESSION = "session"  # a member's session expires
    JOIN = "join"  # a rebalance stops waiting for joins
    SYNC = "sync"  # members that joined have not sent SyncGroup
    # A member of a consumer group has not revoked partitions, or not rejoined, in time.
    REBALANCE = "rebalance"
    OFFSETS_CHECK = "offsets check"  # expire offsets of all groups


class DeadlineKey(NamedTuple):
    """One deadline of a group or of a member."""

    kind: DeadlineKind
    group_id: str = ""
    member_id: str = ""


class Parked(NamedTuple):
    """A request that is answered later, in the format of its version."""

    token: ReplyToken
    version: int


class Turn:
    """The handling of one input: the current time, and the records and replies so far."""

    __slots__ = ("deadlines", "now_ms", "producer", "records", "replies")

    def __init__(self, now_ms: int, deadlines: Deadlines[DeadlineKey]) -> None:
        self.now_ms = now_ms
        self.deadlines = deadlines
        self.records: list[StateRecord] = []
        self.replies: list[Reply[GroupResponse]] = []
        # Set if the records belong to this producer's transaction.
        self.producer: Producer | None = None

    def answer(self, token: ReplyToken, response: GroupResponse) -> None:
        self.replies.append(Reply(token, response))

    def record(self, records: Iterable[StateRecord]) -> None:
        self.records.extend(records)

    def set_deadline(self, key: DeadlineKey, after_ms: int) -> None:
        self.deadlines.set(key, self.now_ms + after_ms)

    def outcome(self) -> Outcome[GroupResponse]:
        return Outcome(
            records=tuple(self.records), replies=tuple(self.replies), producer=self.producer
        )


class Group(ABC):
    """A group as the shard sees it: it has offsets and can be listed and deleted."""

    type: GroupType
    group_id: str
    protocol_type: str | None

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """No members: it may be deleted, and any client may commit offsets."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Empty, and no member is joining."""

    @property
    @abstractmethod
    def member_bytes(self) -> int:
        """Approximate memory of the members with what they have sent."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as tools show it."""

    @abstractmethod
    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Whether this sender may commit offsets now. A transaction need not name a member (KIP-447), and may
        commit during a rebalance."""

    @abstractmethod
    def check_offset_delete(self) -> ErrorCode:
        """Whether offsets of this group may be deleted at all."""

    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted."""
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read this topic, so that its offsets must stay."""

    def offset_age_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """The start of an offset's retention; None while offsets do not expire."""
        return commit_timestamp_ms

    @abstractmethod
    def renew_session(self, member_id: str, turn: Turn) -> None:
        """Restart the member's session timeout, if requests other than heartbeats do so."""

    @abstractmethod
    def tombstones(self) -> list[StateRecord]:
        """The records that delete the group, its offsets aside."""

    def listed(self) -> ListedGroup:
        """The group's entry in ListGroups."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state_name,
            group_type=self.type.value,
        )
