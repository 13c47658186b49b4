"""What replicas ask of the cluster, gathered for a moment and written as one change."""

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
    existing_partition,
    in_batches,
    partitions_without_leader,
    plan_election_results,
)
from zhumq.model.errors import BrokerError, ZhumqError
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition

logger = logging.getLogger(__name__)

# In which wishes come together: an election of a thousand partitions is over in less.
GATHER_SECONDS: Final = 0.005
RETRY_SECONDS: Final = 0.2

_Request: TypeAlias = ElectionResult | InSyncProposal | LeadershipDeclined


class _NothingToWrite(ZhumqError):
    """All that was wished for is so already, or too late."""


class AlterPartitionStore(Protocol):
    """The store as replicas' wishes use it."""

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
    """The newest wish of each partition counts. `run` is a task for as long as the broker lives.

    The answer to a wish is the next picture. One that is refused, or comes too late, is dropped: the
    replica asks again if it still wants it.
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
        self._unreachable: dict[BrokerId, int] = {}  # with the epoch of their registrations
        self._wake = asyncio.Event()

    def elected(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """The replicas of a raft partition have elected this broker."""
        vote = ElectionResult(leader=self._broker_id, leader_epoch=LeaderEpoch(leader_epoch))
        self._add_request(topic_partition, vote)

    def propose_in_sync(self, topic_partition: TopicPartition, proposal: InSyncProposal) -> None:
        """A leader of a fetch partition asks for another in-sync set."""
        self._add_request(topic_partition, proposal)

    def decline_leadership(
        self, topic_partition: TopicPartition, wanted: LeadershipDeclined
    ) -> None:
        """A replica that was named cannot lead."""
        self._add_request(topic_partition, wanted)

    def report_unreachable(self, broker_id: int) -> None:
        """A broker cannot be reached, though its session has not ended: most likely it is dead.

        A leader more than was needed does no harm, so its partitions do not wait for the session.
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
        # Elections and in-sync sets must not wait for the answers that the naming of a leader needs.
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
            # What did not fit is still wished for on the next picture, and nothing else is.
            while await self._transact(lambda image: self._changes(image, batch)):
                pass
        except StoreUnavailable as reason:
            logger.warning("cannot tell the cluster yet: %s", reason)
            await asyncio.sleep(RETRY_SECONDS)
            for name, request in batch.requests.items():
                self._gathered.setdefault(name, request)
            self._wake.set()

    async def _replace(self, broker_id: BrokerId, epoch: int) -> None:
        """Other leaders for what a broker led that cannot be reached."""
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
                logger.info("broker %d cannot be reached: named other leaders", broker_id)
        except StoreUnavailable as reason:
            # The end of its session does the same, a little later.
            logger.warning("cannot name leaders for those of broker %d: %s", broker_id, reason)

    async def _transact(self, changes_of: Callable[[ClusterImage], list[Change]]) -> bool:
        """Write what follows from the newest picture; whether that was anything."""

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
            # Whatever it is, replicas ask again for what they still want.
            logger.exception("cannot tell the cluster what its replicas ask for")
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
        """What follows from the wishes on this very picture. Each partition is in it once."""
        changes: list[Change] = []
        votes: dict[TopicPartition, ElectionResult] = {}
        for name, request in batch.requests.items():
            if isinstance(request, ElectionResult):
                votes[name] = request
                continue
            try:
                change = self._change(image, name, request, batch.log_ends)
            except BrokerError as reason:
                logger.debug("%s: a wish was refused: %s", name, reason)
                continue
            if change is not None:
                changes.append(change)
        return [*changes, *plan_election_results(image, votes)]

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
    """What a replica's core proposes, as the metadata knows it."""
    return InSyncRequest(
        broker_id=BrokerId(proposal.leader_id),
        broker_epoch=broker_epoch,
        leader_epoch=LeaderEpoch(proposal.epoch),
        partition_epoch=proposal.version,
        in_sync=tuple(BrokerId(each) for each in sorted(proposal.in_sync)),
    )


def other_leader_request(wanted: LeadershipDeclined) -> OtherLeaderRequest:
    """The same for a replica that cannot lead."""
    return OtherLeaderRequest(
        broker_id=BrokerId(wanted.replica_id),
        leader_epoch=LeaderEpoch(wanted.epoch),
        partition_epoch=wanted.version,
        damaged=wanted.damaged,
    )
