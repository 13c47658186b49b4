"""The committed positions of a group's partitions, as far as no open transaction may still change them."""

from collections.abc import Collection
from typing import Final

from zhumq.client.brokers import Brokers
from zhumq.client.security import ClientSecurity
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic

SECONDS_MAX: Final = 5.0  # how long a lookup waits for the coordinator
NO_OFFSET: Final = -1


class StablePositions:
    """Asks the coordinator of one group."""

    def __init__(self, group: str, bootstrap: str, security: ClientSecurity) -> None:
        self._group = group
        self._brokers = Brokers(
            bootstrap,
            client_id="zhumq-positions",
            retry_seconds_max=SECONDS_MAX,
            request_seconds_max=SECONDS_MAX,
            security=security,
        )

    def close(self) -> None:
        self._brokers.close()

    def find(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The position of each partition, None without one. Those with an open transaction are left out (KIP-447).

        Raises ClusterFailed.
        """
        topics: dict[str, OffsetFetchRequestTopic] = {}
        for place in places:
            topic = topics.setdefault(place.topic, OffsetFetchRequestTopic(name=place.topic))
            topic.partition_indexes.append(place.partition)
        request = OffsetFetchRequest(
            group_id=self._group, topics=list(topics.values()), require_stable=True
        )
        doing = f"read the positions of group {self._group!r}"

        def ask() -> dict[TopicPartition, int | None]:
            response = self._brokers.coordinator(self._group).ask(ApiKey.OFFSET_FETCH, request)
            self._brokers.check(response.error_code, doing)
            found: dict[TopicPartition, int | None] = {}
            for topic in response.topics:
                for each in topic.partitions:
                    if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                        continue
                    self._brokers.check(each.error_code, doing)
                    place = TopicPartition(topic.name, each.partition_index)
                    offset = each.committed_offset
                    found[place] = None if offset == NO_OFFSET else offset
            return found

        return self._brokers.retrying(ask, doing)
