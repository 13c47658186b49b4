"""The controller at work: carries out what `metadata.leadership` decides while this broker is elected."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from zhumq.cluster.store import ControllerFenced, StoreUnavailable, VersionConflict
from zhumq.metadata.changes import BrokerGone, Change
from zhumq.metadata.image import Broker, ClusterImage
from zhumq.metadata.leadership import (
    LogEnds,
    PolicyOf,
    in_batches,
    partitions_without_leader,
    plan_membership,
)
from zhumq.model.ids import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

# How long replicas are given to say how far their logs go. Any in-sync replica may lead, so a slow
# answer costs nothing but the choice among them.
LOG_ENDS_SECONDS_MAX: Final = 0.5
RETRY_SECONDS: Final = 0.2

AskLogEnds = Callable[[Sequence[TopicPartition]], Awaitable[LogEnds]]


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


class Coordinator:
    """A ControllerListener. `run` is a task for as long as the broker lives.

    It keeps nothing between two decisions but who is alive: each is made anew from the picture, so it
    does not matter at which point an earlier controller stopped.
    """

    def __init__(
        self, store: ControllerStore, policy_of: PolicyOf, ask_log_ends: AskLogEnds
    ) -> None:
        self._store = store
        self._policy_of = policy_of
        self._ask_log_ends = ask_log_ends
        self._epoch: int | None = None
        self._live: frozenset[BrokerId] | None = None
        self._brokers: Mapping[BrokerId, Broker] = {}
        self._wake = asyncio.Event()

    def elected(self, epoch: int) -> None:
        self._epoch = epoch
        self._live = None
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

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            epoch, live = self._epoch, self._live
            if epoch is None or live is None:
                continue
            try:
                await self._act(epoch, live)
            except VersionConflict:
                self._wake.set()
            except ControllerFenced as reason:
                logger.info("decided too late: %s", reason)
            except StoreUnavailable as reason:
                logger.warning("cannot publish leaders yet: %s", reason)
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            except Exception:
                logger.exception("the controller failed at a decision; trying again")
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()

    async def _act(self, epoch: int, live: frozenset[BrokerId]) -> None:
        leaderless = partitions_without_leader(self._store.image, live, self._policy_of)
        log_ends = await self._log_ends(leaderless) if leaderless else {}
        image = self._store.image
        published = 0
        gone: list[BrokerId] = []
        # Decided on one picture, and written as long as nobody else changes it in between.
        for batch in in_batches(plan_membership(image, live, self._policy_of, log_ends)):
            image = await self._store.propose(batch, image.version, controller_epoch=epoch)
            gone += [change.broker_id for change in batch if isinstance(change, BrokerGone)]
            published += len(batch)
        if published:
            logger.info(
                "published %d changes of partitions; brokers gone: %s",
                published - len(gone),
                gone or "none",
            )

    async def _log_ends(self, partitions: Sequence[TopicPartition]) -> LogEnds:
        try:
            async with asyncio.timeout(LOG_ENDS_SECONDS_MAX):
                return await self._ask_log_ends(partitions)
        except TimeoutError:
            return {}
