"""The vote tally of one election round, and the checks of a voter before it grants its vote."""

from zhumq.consensus.contract import LogPosition, QuorumState
from zhumq.consensus.voters import Voters


class VoteTally:
    """The answers to one round of vote requests."""

    __slots__ = ("_granted", "_refused", "_voters", "epoch", "pre_vote")

    def __init__(self, voters: Voters, epoch: int, own_id: int, *, pre_vote: bool) -> None:
        self._voters = voters
        self.epoch = epoch
        self.pre_vote = pre_vote
        self._granted = {own_id}
        self._refused: set[int] = set()

    def count(self, voter_id: int, *, granted: bool) -> None:
        """Count an answer. A voter that answers twice counts once."""
        if voter_id in self._voters:
            (self._granted if granted else self._refused).add(voter_id)

    @property
    def unanswered(self) -> tuple[int, ...]:
        known = self._granted | self._refused
        return tuple(each for each in self._voters.ids if each not in known)

    @property
    def is_lost(self) -> bool:
        """Whether the voters that have not refused are no majority any more."""
        return not self._voters.is_majority(set(self._voters.ids) - self._refused)

    @property
    def is_won(self) -> bool:
        return self._voters.is_majority(self._granted)


def is_log_acceptable(candidate: LogPosition, own: LogPosition) -> bool:
    """Whether the candidate has everything this voter may have helped to commit.

    Raft 5.4.1: the last epoch decides, then the length. Length alone could elect a replica with a
    long tail that no majority ever acknowledged.
    """
    return candidate >= own


def may_vote_for(state: QuorumState, candidate_id: int) -> bool:
    """One vote per epoch; none in an epoch whose leader is known, none while the replica recovers."""
    if state.recovering or state.votes_unknown or state.leader_id is not None:
        return False
    return state.voted_for is None or state.voted_for == candidate_id
