"""Claims: which group reads a topic point-to-point."""

import asyncio

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_state import DeliveryStateClient
from zhumq.metadata.image import Topic
from zhumq.model.ids import SHARE_GROUP_STATE_TOPIC
from zhumq.protocol.messages.delivery_state import (
    ClaimTopicRequest,
    ClaimTopicResponse,
    ListClaimsRequest,
    ListClaimsResponse,
)
from zhumq.share.persisted import read_claim
from zhumq.share.subscription import Claim, SubscriptionMode


class Claims:
    """A claim is kept in the shard of its topic. It ends when the topic or the group is deleted."""

    def __init__(self, states: DeliveryStateClient, store: MetadataStore) -> None:
        self._states = states
        self._store = store

    async def claim(self, topic: Topic, group: str, mode: SubscriptionMode) -> Claim | None:
        """Claim the topic durably if no group has; returns the claim in force."""
        return await self._ask(
            ClaimTopicRequest(
                topic=topic.name, topic_id=topic.topic_id, group_id=group, mode=mode.value
            )
        )

    async def of_topic(self, topic: Topic) -> Claim | None:
        return await self._ask(ClaimTopicRequest(topic=topic.name, topic_id=topic.topic_id))

    async def release(self, topic: Topic, group: str = "") -> Claim | None:
        """Release this group's claim of the topic (empty: any group's); returns the claim in force afterwards."""
        return await self._ask(
            ClaimTopicRequest(
                topic=topic.name, topic_id=topic.topic_id, group_id=group, gives_up=True
            )
        )

    async def of_group(self, group: str) -> list[Claim]:
        """The claims of one group, on all brokers."""
        if SHARE_GROUP_STATE_TOPIC not in self._store.image.topics:
            return []  # There are no claims yet.
        request = ListClaimsRequest(group_id=group)
        return self._of_existing_topics(await self._states.ask_all(request, ListClaimsResponse))

    async def local(self) -> list[Claim]:
        """The claims in the shards of this broker."""
        return self._of_existing_topics(
            await self._states.ask_local(ListClaimsRequest(), ListClaimsResponse)
        )

    async def release_all(self, group: str) -> None:
        topics = self._store.image.topics
        await asyncio.gather(
            *(self.release(topics[claim.topic], group) for claim in await self.of_group(group))
        )

    async def _ask(self, request: ClaimTopicRequest) -> Claim | None:
        answer = await self._states.ask(request.topic, request, ClaimTopicResponse)
        return read_claim(request.topic, answer.group_id, answer.mode, request.topic_id)

    def _of_existing_topics(self, answers: list[ListClaimsResponse]) -> list[Claim]:
        """The claims whose topics exist."""
        topics = self._store.image.topics
        found = (
            read_claim(each.topic, each.group_id, each.mode, each.topic_id)
            for answer in answers
            for each in answer.claims
        )
        return [
            claim
            for claim in found
            if claim is not None
            and claim.topic in topics
            and claim.is_of(topics[claim.topic].topic_id)
        ]
