"""Plans requested metadata changes and writes them to the store, with retries on conflicts."""

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from zhumq.cluster.store import MetadataStore, VersionConflict
from zhumq.metadata.changes import Change, Draft, ProducerIdsAllocated, TopicCreated
from zhumq.metadata.image import ClusterImage, ClusterView, Topic
from zhumq.metadata.leadership import CHANGES_PER_PROPOSAL_MAX
from zhumq.metadata.security import SecurityChange, SecurityImage
from zhumq.metadata.topics import (
    NewTopic,
    TopicLimits,
    plan_broker_settings,
    plan_deletion,
    plan_more_partitions,
    plan_settings,
    plan_topic,
)
from zhumq.model.errors import BrokerError
from zhumq.model.ids import ProducerId, TopicPartition
from zhumq.model.settings import SettingsTable

PRODUCER_ID_BLOCK: Final = 1_000
# In one proposal: each may rewrite a node of some kilobytes, and a transaction holds one megabyte.
SECURITY_CHANGES_MAX: Final = 32


async def change_security(
    store: MetadataStore, plan: Callable[[SecurityImage], Sequence[SecurityChange]]
) -> None:
    """Write what the plan finds missing in the current image, until it finds nothing more."""
    while True:
        image = store.image
        changes = plan(image.security)
        if not changes:
            return
        with contextlib.suppress(VersionConflict):
            await store.propose(changes[:SECURITY_CHANGES_MAX], image.version)


class MetadataClient:
    """Writes the metadata changes that clients request of this broker."""

    def __init__(
        self, store: MetadataStore, limits: TopicLimits, new_id: Callable[[], uuid.UUID]
    ) -> None:
        self._store = store
        self._limits = limits
        self._new_id = new_id
        self._producer_ids = range(0)

    async def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | BrokerError]:
        """For each new topic the topic or the error. All valid ones are created in one proposal."""
        ids = [self._new_id() for _ in new_topics]

        def plan(image: ClusterView, index: int) -> Change:
            return plan_topic(image, new_topics[index], ids[index], self._limits)

        results = await self._carry_out(len(new_topics), plan, validate_only=validate_only)
        topics: list[Topic | BrokerError] = []
        for result in results:
            assert isinstance(result, TopicCreated | BrokerError)
            topics.append(result.topic if isinstance(result, TopicCreated) else result)
        return topics

    async def delete_topics(self, names: Sequence[str]) -> list[BrokerError | None]:
        results = await self._carry_out(
            len(names), lambda image, index: plan_deletion(image, names[index])
        )
        return [_error_of(result) for result in results]

    async def add_partitions(
        self,
        growths: Sequence[tuple[str, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> list[BrokerError | None]:
        """Each growth is a topic's name, its new partition count, and the brokers of the new partitions."""

        def plan(image: ClusterView, index: int) -> Change:
            name, count, assignment = growths[index]
            return plan_more_partitions(image, name, count, assignment, self._limits)

        results = await self._carry_out(len(growths), plan, validate_only=validate_only)
        return [_error_of(result) for result in results]

    async def change_settings(
        self,
        name: str,
        new_settings: Callable[[Topic | None], Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace a topic's settings by what the function computes from the current topic."""

        def plan(image: ClusterView, _index: int) -> Change:
            return plan_settings(image, name, new_settings(image.topics.get(name)))

        (result,) = await self._carry_out(1, plan, validate_only=validate_only)
        if isinstance(result, BrokerError):
            raise result

    async def change_broker_settings(
        self,
        who: str,
        new_settings: Callable[[Mapping[str, str]], Mapping[str, str | None]],
        table: SettingsTable,
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace the dynamic settings of one broker, or of all, by what the function computes."""

        def plan(image: ClusterView, _index: int) -> Change:
            before = image.broker_settings.get(who, {})
            return plan_broker_settings(who, new_settings(before), table)

        (result,) = await self._carry_out(1, plan, validate_only=validate_only)
        if isinstance(result, BrokerError):
            raise result

    async def change_partitions(
        self, plans: Mapping[TopicPartition, Callable[[ClusterImage], Change]]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Carry out the plan of each partition. The result is None or the error."""
        results: dict[TopicPartition, BrokerError | None] = {}
        names = list(plans)
        for start in range(0, len(names), CHANGES_PER_PROPOSAL_MAX):
            some = names[start : start + CHANGES_PER_PROPOSAL_MAX]
            while True:
                image = self._store.image
                changes: list[Change] = []
                for name in some:
                    try:
                        changes.append(plans[name](image))
                        results[name] = None
                    except BrokerError as reason:
                        results[name] = reason
                try:
                    if changes:
                        await self._store.propose(changes, image.version)
                except VersionConflict:
                    continue
                break
        return results

    async def change_security(
        self, plan: Callable[[SecurityImage], Sequence[SecurityChange]]
    ) -> None:
        """Write what the plan finds missing in the current image, until it finds nothing more."""
        await change_security(self._store, plan)

    async def next_producer_id(self) -> ProducerId:
        """A new producer id. Ids are allocated in blocks, so few calls cost a write."""
        while not self._producer_ids:
            image = self._store.image
            first = image.next_producer_id
            change = ProducerIdsAllocated(next_producer_id=first + PRODUCER_ID_BLOCK)
            try:
                await self._store.propose([change], image.version)
            except VersionConflict:
                continue
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return ProducerId(producer_id)

    async def _carry_out(
        self,
        count: int,
        plan: Callable[[ClusterView, int], Change],
        *,
        validate_only: bool = False,
    ) -> list[Change | BrokerError]:
        while True:
            image = self._store.image
            # Each request is planned on top of the earlier ones, so that duplicates are refused.
            draft = Draft(image)
            results: list[Change | BrokerError] = []
            for index in range(count):
                try:
                    change = plan(draft, index)
                except BrokerError as reason:
                    results.append(reason)
                    continue
                draft.apply(change)
                results.append(change)
            changes = [result for result in results if not isinstance(result, BrokerError)]
            if not changes or validate_only:
                return results
            try:
                await self._store.propose(changes, image.version)
            except VersionConflict:
                continue
            return results


def _error_of(result: Change | BrokerError) -> BrokerError | None:
    return result if isinstance(result, BrokerError) else None
