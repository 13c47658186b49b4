"""Collects AlterPartition requests and election results of replicas and writes them in batches."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeAlias

from zhumq.cluster.controller import LOG_ENDS_SECONDS_MAX, AskLogEnds
from zhumq.cluster.store import StoreUnavailable
from zhumq.cluster.znodes import Operation
from zhumq.cluster.zookeeper_layout import topic_bytes
from zhumq.consensus.contract import InSyncProposal, LeadershipDeclined
from zhumq.metadata.alter_partition import (
    OtherLeaderRequest,
    plan_in_sync,
    plan_other_leader,
    plan_replacements,
)
from zhumq.metadata.changes import Change
from zhumq.metadata.image import ClusterImage
from zhumq.metadata.leadership import (
    CHANGES_PER_PROPOSAL_MAX,
    ElectionResult,
    InSyncRequest,
    LogEnds,
    PolicyOf,
    Resignation,
    existing_partition,
    in_batches,
    partitions_without_leader,
    plan_election_results,
    plan_resignations,
)
from zhumq.model.errors import BrokerError, ZhumqError
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition

logger = logging.getLogger(__name__)

# How long requests are collected into one batch: a thousand partitions elect leaders in less.
GATHER_SECONDS: Final = 0.005
RETRY_SECONDS: Final = 0.2

_Request: TypeAlias = ElectionResult | Resignation | InSyncProposal | LeadershipDeclined


class _NothingToWrite(ZhumqError):
    """Every request is either fulfilled already or out of date."""


class AlterPartitionStore(Protocol):
    """The part of the store that the writer uses."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def broker_epoch(self) -> int | None: ...

    async def transact(
        self, plan: Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]
    ) -> ClusterImage: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    requests: Mapping[TopicPartition, _Request]
    log_ends: LogEnds


