"""A leader's view of each follower: fetch offset, flushed offset, last contact."""

from collections.abc import Iterable
from dataclasses import dataclass

from zhumq.consensus.contract import NO_EPOCH, FetchArrived, Mode, SessionContact

NEVER_MS = -(2**62)
NOT_COUNTED = -1


@dataclass(slots=True, kw_only=True)
class Progress:
    """Progress of one follower as of its last fetch in this epoch that matched the leader's log."""

    fetch_offset: int = NOT_COUNTED
    # Invariant: flushed_offset <= fetch_offset. NOT_COUNTED before the first fetch and while the
    # follower recovers.
    flushed_offset: int = NOT_COUNTED
    last_contact_ms: int = NEVER_MS
    # When the follower last had the leader's whole log of that time (Kafka's lastCaughtUpTime).
    caught_up_ms: int = NEVER_MS
    mode: Mode = Mode.RAFT
    recovering: bool = False
    accepted_epoch: int = NO_EPOCH
    sequence: int = -1
    log_end_at_last_fetch: int = 0
    last_fetch_ms: int = NEVER_MS
    # The controller reported its broker lost, and the follower has made no contact since.
    gone: bool = False


class ProgressTable:
    """Progress of all followers of one leader in one epoch."""

    __slots__ = ("_of",)

    def __init__(self, follower_ids: Iterable[int], now_ms: int) -> None:
        # A new leader gives every follower a full timeout for its first contact.
        self._of = {
            each: Progress(last_contact_ms=now_ms, caught_up_ms=now_ms) for each in follower_ids
        }

    def change_followers(self, follower_ids: Iterable[int], now_ms: int) -> None:
        """Replace the set of followers. Followers that stay keep their progress."""
        self._of = {
            each: self._of.get(each) or Progress(last_contact_ms=now_ms, caught_up_ms=now_ms)
            for each in follower_ids
        }

    def __contains__(self, replica_id: int) -> bool:
        return replica_id in self._of

    def __getitem__(self, replica_id: int) -> Progress:
        return self._of[replica_id]

    def flushed_in(self, epoch: int, replica_id: int) -> int:
        """The follower's flushed offset if it has accepted the epoch, else NOT_COUNTED."""
        one = self._of[replica_id]
        return one.flushed_offset if one.accepted_epoch == epoch else NOT_COUNTED

    def silent(self) -> tuple[int, ...]:
        """The followers that have not fetched in this epoch yet."""
        return tuple(each for each, one in self._of.items() if one.sequence < 0)

    def note_contact(self, replica_id: int, now_ms: int) -> None:
        """The follower is alive and knows this leader, whatever its position."""
        self.note_past_contact(replica_id, now_ms)
        self._of[replica_id].gone = False

    def note_past_contact(self, replica_id: int, time_ms: int) -> None:
        """The follower was alive at that time, perhaps not any more."""
        one = self._of[replica_id]
        one.last_contact_ms = max(one.last_contact_ms, time_ms)

    def mark_gone(self, replica_id: int) -> None:
        """The follower's broker is lost: it falls behind at once, without a timeout."""
        if replica_id in self._of:
            self._of[replica_id].gone = True

    def matched(self, fetch: FetchArrived, log_end_offset: int, now_ms: int) -> bool:
        """Record a fetch whose log is a prefix of the leader's. False if a newer fetch is known."""
        one = self._of[fetch.replica_id]
        if fetch.sequence < one.sequence:
            return False
        if fetch.fetch_offset >= log_end_offset:
            one.caught_up_ms = now_ms
        elif fetch.fetch_offset >= one.log_end_at_last_fetch:
            one.caught_up_ms = max(one.caught_up_ms, one.last_fetch_ms)
        one.log_end_at_last_fetch = log_end_offset
        one.last_fetch_ms = now_ms
        one.sequence = fetch.sequence
        one.mode = fetch.mode
        one.recovering = fetch.recovering
        one.accepted_epoch = fetch.accepted_epoch
        one.fetch_offset = fetch.fetch_offset
        # What the follower had on disk before its log was damaged no longer counts.
        one.flushed_offset = (
            NOT_COUNTED if fetch.recovering else min(fetch.flushed_offset, fetch.fetch_offset)
        )
        return True

    def unmatched(self, fetch: FetchArrived) -> None:
        """Record a fetch whose log is no prefix of the leader's: its flushed offset does not count."""
        one = self._of[fetch.replica_id]
        if fetch.sequence >= one.sequence:
            one.sequence = fetch.sequence
            one.recovering = fetch.recovering
            one.flushed_offset = NOT_COUNTED

    def majority_contact_ms(
        self, needed: int, voters: Iterable[int], session_contact_ms: SessionContact
    ) -> int:
        """The latest time at which `needed` of the voters had made contact.

        The fetch session of a voter that has not fetched in this epoch does not count.
        """
        contacts = [self._contact_ms(each, session_contact_ms) for each in voters]
        return sorted(contacts, reverse=True)[needed - 1]

    def _contact_ms(self, replica_id: int, session_contact_ms: SessionContact) -> int:
        one = self._of[replica_id]
        if one.sequence < 0:
            return one.last_contact_ms
        return max(one.last_contact_ms, session_contact_ms(replica_id))
