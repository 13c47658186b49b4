"""Checks the ids of schemas of produced messages, on every broker that leads a topic with schema.validation."""

import asyncio
import logging

from zhumq.coordinators.changed_settings import ChangedSettings
from zhumq.coordinators.schema_ids import PLACE
from zhumq.coordinators.schema_route import RoutedSchemaIds
from zhumq.host.clock import Clock
from zhumq.metadata.image import ClusterImage
from zhumq.model.errors import BrokerError, InvalidRecord, NotEnoughReplicas
from zhumq.model.ids import TopicPartition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.schemas.known_ids import KnownIds
from zhumq.schemas.subject_ids import ANY_SUBJECT, SubjectId
from zhumq.storage.schema_ids import UsedIds

logger = logging.getLogger(__name__)


class SchemaValidation:
    """A `KnownSchemas` for all partitions of this broker.

    An append waits for nothing: one with an id that is not known yet is refused with a retriable error while the
    registry is asked, and its producer sends it again. That happens once for each id on each broker.
    """

    def __init__(self, replicas: ReplicaManager, routed: RoutedSchemaIds, clock: Clock) -> None:
        self._replicas = replicas
        self._routed = routed
        self._clock = clock
        self._known = KnownIds()
        self._settings = ChangedSettings()
        self._asking: asyncio.Task[None] | None = None
        self._is_failing = False
        self.refused = 0
        replicas.watch_leadership(self._on_leadership)

    def apply(self, image: ClusterImage) -> None:
        """The settings of topics may have changed. Called after the partitions have got them."""
        for topic_partition in self._settings.apply(image):
            self._serve(topic_partition)

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def _on_leadership(self, topic_partition: TopicPartition, _leads: bool, _epoch: int) -> None:
        self._serve(topic_partition)

    def _serve(self, topic_partition: TopicPartition) -> None:
        partition = self._replicas.find(*topic_partition)
        if partition is not None and partition.needs_schemas:
            partition.use_schemas(self)

    # Called by logs

    def check(self, topic: str, used: UsedIds, *, any_subject: bool) -> None:
        places: dict[SubjectId, int] = {}  # with the first record that has the id
        for part, ids in (("value", used.of_values), ("key", used.of_keys)):
            subject = ANY_SUBJECT if any_subject else f"{topic}-{part}"
            places.update(((subject, id_), index) for id_, index in ids.items())
        verdict = self._known.look_up(places, self._clock.monotonic_ms())
        if self._known.has_questions and self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        if verdict.unregistered:
            self.refused += 1
            first = min(verdict.unregistered, key=places.__getitem__)
            subject, id_ = first
            where = f"in subject {subject!r}" if subject else "in any subject"
            raise InvalidRecord(
                f"record {places[first]} has the id {id_} of a schema, which is not registered {where}"
                " (schema.validation)",
                tuple(sorted({places[each] for each in verdict.unregistered})),
            )
        if verdict.unknown:
            raise NotEnoughReplicas(
                f"{topic}: whether schema {verdict.unknown[0][1]} is registered is being looked up"
            )

    # Asking

    async def _ask(self) -> None:
        try:
            while self._known.has_questions:
                question = self._known.next_question()
                try:
                    # Without the topic there is no registry, and no schema.
                    asked = question if PLACE.topic in self._settings.topics else ()
                    registered = await self._routed.registered(asked) if asked else set()
                except BrokerError as reason:
                    self._known.fail()
                    if not self._is_failing:
                        self._is_failing = True
                        logger.warning(
                            "which schemas are registered cannot be looked up: %s", reason
                        )
                else:
                    self._is_failing = False
                    self._known.answer(question, registered, self._clock.monotonic_ms())
        finally:
            self._asking = None
