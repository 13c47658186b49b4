"""The controller at work: carries out what `metadata.leadership` decides while this broker is elected."""

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

# How long replicas are given to say how far their logs go. Any in-sync replica may lead, so a slow
# answer costs nothing but the choice among them.
LOG_ENDS_SECONDS_MAX: Final = 0.5
RETRY_SECONDS: Final = 0.2
LEADERLESS_RETRY_SECONDS: Final = 2.0
BALANCE_AT_ONCE_MAX: Final = 50
BALANCE_RETRY_SECONDS: Final = 1.0

AskLogEnds = Callable[[Sequence[TopicPartition]], Awaitable[LogEnds]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """When leadership goes back to the first replicas by itself."""

    interval_seconds: float
    # Of the partitions that a broker is first for, so many may be led by others.
    tolerated_percent: int


class ControllerStore(Protocol):
    """The store as its controller uses it."""

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
    """A ControllerListener. `run` is a task for as long as the broker lives.

    It keeps nothing between two decisions but who is alive and what to look at: each is made anew from
    the picture, so it does not matter at which point an earlier controller stopped.
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
        # How many replicas topics are to have that may have been made with too few brokers.
        self._copies = copies or {}
        self._balance = balance
        self._balance_at = 0.0  # in the loop's time
        self._epoch: int | None = None
        self._live: frozenset[BrokerId] | None = None
        self._brokers: Mapping[BrokerId, Broker] = {}
        self._topics: Mapping[str, Topic] = {}
        # Topics with a partition that is not in its mode, or not in its place yet.
        self._unsettled: set[str] = set()
        self._wake = asyncio.Event()
        self._again: asyncio.TimerHandle | None = None

    def elected(self, epoch: int) -> None:
        self._epoch = epoch
        self._live = None
        self._balance_later()
        self._wake.set()

    def deposed(self) -> None:
        self._epoch = None

    def live_brokers(self, live: frozenset[BrokerId]) -> None:
        self._live = live
        self._wake.set()

    def image_changed(self, image: ClusterImage) -> None:
        """To be called with every picture: a broker that registered anew leads nothing yet."""
        if image.brokers != self._brokers:
            self._brokers = image.brokers
            self._wake.set()
        before, self._topics = self._topics, image.topics
        for name, topic in image.topics.items():
            if before.get(name) is not topic:
                self._look_at(topic)
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
                await self._act(epoch, live)
                await self._restore_balance(epoch)
            except VersionConflict:
                self._wake.set()
            except ControllerFenced as reason:
                logger.info("decided too late: %s", reason)
                await asyncio.sleep(RETRY_SECONDS)
            except StoreUnavailable as reason:
                logger.warning("cannot publish leaders yet: %s", reason)
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            except Exception:
                logger.exception("the controller failed at a decision; trying again")
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()

    @property
    def _balance_seconds(self) -> float | None:
        """How long until the balance of leaders is looked at."""
        if self._epoch is None or self._balance is None:
            return None
        return max(self._balance_at - asyncio.get_running_loop().time(), 0.0)

    def _balance_later(self, seconds: float | None = None) -> None:
        if self._balance is not None:
            wait = self._balance.interval_seconds if seconds is None else seconds
            self._balance_at = asyncio.get_running_loop().time() + wait

    async def _restore_balance(self, epoch: int) -> None:
        """From time to time, a few at once: leadership back to the first replicas."""
        if self._balance is None or asyncio.get_running_loop().time() < self._balance_at:
            return
        if self._unsettled:
            self._balance_later(BALANCE_RETRY_SECONDS)
            return
        image = self._store.image
        tolerated = self._balance.tolerated_percent
        changes = list(
            islice(plan_preferred_leaders(image, tolerated_percent=tolerated), BALANCE_AT_ONCE_MAX)
        )
        # As long as there is something to do, it goes on when these are done.
        self._balance_later(BALANCE_RETRY_SECONDS if changes else None)
        if changes:
            await self._store.propose(changes, image.version, controller_epoch=epoch)
            logger.info("gave %d partitions back to their first replicas", len(changes))

    def _look_again_later(self) -> None:
        """Whoever declined to lead may be able to after a while; no picture tells of that."""
        if self._again is None:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(LEADERLESS_RETRY_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._wake.set()

    def _look_at(self, topic: Topic) -> None:
        if any(
            state.mode is Mode.FETCH and state.leader == NO_BROKER for state in topic.partitions
        ):
            self._look_again_later()
        mode = self._policy_of(topic).mode
        if all(is_settled(state, mode) for state in topic.partitions):
            self._unsettled.discard(topic.name)
        else:
            self._unsettled.add(topic.name)

    async def _act(self, epoch: int, live: frozenset[BrokerId]) -> None:
        """Publish what follows from the picture."""
        leaderless = partitions_without_leader(self._store.image, live)
        log_ends = await self._log_ends(leaderless) if leaderless else {}
        image = self._store.image
        published = 0
        gone: list[BrokerId] = []

        def bytes_of(name: str) -> int:
            return topic_bytes(image.topics[name])

        # Decided on one picture, and written as long as nobody else changes it in between.
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
            self._look_again_later()

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
