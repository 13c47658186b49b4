"""What a leader knows of each follower: how far it is, how far on its disk, when last heard."""

from collections.abc import Iterable
from dataclasses import dataclass

from zhumq.consensus.contract import NO_EPOCH, FetchArrived, Mode, SessionContact

NEVER_MS = -(2**62)
NOT_COUNTED = -1


@dataclass(slots=True, kw_only=True)
class Progress:
    """One follower, as of its last fetch that matched the leader's log in this epoch."""

    fetch_offset: int = NOT_COUNTED
    # Invariant: flushed_offset <= fetch_offset; NOT_COUNTED until it fetched, and while it heals.
    flushed_offset: int = NOT_COUNTED
    last_contact_ms: int = NEVER_MS
    # When it last had everything the leader had at that time (Kafka's lastCaughtUpTime).
    caught_up_ms: int = NEVER_MS
    mode: Mode = Mode.RAFT
    recovering: bool = False
    accepted_epoch: int = NO_EPOCH
    sequence: int = -1
    log_end_at_last_fetch: int = 0
    last_fetch_ms: int = NEVER_MS
    # The coordinator took its broker for dead, and it has not been heard of since.
    gone: bool = False


class ProgressTable:
    """The followers of one leader in one epoch."""

    __slots__ = ("_of",)

    def __init__(self, follower_ids: Iterable[int], now_ms: int) -> None:
        # A new leader gives everybody a full timeout to be heard of.
        self._of = {
            each: Progress(last_contact_ms=now_ms, caught_up_ms=now_ms) for each in follower_ids
        }

    def change(self, follower_ids: Iterable[int], now_ms: int) -> None:
        """Other followers from now on; of those that stay everything is kept."""
        self._of = {
            each: self._of.get(each) or Progress(last_contact_ms=now_ms, caught_up_ms=now_ms)
            for each in follower_ids
        }

    def __contains__(self, replica_id: int) -> bool:
        return replica_id in self._of

    def __getitem__(self, replica_id: int) -> Progress:
        return self._of[replica_id]

    def flushed_in(self, epoch: int, replica_id: int) -> int:
        """What counts of a follower that must have accepted the epoch first."""
        one = self._of[replica_id]
        return one.flushed_offset if one.accepted_epoch == epoch else NOT_COUNTED

    def silent(self) -> tuple[int, ...]:
        """Those who have not fetched in this epoch yet."""
        return tuple(each for each, one in self._of.items() if one.sequence < 0)

    def note_contact(self, replica_id: int, now_ms: int) -> None:
        """It is alive and knows this leader, wherever its log is."""
        self.contact_was(replica_id, now_ms)
        self._of[replica_id].gone = False

    def contact_was(self, replica_id: int, time_ms: int) -> None:
        """It was alive then, which says nothing of now."""
        one = self._of[replica_id]
        one.last_contact_ms = max(one.last_contact_ms, time_ms)

    def lost(self, replica_id: int) -> None:
        """Its broker is gone: it is not missed only after a while, but at once."""
        if replica_id in self._of:
            self._of[replica_id].gone = True

    def matched(self, fetch: FetchArrived, log_end_offset: int, now_ms: int) -> bool:
        """Note a fetch whose position is a prefix of the leader's log. False if it is old news."""
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
        # What it had on its disk before it was damaged counts for nothing any more.
        one.flushed_offset = (
            NOT_COUNTED if fetch.recovering else min(fetch.flushed_offset, fetch.fetch_offset)
        )
        return True

    def unmatched(self, fetch: FetchArrived) -> None:
        """Note a fetch from a log that is no prefix of the leader's: nothing of it counts."""
        one = self._of[fetch.replica_id]
        if fetch.sequence >= one.sequence:
            one.sequence = fetch.sequence
            one.recovering = fetch.recovering
            one.flushed_offset = NOT_COUNTED

    def majority_contact_ms(
        self, needed: int, voters: Iterable[int], session_contact_ms: SessionContact
    ) -> int:
        """The latest time by which `needed` of the voters had been heard of.

        One that has not fetched in this epoch is not in anybody's session for it.
        """
        contacts = [self._contact_ms(each, session_contact_ms) for each in voters]
        return sorted(contacts, reverse=True)[needed - 1]

    def _contact_ms(self, replica_id: int, session_contact_ms: SessionContact) -> int:
        one = self._of[replica_id]
        if one.sequence < 0:
            return one.last_contact_ms
        return max(one.last_contact_ms, session_contact_ms(replica_id))
