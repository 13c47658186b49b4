"""The quorum state that a replica keeps when its topic changes between raft and fetch mode.

The log, the epoch and the high watermark stay; every leadership ends. The controller makes the change
in one versioned write. Replicas learn of it at different times, so each step is safe while some
replicas are still in the old mode:

raft -> fetch. The controller names a leader for an epoch above every epoch it knows, with
`changing_mode` set and an in-sync set of that leader alone. The named replica asks all replicas for
their votes under raft's rules. A majority of votes proves that it has everything committed, that no
other replica leads that epoch, and that a majority has left raft's elections for good. The leader
commits nothing before the controller accepts an in-sync set of a majority, which clears
`changing_mode`. If the leader fails before that, the controller names another one, which has to win
the votes as well.

fetch -> raft. Allowed only while all replicas are in sync, in the same versioned write. Then every
majority of voters includes a replica with everything committed. Followers have accepted the epoch of
each named leader, so (epoch, end offset) identifies that replica's log as the newest. Every in-sync
replica has been in fetch mode in the epoch of a named leader. So no replica is left that was a
candidate in a later epoch, and a replica that does not know its votes because its disk was replaced
has no vote that could still count.
"""

from dataclasses import replace

from zhumq.consensus.contract import Mode, QuorumState


def state_for_raft(state: QuorumState, epoch: int) -> QuorumState:
    """The quorum state at the start of raft mode: no leader, and no vote in a named leader's epoch."""
    if state.mode is Mode.RAFT:
        return state
    if epoch > state.epoch:
        state = replace(state, epoch=epoch, voted_for=None)
    return replace(state, mode=Mode.RAFT, leader_id=None, votes_unknown=False)


def state_for_fetch(state: QuorumState) -> QuorumState:
    """The quorum state at the start of fetch mode: the vote stays, the controller names the leader."""
    return replace(state, mode=Mode.FETCH)
