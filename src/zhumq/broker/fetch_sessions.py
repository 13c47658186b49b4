"""Incremental fetch sessions (KIP-227): the partitions of each consumer, kept between its fetches."""

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from zhumq.model.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch

NO_SESSION_ID: Final = 0
# A request with this epoch asks for everything it names and ends the session it came in.
FINAL_EPOCH: Final = -1
# A request with this epoch asks for everything it names and opens a session if there is room.
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
# KIP-227: a session used within this time is not evicted for a new one.
EVICTION_GRACE_MS: Final = 120_000


class FetchKey(NamedTuple):
    """A partition as the request named it: by id from version 13 on, by name before."""

    topic_id: uuid.UUID
    topic: str
    partition: int


@dataclass(slots=True)
class FetchedPartition:
    """One partition of a fetch, and what the last response sent for it."""

    key: FetchKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1


class FetchSession:
    """The partitions of one consumer at this broker; the next to be served comes first."""

    __slots__ = ("epoch", "last_used_ms", "partitions", "session_id")

    def __init__(self, session_id: int, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH + 1
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[FetchKey, FetchedPartition] = OrderedDict()

    def update(self, asked: Iterable[FetchedPartition], forgotten: Iterable[FetchKey]) -> None:
        for key in forgotten:
            self.partitions.pop(key, None)
        for partition in asked:
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.fetch_offset = partition.fetch_offset
                known.max_bytes = partition.max_bytes
                known.current_leader_epoch = partition.current_leader_epoch

    def served(self, key: FetchKey) -> None:
        """Moves a partition whose bytes were sent to the end, so that no other starves."""
        if key in self.partitions:
            self.partitions.move_to_end(key)


class FetchSessions:
    """All fetch sessions of a broker, at most `slots` of them."""

    def __init__(self, slots: int, draw_id: Callable[[], int]) -> None:
        self._slots = slots
        self._draw_id = draw_id
        # Invariant: least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, asked: Iterable[FetchedPartition], now_ms: int) -> FetchSession | None:
        """A new session, or None without a free slot: the consumer then sends full fetches."""
        if len(self._sessions) >= self._slots and not self._evict_one(now_ms):
            return None
        session_id = self._draw_id()
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._draw_id()
        session = FetchSession(session_id, now_ms)
        session.update(asked, ())
        self._sessions[session_id] = session
        return session

    def resume(self, session_id: int, epoch: int, now_ms: int) -> FetchSession:
        """The session, if `epoch` is its next one. Raises if the client has to open a new session."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"fetch session {session_id} is not known")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}"
            )
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def end(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _evict_one(self, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms < EVICTION_GRACE_MS:
            return False
        del self._sessions[oldest.session_id]
        return True
