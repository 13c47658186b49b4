"""A compacted topic of one partition as a table: the newest value of each key."""

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from zhumq.client.errors import ClusterFailed
from zhumq.client.kafka_settings import security_settings
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.model.errors import ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.spark.batching import record_batches
from zhumq.spark.cluster_client import EARLIEST, LATEST, ClusterClient
from zhumq.spark.columns import KEY, VALUE, Selection
from zhumq.spark.fetcher import FetchSettings, RangeFetcher

BROKERS_DEFAULT: Final = -1  # the broker's default.replication.factor
REQUEST_SECONDS_MAX: Final = 30.0
STABLE_SECONDS_MAX: Final = 60.0
STABLE_POLL_SECONDS: Final = 0.01


class TopicNotMade(ZhumqError):
    """A topic of the sink could not be created."""


class TopicTable:
    """A process reads the topic once, then only what is new."""

    def __init__(self, place: TopicPartition, *, read_committed: bool = False) -> None:
        """`read_committed`: a read waits for the end of the transactions that are open when it begins."""
        self._place = place
        self._read_committed = read_committed
        self._topic_id: str | None = None
        self._position = 0
        self._values: dict[str, bytes] = {}

    def read(self, client: ClusterClient) -> Mapping[str, bytes]:
        """The newest value of each key."""
        place = self._place
        end = client.list_offsets({place: LATEST})[place]
        topic_id = client.topic_id(place.topic)
        if topic_id != self._topic_id or end < self._position:
            self._topic_id, self._values = topic_id, {}
            self._position = client.list_offsets({place: EARLIEST})[place]
        if self._position < end:
            if self._read_committed:
                self._wait_until_stable(client, end)
            self._read_to(client, end)
        return self._values

    def _wait_until_stable(self, client: ClusterClient, end: int) -> None:
        place = self._place
        deadline = time.monotonic() + STABLE_SECONDS_MAX
        while (
            client.list_offsets({place: LATEST}, isolation_level=Isolation.READ_COMMITTED)[place]
            < end
        ):
            if time.monotonic() > deadline:
                raise ClusterFailed(
                    f"a transaction in {place} is open for more than {STABLE_SECONDS_MAX:.0f} s"
                )
            time.sleep(STABLE_POLL_SECONDS)

    def _read_to(self, client: ClusterClient, end: int) -> None:
        settings = FetchSettings(fail_on_data_loss=False, read_committed=self._read_committed)
        fetcher = RangeFetcher(client, self._place, self._position, end, settings)
        selection = Selection(
            topic=self._place.topic,
            partition=self._place.partition,
            columns=(KEY, VALUE),
            first_offset=self._position,
            until_offset=end,
        )
        for batch in record_batches(fetcher.sections(), selection):
            keys, values = (column.to_pylist() for column in batch.columns)
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    continue
                name = key.decode(errors="replace")
                if value is None:
                    self._values.pop(name, None)
                else:
                    self._values[name] = value
        self._position = end


def ensure_topic(
    bootstrap: str,
    topic: str,
    purpose: str,
    settings: Mapping[str, str],
    *,
    security: ClientSecurity = PLAINTEXT,
) -> None:
    """Create a topic with one partition if it does not exist. Raises TopicNotMade, which names the purpose."""
    with ClusterClient(bootstrap, security=security) as client:
        if client.partitions([topic]):
            return
    of_client: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(of_client | security_settings(security))
    new = NewTopic(topic, 1, BROKERS_DEFAULT, config=dict(settings))
    made = admin.create_topics([new], request_timeout=REQUEST_SECONDS_MAX)
    try:
        made[topic].result(2 * REQUEST_SECONDS_MAX)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            reason = error.args[0].str()
            raise TopicNotMade(f"cannot create the topic {topic!r}, {purpose}: {reason}") from None
