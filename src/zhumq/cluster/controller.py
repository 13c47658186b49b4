"""Writes the decisions of `metadata.leadership` while this broker is the elected controller."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from zhumq.cluster.store import ControllerFenced, StoreUnavailable, VersionConflict
from zhumq.cluster.zookeeper_layout import topic_bytes
from zhumq.metadata.changes import BrokerGone, Change
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, Topic
from zhumq.metadata.leadership import (
    LogEnds,
    PolicyOf,
    in_batches,
    partitions_without_leader,
    plan_membership,
    plan_preferred_leaders,
)
from zhumq.metadata.modes import is_settled, plan_steps
from zhumq.metadata.reassignment import plan_more_copies
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.model.replication_mode import Mode

logger = logging.getLogger(__name__)

# How long the controller waits for replicas to report their log ends. Any in-sync replica may lead,
# so a late answer only narrows the choice.
LOG_ENDS_SECONDS_MAX: Final = 0.5
RETRY_SECONDS: Final = 0.2
LEADERLESS_RETRY_SECONDS: Final = 2.0
BALANCE_AT_ONCE_MAX: Final = 50
BALANCE_RETRY_SECONDS: Final = 1.0

AskLogEnds = Callable[[Sequence[TopicPartition]], Awaitable[LogEnds]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """When the controller elects preferred leaders by itself."""

    interval_seconds: float
    # The share of a broker's preferred partitions that other brokers may lead.
    tolerated_percent: int


class ControllerStore(Protocol):
    """The part of the store that the controller uses."""

    @property
    def image(self) -> ClusterImage: ...

    async def propose(
        self,
        changes: Sequence[Change],
        expected_version: int,
        *,
        controller_epoch: int | None = None,
    ) -> ClusterImage: ...


class Controller:
    """A ControllerListener. `run` is a task for the lifetime of the broker.

    Between two decisions it keeps only the live brokers and the topics to check. Each decision is
    made from the metadata image, so it does not matter where an earlier controller stopped.
    """

    def __init__(
        self,
        store: ControllerStore,
        policy_of: PolicyOf,
        ask_log_ends: AskLogEnds,
        balance: Balance | None = None,
        copies: Mapping[str, int] | None = None,
    ) -> None:
        self._store = store
        self._policy_of = policy_of
        self._ask_log_ends = ask_log_ends
        # Target replication factors of topics that may have been created with too few brokers.
        self._copies = copies or {}
        self._balance = balance
        self._balance_at = 0.0  # in the loop's time
        self._epoch: int | None = None
        self._live: frozenset[BrokerId] | None = None
        self._brokers: Mapping[BrokerId, Broker] = {}
        self._topics: Mapping[str, Topic] = {}
        # Topics with a partition that is not yet in its target mode or on its target replicas.
        self._unsettled: set[str] = set()
        self._wake = asyncio.Event()
        self._retry_timer: asyncio.TimerHandle | None = None

    def elected(self, epoch: int) -> None:
        self._epoch = epoch
        self._live = None
        self._schedule_balance()
        self._wake.set()

    def deposed(self) -> None:
        self._epoch = None

    def live_brokers(self, live: frozenset[BrokerId]) -> None:
        self._live = live
        self._wake.set()

    def on_image_changed(self, image: ClusterImage) -> None:
        """Call with every new image: a broker that registered again leads nothing yet."""
        if image.brokers != self._brokers:
            self._brokers = image.brokers
            self._wake.set()
        before, self._topics = self._topics, image.topics
        for name, topic in image.topics.items():
            if before.get(name) is not topic:
                self._check_topic(topic)
                if name in self._copies:
                    self._wake.set()
        self._unsettled.intersection_update(image.topics)
        if self._unsettled:
            self._wake.set()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._balance_seconds):
                    await self._wake.wait()
            self._wake.clear()
            epoch, live = self._epoch, self._live
            if epoch is None or live is None:
                continue
            try:
                await self._publish_changes(epoch, live)
                await self._restore_balance(epoch)
            except VersionConflict:
                self._wake.set()
            except ControllerFenced as reason:
                logger.info("a decision was fenced: %s", reason)
                await asyncio.sleep(RETRY_SECONDS)
            except StoreUnavailable as reason:
                logger.warning("cannot publish leaders yet: %s", reason)
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            except Exception:
                logger.exception("the controller failed to decide; trying again")
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()

    @property
    def _balance_seconds(self) -> float | None:
        """Time until the next check of the leader balance."""
        if self._epoch is None or self._balance is None:
            return None
        return max(self._balance_at - asyncio.get_running_loop().time(), 0.0)

    def _schedule_balance(self, seconds: float | None = None) -> None:
        if self._balance is not None:
            wait = self._balance.interval_seconds if seconds is None else seconds
            self._balance_at = asyncio.get_running_loop().time() + wait

    async def _restore_balance(self, epoch: int) -> None:
        """Elect preferred leaders periodically, a few partitions at a time."""
        if self._balance is None or asyncio.get_running_loop().time() < self._balance_at:
            return
        if self._unsettled:
            self._schedule_balance(BALANCE_RETRY_SECONDS)
            return
        image = self._store.image
        tolerated = self._balance.tolerated_percent
        changes = list(
            islice(plan_preferred_leaders(image, tolerated_percent=tolerated), BALANCE_AT_ONCE_MAX)
        )
        # Continue soon while there are changes.
        self._schedule_balance(BALANCE_RETRY_SECONDS if changes else None)
        if changes:
            await self._store.propose(changes, image.version, controller_epoch=epoch)
            logger.info("elected the preferred leaders of %d partitions", len(changes))

    def _retry_later(self) -> None:
        """A replica that declined to lead may be able to lead later; no image reports that."""
        if self._retry_timer is None:
            loop = asyncio.get_running_loop()
            self._retry_timer = loop.call_later(LEADERLESS_RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._wake.set()

    def _check_topic(self, topic: Topic) -> None:
        if any(
            state.mode is Mode.FETCH and state.leader == NO_BROKER for state in topic.partitions
        ):
            self._retry_later()
        mode = self._policy_of(topic).mode
        if all(is_settled(state, mode) for state in topic.partitions):
            self._unsettled.discard(topic.name)
        else:
            self._unsettled.add(topic.name)

    async def _publish_changes(self, epoch: int, live: frozenset[BrokerId]) -> None:
        """Write the changes that the image and the live brokers require."""
        leaderless = partitions_without_leader(self._store.image, live)
        log_ends = await self._log_ends(leaderless) if leaderless else {}
        image = self._store.image
        published = 0
        gone: list[BrokerId] = []

        def bytes_of(name: str) -> int:
            return topic_bytes(image.topics[name])

        # Decided on one image, and written as long as no other broker changes it in between.
        planned = plan_membership(image, live, self._policy_of, log_ends)
        for batch in in_batches(planned, bytes_of):
            image = await self._store.propose(batch, image.version, controller_epoch=epoch)
            gone += [change.broker_id for change in batch if isinstance(change, BrokerGone)]
            published += len(batch)
        for batch in in_batches(self._steps(image), bytes_of):
            image = await self._store.propose(batch, image.version, controller_epoch=epoch)
            published += len(batch)
        if published:
            logger.info(
                "published %d changes of partitions; brokers gone: %s",
                published - len(gone),
                gone or "none",
            )
        if leaderless and partitions_without_leader(image, live):
            self._retry_later()

    def _steps(self, image: ClusterImage) -> Iterator[Change]:
        for name in sorted(self._unsettled):
            topic = image.topics.get(name)
            if topic is not None:
                yield from plan_steps(image, topic, self._policy_of(topic))
        for name, copies in self._copies.items():
            topic = image.topics.get(name)
            if topic is not None and name not in self._unsettled:
                yield from plan_more_copies(image, topic, copies)

    async def _log_ends(self, partitions: Sequence[TopicPartition]) -> LogEnds:
        try:
            async with asyncio.timeout(LOG_ENDS_SECONDS_MAX):
                return await self._ask_log_ends(partitions)
        except TimeoutError:
            return {}
