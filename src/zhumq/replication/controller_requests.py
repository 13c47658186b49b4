"""Requests that replicas send to the controller; the next metadata image carries the result."""

from typing import Protocol

from zhumq.consensus.contract import InSyncProposal, LeadershipDeclined
from zhumq.model.ids import TopicPartition


class ControllerRequests(Protocol):
    """Batches the replicas' requests to the controller. Called on the event loop, returns at once.

    A request may be lost: the replica repeats it while no later metadata image shows its result.
    """

    def elected(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """The replicas elected this broker leader: publish it in the metadata."""

    def resigned(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """This broker led in this epoch, and no broker leads now: publish it in the metadata."""

    def propose_in_sync(self, topic_partition: TopicPartition, proposal: InSyncProposal) -> None:
        """The leader proposes another in-sync set."""

    def decline_leadership(
        self, topic_partition: TopicPartition, declined: LeadershipDeclined
    ) -> None:
        """A replica that the controller named leader cannot lead: the controller names another one."""

    def report_unreachable(self, broker_id: int) -> None:
        """A broker that was reachable refuses connections: its partitions need other leaders."""


class EmbeddedController:
    """The controller of a single node: the embedded store names its only broker the leader of everything."""

    def elected(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """No effect: the store's partitions are in fetch mode."""

    def resigned(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """No effect: the store's partitions are in fetch mode."""

    def propose_in_sync(self, topic_partition: TopicPartition, proposal: InSyncProposal) -> None:
        """No effect: the only replica is in sync."""

    def decline_leadership(
        self, topic_partition: TopicPartition, declined: LeadershipDeclined
    ) -> None:
        """No effect: no other broker can lead."""

    def report_unreachable(self, broker_id: int) -> None:
        """No effect: there is no other broker."""
