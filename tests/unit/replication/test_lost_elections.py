"""A leader that resigns for the preferred replica does so again if another replica wins the election."""

import asyncio
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.model.cluster_errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode
from zhumq.replication.preferred_leaders import ELECTIONS_MAX, PreferredLeaders

T0 = TopicPartition("t", 0)
FIRST, SECOND = BrokerId(1), BrokerId(2)


def image(leader: BrokerId, epoch: int, mode: Mode = Mode.RAFT) -> ClusterImage:
    state = PartitionState(
        mode=mode,
        replicas=(FIRST, SECOND),
        leader=leader,
        leader_epoch=LeaderEpoch(epoch),
        in_sync=(FIRST, SECOND),
    )
    topic = Topic(name="t", topic_id=uuid.UUID(int=1), partitions=(state,))
    return ClusterImage(
        version=epoch,
        cluster_id="c",
        controller_id=FIRST,
        brokers={each: Broker(broker_id=each, host="h", port=1) for each in (FIRST, SECOND)},
        topics={"t": topic},
        topics_by_id={topic.topic_id: topic},
    )


class Elections:
    """A cluster with given winners of the elections after the second replica resigns."""

    def __init__(self, *winners: BrokerId) -> None:
        self._winners = list(winners)
        self.image = image(SECOND, 5)
        self.held = 0

    async def transfer_leadership(self, replica_id: int) -> bool:
        assert replica_id == FIRST
        self.held += 1
        won = image(self._winners.pop(0), 5 + self.held)
        asyncio.get_running_loop().call_later(0.01, setattr, self, "image", won)
        return True

    def elect(self) -> Any:
        partitions = cast(
            "Any", {T0: SimpleNamespace(transfer_leadership=self.transfer_leadership)}
        )
        peers = cast(
            "Any", None
        )  # No peer gets a request: the second replica leads on this broker.
        preferred_leaders = PreferredLeaders(SECOND, peers, lambda: self.image, partitions)
        return asyncio.run(preferred_leaders.elect([T0], 10_000))[T0]


@pytest.mark.parametrize("winners", [(FIRST,), (SECOND, FIRST), (SECOND, SECOND, FIRST)])
def test_a_leader_resigns_until_the_preferred_replica_wins(winners: Sequence[BrokerId]) -> None:
    elections = Elections(*winners)
    assert elections.elect() is None
    assert elections.held == len(winners)


def test_a_leader_does_not_resign_for_ever() -> None:
    elections = Elections(*[SECOND] * (ELECTIONS_MAX + 1))
    assert isinstance(elections.elect(), PreferredLeaderNotAvailable)
    assert elections.held == ELECTIONS_MAX


def test_a_partition_that_has_changed_to_fetch_mode_holds_no_election() -> None:
    elections = Elections()
    elections.image = image(SECOND, 5, Mode.FETCH)
    outcome = elections.elect()
    assert isinstance(outcome, PreferredLeaderNotAvailable)
    assert "the controller names its leader" in str(outcome)
    elections.image = image(FIRST, 6, Mode.FETCH)
    assert isinstance(elections.elect(), ElectionNotNeeded)
    assert elections.held == 0
