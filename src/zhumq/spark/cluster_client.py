"""Requests of the source to a cluster: offsets, committed offsets, and what all clients ask for."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from zhumq.client.brokers import REQUEST_SECONDS_MAX, RETRY_SECONDS_MAX, Brokers
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.model.address import Address
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import DeleteGroupsRequest
from zhumq.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from zhumq.protocol.messages.transactions import ListTransactionsRequest

EARLIEST: Final = -2  # a timestamp in ListOffsets, an offset in Spark's JSON; so is LATEST
LATEST: Final = -1
NO_OFFSET: Final = -1


class ClusterClient(Brokers):
    """The brokers as the source asks them."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "zhumq-spark",
        retry_seconds_max: float = RETRY_SECONDS_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        super().__init__(
            bootstrap,
            client_id=client_id,
            retry_seconds_max=retry_seconds_max,
            request_seconds_max=request_seconds_max,
            security=security,
        )

    def partitions(self, topics: Iterable[str] | None) -> dict[str, list[int]]:
        """The partitions of the topics that exist among these, or of all topics for None."""
        names = None if topics is None else sorted(set(topics))
        response = self.retrying(lambda: self.metadata(names), "ask for topics")
        return {
            topic.name: sorted(each.partition_index for each in topic.partitions)
            for topic in response.topics
            if topic.error_code == ErrorCode.NONE and (names is not None or not topic.is_internal)
        }

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, int]:
        """Each partition's first offset at or after a timestamp, or EARLIEST, or LATEST.

        A timestamp after the last record gives NO_OFFSET.
        """
        found: dict[TopicPartition, int] = {}

        def ask_leaders() -> None:
            left = {each: time for each, time in timestamps.items() if each not in found}
            by_leader: dict[Address, list[TopicPartition]] = {}
            for each in left:
                by_leader.setdefault(self.leader_address(each), []).append(each)
            for address, partitions in by_leader.items():
                request = _list_offsets_request(partitions, left, isolation_level)
                response = self.connection(address).ask(ApiKey.LIST_OFFSETS, request)
                for topic in response.topics:
                    for partition in topic.partitions:
                        place = TopicPartition(topic.name, partition.partition_index)
                        self.check(partition.error_code, f"look up an offset of {place}")
                        found[place] = partition.offset

        if timestamps:
            self.retrying(ask_leaders, "look up offsets")
        return found

    def open_transactions(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix that have an open transaction, prepared or not."""
        request = ListTransactionsRequest(
            state_filters=["Ongoing"],
            producer_id_filters=[],
            transactional_id_pattern=f"{re.escape(prefix)}.*",
        )

        def ask() -> list[str]:
            found: set[str] = set()
            for broker in self.metadata([]).brokers:
                connection = self.connection(Address(broker.host, broker.port))
                response = connection.ask(ApiKey.LIST_TRANSACTIONS, request)
                self.check(response.error_code, "list transactions")
                found.update(each.transactional_id for each in response.transaction_states)
            return sorted(each for each in found if each.startswith(prefix))

        return self.retrying(ask, "list transactions")

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets for a group without members."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for place, offset in offsets.items():
            topics.setdefault(place.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=place.partition, committed_offset=offset
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

        def ask() -> None:
            response = self.coordinator(group).ask(ApiKey.OFFSET_COMMIT, request)
            for topic in response.topics:
                for partition in topic.partitions:
                    self.check(partition.error_code, f"commit offsets of group {group!r}")

        self.retrying(ask, f"commit offsets of group {group!r}")

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """All committed offsets of a group."""
        request = OffsetFetchRequest(group_id=group, topics=None)

        def ask() -> dict[TopicPartition, int]:
            doing = f"read the offsets of group {group!r}"
            response = self.coordinator(group).ask(ApiKey.OFFSET_FETCH, request)
            self.check(response.error_code, doing)
            found: dict[TopicPartition, int] = {}
            for topic in response.topics:
                for partition in topic.partitions:
                    self.check(partition.error_code, doing)
                    if partition.committed_offset != NO_OFFSET:
                        place = TopicPartition(topic.name, partition.partition_index)
                        found[place] = partition.committed_offset
            return found

        return self.retrying(ask, f"read the offsets of group {group!r}")

    def delete_group(self, group: str) -> None:
        """Delete a group without members; a group that does not exist is no error."""
        request = DeleteGroupsRequest(groups_names=[group])

        def ask() -> None:
            response = self.coordinator(group).ask(ApiKey.DELETE_GROUPS, request)
            for result in response.results:
                if result.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                    self.check(result.error_code, f"delete group {group!r}")

        self.retrying(ask, f"delete group {group!r}")


def _list_offsets_request(
    places: Iterable[TopicPartition], timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(
            ListOffsetsPartition(partition_index=place.partition, timestamp=timestamps[place])
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
