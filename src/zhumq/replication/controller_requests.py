"""What replication asks of the cluster; an answer is the next picture."""

from typing import Protocol

from zhumq.consensus.contract import InSyncProposal, LeadershipDeclined
from zhumq.model.ids import TopicPartition


class ControllerRequests(Protocol):
    """Gathers what replicas ask for, and has it decided. Called on the event loop, returns at once.

    Nothing is promised: a wish that does not show in a later picture is made again.
    """

    def elected(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """This broker was elected leader by the replicas: let everybody know."""

    def propose_in_sync(self, topic_partition: TopicPartition, proposal: InSyncProposal) -> None:
        """The leader wants another in-sync set."""

    def decline_leadership(
        self, topic_partition: TopicPartition, wanted: LeadershipDeclined
    ) -> None:
        """A replica was named leader and cannot lead: somebody else has to be named."""

    def report_unreachable(self, broker_id: int) -> None:
        """A broker that was there takes no connections any more: what it led needs other leaders."""
