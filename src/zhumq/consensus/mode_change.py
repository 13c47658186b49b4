"""What a replica takes along when its topic changes between raft and fetch.

The log, the epoch and the high watermark go on; nobody's leadership does. The coordinator makes the
change in one versioned write, and replicas hear of it at different times, so each step has to be
safe while some are still in the old mode:

raft -> fetch. The coordinator names a leader for an epoch above all it has heard of, with
`changing_mode` set and an in-sync set of that leader alone. The named replica asks all replicas for
their votes, under raft's rules: so it has everything committed, nobody else leads that epoch, and a
majority has left raft's elections for good. It commits nothing before the coordinator has accepted
an in-sync set of a majority (which clears `changing_mode`); if it dies before, another one is named
and has to win as well.

fetch -> raft. Allowed only while all replicas are in sync, in the same versioned write: then every
majority of votes meets a replica that has all that was committed. The epoch of each named leader that
its followers have accepted makes (epoch, end offset) tell whose log that is. Whoever is in sync has been in fetch mode in
the epoch of a named leader: so nobody is left who stood for election in a later epoch, and a replica
that does not know its votes because its disk was replaced has none that could still count.
"""

from dataclasses import replace

from zhumq.consensus.contract import Mode, QuorumState


def state_for_raft(state: QuorumState, epoch: int) -> QuorumState:
    """What to begin raft with: no leader, and no vote in an epoch that was a named leader's."""
    if state.mode is Mode.RAFT:
        return state
    if epoch > state.epoch:
        state = replace(state, epoch=epoch, voted_for=None)
    return replace(state, mode=Mode.RAFT, leader_id=None, votes_unknown=False)


def state_for_fetch(state: QuorumState) -> QuorumState:
    """What to begin fetch mode with: the vote stays, the coordinator will name the leader."""
    return replace(state, mode=Mode.FETCH)
