"""Voters, progress, vote tallies, and the checks of a voter."""

import pytest

from zhumq.consensus.contract import (
    TRANSITIONS,
    FetchArrived,
    LogPosition,
    Mode,
    QuorumState,
    Role,
)
from zhumq.consensus.election import VoteTally, is_log_acceptable, may_vote_for
from zhumq.consensus.progress import NOT_COUNTED, ProgressTable
from zhumq.consensus.voters import Voters


def fetch(sequence: int, offset: int, flushed: int, *, recovering: bool = False) -> FetchArrived:
    return FetchArrived(
        replica_id=1,
        epoch=1,
        fetch_offset=offset,
        last_fetched_epoch=1,
        flushed_offset=flushed,
        mode=Mode.RAFT,
        recovering=recovering,
        sequence=sequence,
        accepted_epoch=-1,
    )


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(count: int, majority: int) -> None:
    voters = Voters(range(count))
    assert voters.majority == majority
    assert voters.is_majority(range(majority))
    assert not voters.is_majority(range(majority - 1))


def test_observers_and_duplicates_make_no_majority() -> None:
    assert not Voters({1, 2, 3}).is_majority([1, 1, 7, 8])


def test_an_empty_set_of_voters_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one voter"):
        Voters(())


def test_the_offset_that_a_majority_has_reached() -> None:
    assert Voters(range(3)).reached_by_majority([9, 4, 7]) == 7
    assert Voters(range(5)).reached_by_majority([1, 2, 3, 4, 5]) == 3
    assert Voters(range(4)).reached_by_majority([1, 2, 3, 4]) == 2


def test_voters_are_asked_in_turn() -> None:
    voters = Voters({2, 5, 9})
    assert [voters.after(2), voters.after(5), voters.after(9)] == [5, 9, 2]
    assert voters.others(5) == (2, 9)


def test_the_last_epoch_counts_more_than_the_length() -> None:
    own = LogPosition(3, 10)
    assert is_log_acceptable(LogPosition(3, 10), own)
    assert is_log_acceptable(LogPosition(4, 1), own)
    assert not is_log_acceptable(LogPosition(3, 9), own)
    assert not is_log_acceptable(LogPosition(2, 1_000), own)


def test_a_voter_grants_one_vote_per_epoch() -> None:
    state = QuorumState(epoch=2, voted_for=1)
    assert may_vote_for(state, 1)
    assert not may_vote_for(state, 2)
    assert may_vote_for(QuorumState(epoch=2), 2)


def test_there_is_no_vote_against_a_known_leader_nor_from_a_damaged_replica() -> None:
    assert not may_vote_for(QuorumState(epoch=2, leader_id=1), 2)
    assert not may_vote_for(QuorumState(epoch=2, recovering=True), 2)


def test_a_vote_tally_counts_each_voter_once() -> None:
    tally = VoteTally(Voters(range(5)), 1, 0, pre_vote=False)
    tally.count(1, granted=True)
    tally.count(1, granted=True)
    tally.count(77, granted=True)
    assert not tally.is_won
    assert tally.unanswered == (2, 3, 4)
    tally.count(2, granted=True)
    assert tally.is_won


def test_a_vote_tally_is_lost_once_no_majority_is_left() -> None:
    tally = VoteTally(Voters(range(3)), 1, 0, pre_vote=False)
    tally.count(1, granted=False)
    assert not tally.is_lost
    tally.count(2, granted=False)
    assert tally.is_lost


def test_only_what_is_flushed_counts_of_a_follower() -> None:
    table = ProgressTable([1], 0)
    assert table[1].flushed_offset == NOT_COUNTED
    assert table.matched(fetch(1, 10, 7), 12, 5)
    assert table[1].flushed_offset == 7


def test_an_older_fetch_changes_nothing() -> None:
    table = ProgressTable([1], 0)
    table.matched(fetch(2, 5, 5, recovering=True), 12, 5)
    assert not table.matched(fetch(1, 10, 10), 12, 6)
    assert table[1].flushed_offset == NOT_COUNTED


def test_a_fetch_that_diverges_resets_the_flushed_offset() -> None:
    table = ProgressTable([1], 0)
    table.matched(fetch(1, 10, 10), 12, 5)
    table.unmatched(fetch(2, 99, 99))
    assert table[1].flushed_offset == NOT_COUNTED


def test_a_follower_is_caught_up_with_the_log_end_of_its_last_fetch() -> None:
    table = ProgressTable([1], 0)
    table.matched(fetch(1, 10, 10), 10, 100)
    assert table[1].caught_up_ms == 100
    table.matched(fetch(2, 10, 10), 15, 200)
    table.matched(fetch(3, 15, 15), 20, 300)
    # At 300 the follower had what the leader had at 200.
    assert table[1].caught_up_ms == 200
    table.matched(fetch(4, 15, 15), 30, 400)
    assert table[1].caught_up_ms == 200


def test_every_role_can_be_left() -> None:
    assert set(TRANSITIONS) == set(Role)
    assert all(after and role not in after for role, after in TRANSITIONS.items())