class AlterPartitionWriter:
    """Writes the newest request of each partition. `run` is a task for the lifetime of the broker.

    The answer to a request is the next metadata image. A refused or outdated request is dropped: the
    replica sends it again if it still needs it.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        store: AlterPartitionStore,
        policy_of: PolicyOf,
        ask_log_ends: AskLogEnds,
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._policy_of = policy_of
        self._ask_log_ends = ask_log_ends
        self._gathered: dict[TopicPartition, _Request] = {}
        self._unreachable: dict[BrokerId, int] = {}  # by id: the broker epoch
        self._wake = asyncio.Event()

    def elected(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """The replicas of a raft partition elected this broker as leader."""
        result = ElectionResult(leader=self._broker_id, leader_epoch=LeaderEpoch(leader_epoch))
        self._add_request(topic_partition, result)

    def resigned(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """This broker led a raft partition in this epoch, and no broker leads it now."""
        resignation = Resignation(leader=self._broker_id, leader_epoch=LeaderEpoch(leader_epoch))
        self._add_request(topic_partition, resignation)

    def propose_in_sync(self, topic_partition: TopicPartition, proposal: InSyncProposal) -> None:
        """The leader of a fetch partition requests another in-sync set."""
        self._add_request(topic_partition, proposal)

    def decline_leadership(
        self, topic_partition: TopicPartition, declined: LeadershipDeclined
    ) -> None:
        """A replica that was named leader cannot lead."""
        self._add_request(topic_partition, declined)

    def report_unreachable(self, broker_id: int) -> None:
        """A broker is unreachable although its session has not ended: most likely it is dead.

        An unnecessary change of leader is safe, so its partitions do not wait for the session.
        """
        broker = self._store.image.brokers.get(BrokerId(broker_id))
        if broker is not None:
            self._unreachable[broker.broker_id] = broker.epoch
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._wake.clear()
            unreachable, self._unreachable = self._unreachable, {}
            for broker_id, epoch in unreachable.items():
                await self._replace(broker_id, epoch)
            gathered, self._gathered = self._gathered, {}
            names = list(gathered)
            for start in range(0, len(names), CHANGES_PER_PROPOSAL_MAX):
                some = names[start : start + CHANGES_PER_PROPOSAL_MAX]
                await self._carry_out({name: gathered[name] for name in some})

    def _add_request(self, topic_partition: TopicPartition, request: _Request) -> None:
        self._gathered[topic_partition] = request
        self._wake.set()

    async def _carry_out(self, requests: dict[TopicPartition, _Request]) -> None:
        # Naming a leader needs answers from replicas; elections and in-sync sets must not wait for them.
        leaderless = [
            name for name, request in requests.items() if isinstance(request, LeadershipDeclined)
        ]
        quick = {
            name: request
            for name, request in requests.items()
            if not isinstance(request, LeadershipDeclined)
        }
        await self._write(_Batch(requests=quick, log_ends={}))
        if leaderless:
            log_ends = await self._log_ends(leaderless)
            named = {name: requests[name] for name in leaderless}
            await self._write(_Batch(requests=named, log_ends=log_ends))

    async def _write(self, batch: _Batch) -> None:
        if not batch.requests:
            return
        try:
            # Each round plans on the next image, until no request is left that did not fit.
            while await self._transact(lambda image: self._changes(image, batch)):
                pass
        except StoreUnavailable as reason:
            logger.warning("cannot write partition changes yet: %s", reason)
            await asyncio.sleep(RETRY_SECONDS)
            for name, request in batch.requests.items():
                self._gathered.setdefault(name, request)
            self._wake.set()

    async def _replace(self, broker_id: BrokerId, epoch: int) -> None:
        """Name new leaders for the partitions of an unreachable broker."""
        image = self._store.image
        others = frozenset(image.brokers) - {broker_id}
        leaderless = [
            name
            for name in partitions_without_leader(image, others)
            if existing_partition(image, name).leader == broker_id
        ]
        if not leaderless:
            return
        log_ends = await self._log_ends(leaderless)

        def changes(image: ClusterImage) -> list[Change]:
            named = plan_replacements(image, broker_id, epoch, self._policy_of, log_ends)
            return list(islice(named, CHANGES_PER_PROPOSAL_MAX))

        try:
            while await self._transact(changes):
                logger.info("broker %d is unreachable: named other leaders", broker_id)
        except StoreUnavailable as reason:
            # The end of its session has the same effect, a little later.
            logger.warning(
                "cannot name new leaders for the partitions of broker %d: %s", broker_id, reason
            )

    async def _transact(self, changes_of: Callable[[ClusterImage], list[Change]]) -> bool:
        """Write the changes planned on the newest image. False if there are none."""

        def plan(image: ClusterImage) -> tuple[Sequence[Change], Sequence[Operation]]:
            changes = changes_of(image)
            if not changes:
                raise _NothingToWrite
            return next(in_batches(changes, lambda name: topic_bytes(image.topics[name]))), ()

        try:
            await self._store.transact(plan)
        except _NothingToWrite:
            return False
        except StoreUnavailable:
            raise
        except Exception:
            # Whatever failed, replicas repeat the requests that they still need.
            logger.exception("cannot write the partition changes that replicas request")
            await asyncio.sleep(RETRY_SECONDS)
            return False
        return True

    async def _log_ends(self, partitions: Sequence[TopicPartition]) -> LogEnds:
        try:
            async with asyncio.timeout(LOG_ENDS_SECONDS_MAX):
                return await self._ask_log_ends(partitions)
        except TimeoutError:
            return {}

    def _changes(self, image: ClusterImage, batch: _Batch) -> list[Change]:
        """The changes that the requests make to this image, at most one per partition."""
        changes: list[Change] = []
        results: dict[TopicPartition, ElectionResult] = {}
        resignations: dict[TopicPartition, Resignation] = {}
        for name, request in batch.requests.items():
            if isinstance(request, ElectionResult):
                results[name] = request
                continue
            if isinstance(request, Resignation):
                resignations[name] = request
                continue
            try:
                change = self._change(image, name, request, batch.log_ends)
            except BrokerError as reason:
                logger.debug("%s: a request was refused: %s", name, reason)
                continue
            if change is not None:
                changes.append(change)
        return [
            *changes,
            *plan_election_results(image, results),
            *plan_resignations(image, resignations),
        ]

    def _change(
        self,
        image: ClusterImage,
        name: TopicPartition,
        request: InSyncProposal | LeadershipDeclined,
        log_ends: LogEnds,
    ) -> Change | None:
        existing_partition(image, name)  # Raises if the topic is gone.
        policy = self._policy_of(image.topics[name.topic])
        if isinstance(request, LeadershipDeclined):
            return plan_other_leader(
                image, name, other_leader_request(request), policy, log_ends.get(name, {})
            )
        epoch = self._store.broker_epoch
        if epoch is None:
            return None
        return plan_in_sync(image, name, in_sync_request(request, epoch), policy)


def in_sync_request(proposal: InSyncProposal, broker_epoch: int) -> InSyncRequest:
    """The metadata request for a replica's proposal."""
    return InSyncRequest(
        broker_id=BrokerId(proposal.leader_id),
        broker_epoch=broker_epoch,
        leader_epoch=LeaderEpoch(proposal.epoch),
        partition_epoch=proposal.version,
        in_sync=tuple(BrokerId(each) for each in sorted(proposal.in_sync)),
    )


def other_leader_request(declined: LeadershipDeclined) -> OtherLeaderRequest:
    """The metadata request of a replica that cannot lead."""
    return OtherLeaderRequest(
        broker_id=BrokerId(declined.replica_id),
        leader_epoch=LeaderEpoch(declined.epoch),
        partition_epoch=declined.version,
        damaged=declined.damaged,
    )
