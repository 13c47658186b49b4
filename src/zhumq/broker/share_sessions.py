"""Share sessions (KIP-932): which partitions a member of a share group fetches from this broker."""

import uuid
from collections import OrderedDict
from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple

from zhumq.model.errors import BrokerError, ErrorCode, InvalidRequest

# A request with this epoch opens a session and replaces the member's earlier one.
INITIAL_EPOCH: Final = 0
# A request with this epoch ends its session; what the member holds is released.
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
PARTITIONS_PER_SESSION_MAX: Final = 20_000


class ShareSessionNotFound(BrokerError):
    """The member has no session here; it opens a new one."""

    code: ClassVar[ErrorCode] = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpoch(BrokerError):
    """The request is not the next one of its session."""

    code: ClassVar[ErrorCode] = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitReached(BrokerError):
    """All share sessions of this broker are in use."""

    code: ClassVar[ErrorCode] = ErrorCode.SHARE_SESSION_LIMIT_REACHED


class SharePartition(NamedTuple):
    """A partition as share requests name it."""

    topic_id: uuid.UUID
    partition: int


class MemberKey(NamedTuple):
    """The member that a session belongs to."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions of one member at this broker; the next to be served comes first."""

    __slots__ = ("connection_id", "epoch", "key", "partitions", "touched")

    def __init__(self, key: MemberKey, connection_id: int) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = INITIAL_EPOCH + 1
        self.partitions: OrderedDict[SharePartition, None] = OrderedDict()
        # All partitions it ever had: it may hold records of those it has forgotten.
        self.touched: set[SharePartition] = set()

    def update(self, asked: Iterable[SharePartition], forgotten: Iterable[SharePartition]) -> None:
        for partition in forgotten:
            self.partitions.pop(partition, None)
        for partition in asked:
            self.partitions.setdefault(partition)
            self.touched.add(partition)
        if len(self.touched) > PARTITIONS_PER_SESSION_MAX:
            raise InvalidRequest(
                f"a share session has at most {PARTITIONS_PER_SESSION_MAX} partitions"
            )

    def served(self, partition: SharePartition) -> None:
        """Moves a partition whose records were sent to the end, so that no other starves."""
        if partition in self.partitions:
            self.partitions.move_to_end(partition)


class ShareSessions:
    """All share sessions of a broker, at most `slots` of them."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._by_connection: dict[int, set[MemberKey]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: MemberKey, connection_id: int) -> ShareSession:
        """A new session. Ends the session that the member had."""
        self.end(key)
        if len(self._sessions) >= self._slots:
            raise ShareSessionLimitReached(f"there are {self._slots} share sessions already")
        session = ShareSession(key, connection_id)
        self._sessions[key] = session
        self._by_connection.setdefault(connection_id, set()).add(key)
        return session

    def resume(self, key: MemberKey, epoch: int) -> ShareSession:
        """The session, if `epoch` is its next one. Raises if the member has to open a new session."""
        session = self.find(key)
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(
                f"the share session of {key.member_id!r} is at epoch {session.epoch}, not {epoch}"
            )
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def find(self, key: MemberKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(f"{key.member_id!r} has no share session here")
        return session

    def end(self, key: MemberKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            of_connection = self._by_connection.get(session.connection_id, set())
            of_connection.discard(key)
            if not of_connection:
                self._by_connection.pop(session.connection_id, None)
        return session

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        """The sessions that were opened on a connection, which end with it."""
        return [self._sessions[key] for key in self._by_connection.get(connection_id, ())]
