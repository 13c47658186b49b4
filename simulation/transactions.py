"""Transactions under faults in virtual time: producers, coordinators, partitions, late and repeated messages."""

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from simulation.transaction_coordinator import EXPIRATION_MS, SimulatedCoordinator
from simulation.transaction_history import Attempt, History, Outcome, Pair, Violation
from simulation.transaction_partition import (
    DATA,
    GROUP,
    SimulatedGroupPartition,
    SimulatedPartition,
)
from simulation.transaction_producer import (
    TIMEOUT_MS,
    Lost,
    Operator,
    Producer,
    TwoPhaseProducer,
)
from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.transactions.persisted import transaction_record
from zhumq.transactions.requests import (
    AddPartitions,
    Answer,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    TransactionRequest,
)
from zhumq.transactions.transaction import EPOCH_BUMPING_VERSION, EPOCH_MAX, Transaction

START_MS: Final = 1_000_000
STEPS: Final = 600
FAULT_PROBABILITY: Final = 0.06
SLOW_PROBABILITY: Final = 0.1  # of a log whose records are durable only later
QUIET_ROUNDS_MAX: Final = 100
SEEDS_PER_NOTE: Final = 1_000


@dataclass(slots=True)
class MarkerJob:
    """The markers of one decided transaction, which one coordinator writes."""

    coordinator: SimulatedCoordinator
    prepared: Transaction
    left: set[TopicPartition]


class World:
    """A coordinator and the one that it replaced, partitions, producers, and a network that loses, delays and repeats.

    Four things do not happen to producers of transaction version 1: there a late end, or a late marker of the same
    coordinator, may end the next transaction, a late commit of offsets may join it, and a coordinator that was replaced
    may confirm a late batch. That is why KIP-890 made version 2.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a simulation repeats
        self.now_ms = START_MS
        self._group = SimulatedGroupPartition()
        self.partitions: dict[TopicPartition, SimulatedPartition] = {
            GROUP: self._group,
            **{at: SimulatedPartition() for at in DATA},
        }
        self.history = History()
        self.attempts: dict[
            Pair, Attempt
        ] = {}  # of two-phase producers, by the pair that they store
        self.has_faults = True
        self.crashes = 0
        self._late: list[
            tuple[int, Callable[[], None]]
        ] = []  # messages on their way, and from which step on
        self._steps = 0
        self._numbers = 0
        self._producer_ids = 0
        self.zombies: list[Producer] = []  # instances that were replaced, and do not know
        self.coordinator = SimulatedCoordinator(0, [], START_MS)
        self._replaced: SimulatedCoordinator | None = None  # It believes that it leads.
        self.producers: list[Producer] = [
            Producer(self, "one", (1,)),
            Producer(self, "two", (2,)),
            Producer(self, "both", (1, 2)),
        ]
        self.two_phase = [
            TwoPhaseProducer(self, f"two-phase-{number}", (2,)) for number in range(2)
        ]
        self.producers += self.two_phase
        self._operator = Operator(self)
        self._exhaust_epochs()

    def _exhaust_epochs(self) -> None:
        """Some ids begin with epochs that are nearly exhausted."""
        records = []
        for each in self.producers:
            if self.random.random() < 0.4:
                producer_id = self.new_producer_id()
                epoch = EPOCH_MAX - self.random.randrange(1, 7)
                records.append(
                    transaction_record(
                        Transaction(
                            transactional_id=each.transactional_id,
                            producer_id=producer_id,
                            producer_epoch=epoch,
                            timeout_ms=TIMEOUT_MS,
                            update_ms=self.now_ms,
                        )
                    )
                )
        self.coordinator = SimulatedCoordinator(0, records, self.now_ms)

    # Faults

    def is_unlucky(self, probability: float = FAULT_PROBABILITY) -> bool:
        return self.has_faults and self.random.random() < probability

    def deliver_later(self, message: Callable[[], None]) -> None:
        """The message is on its way."""
        self._late.append((self._steps, message))

    def deliver_late(self, message: Callable[[], None]) -> None:
        """The message is on its way. Its sender may not wait for it any more when it arrives."""
        self._late.append((self._steps + self.random.choice((0, 20, 100)), message))

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def attempt_of(self, pair: Pair) -> Attempt:
        """The attempt of a two-phase producer with this pair."""
        found = self.attempts.get(pair)
        if found is None:
            raise Violation(f"a transaction without a writer was left open: {pair}")
        return found

    def step(self) -> None:
        """One thing happens."""
        self._steps += 1
        self.now_ms += self.random.choice((0, 1, 10, 500))
        kind = self.random.random()
        if kind < 0.55:
            self.random.choice(self.producers).step()
        elif kind < 0.6:
            if self.zombies:
                self.random.choice(self.zombies).step()
        elif kind < 0.75:
            self._write_markers()
        elif kind < 0.8:
            self.coordinator.replicate()
        elif kind < 0.97:
            self._deliver_one()
        elif kind < 0.976:
            self.replace_coordinator(believes=self.random.random() < 0.8)
        elif kind < 0.978:
            self._replaced = None  # It learns that it was replaced.
        elif kind < 0.988:
            self._operator.end(self.random.choice(self.two_phase).transactional_id)
        elif kind < 0.994:
            self.now_ms += self.random.choice((TIMEOUT_MS // 2, EXPIRATION_MS // 2))
        elif kind < 0.995:
            self._pause_the_producers()
        self._expire()

    def _deliver_one(self) -> None:
        ready = [index for index, (step, _) in enumerate(self._late) if step <= self._steps]
        if ready:
            self._late.pop(self.random.choice(ready))[1]()

    def _pause_the_producers(self) -> None:
        """For a long time only the coordinator works: transactions time out, and ids expire."""
        for _ in range(30):
            self.coordinator.replicate()
            self._write_markers()
            self._deliver_one()
            self.now_ms += EXPIRATION_MS // 12
            self._expire()

    def replace_coordinator(self, *, believes: bool) -> None:
        """Another broker becomes the coordinator. The old one's messages are still on their way.

        Records that were not durable may be lost or not.
        """
        self.crashes += 1
        old = self.coordinator
        kept = self.random.randint(old.durable, len(old.records))
        old.is_deposed = True
        self._replaced = old if believes else None
        self.coordinator = SimulatedCoordinator(old.epoch + 1, old.records[:kept], self.now_ms)

    def _expire(self) -> None:
        self.coordinator.expire(self.now_ms)
        if self._replaced is not None:
            self._replaced.expire(self.now_ms)

    # Requests

    def ask(self, request: TransactionRequest) -> Answer:
        """Send a request, and wait for the answer."""
        if self.is_unlucky():
            if self.is_unlucky(0.5):
                self._deliver_late(request)
            raise Lost
        if self.is_unlucky():
            self._deliver_late(request)  # It is repeated on the way.
        response = self._serve(request)
        if response is None or self.is_unlucky():
            raise Lost
        return response

    def ask_with_id(self, request: InitProducer | EndTransaction) -> Answer:
        """The same, with an unused producer id if the coordinator needs one."""
        answer = self.ask(request)
        if answer.needs_producer_id:
            answer = self.ask(replace(request, new_producer_id=self.new_producer_id()))
        return answer

    def _deliver_late(self, request: TransactionRequest) -> None:
        if isinstance(request, EndTransaction) and request.client_version < EPOCH_BUMPING_VERSION:
            return
        if isinstance(request, InitProducer | EndTransaction):
            # The coordinator's broker adds it, once: it is not on the network.
            request = replace(request, new_producer_id=None)
        self.deliver_late(lambda: self._deliver(request))

    def _deliver(self, request: TransactionRequest) -> None:
        self._serve(request)

    def _serve(self, request: TransactionRequest) -> Answer | None:
        coordinator = self.coordinator
        is_verification = isinstance(request, AddPartitions) and request.verify_only
        if self._replaced is not None and self.is_unlucky(0.4) and not is_verification:
            coordinator = self._replaced
        token = coordinator.handle(request, self.now_ms)
        if self.is_unlucky(0.01):
            self.replace_coordinator(believes=False)
        if not self.is_unlucky(SLOW_PROBABILITY):
            coordinator.replicate()
        answer = coordinator.answer(token)
        assert answer is None or isinstance(answer, Answer)
        return answer

    def new_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    # Markers

    def _write_markers(self) -> None:
        for coordinator in (self.coordinator, self._replaced):
            if coordinator is None:
                continue
            for prepared in coordinator.decided(self.now_ms):
                job = MarkerJob(coordinator, prepared, set(prepared.partitions))
                for at in sorted(prepared.partitions):
                    self._deliver_marker(job, at)

    def _deliver_marker(self, job: MarkerJob, at: TopicPartition) -> None:
        self.deliver_later(lambda: self._write_marker(job, at))

    def _write_marker(self, job: MarkerJob, at: TopicPartition) -> None:
        if self.is_unlucky():
            self._deliver_marker(job, at)
            return
        try:
            self.partitions[at].end(job.prepared, coordinator_epoch=job.coordinator.epoch)
        except BrokerError as error:
            if job.coordinator is self.coordinator and at in job.left:
                raise Violation(f"{at} refused a marker: {error}: {job.prepared}") from None
            return
        if job.prepared.bumps_epochs and self.is_unlucky():
            self.deliver_late(lambda: self._write_marker(job, at))  # repeated
        if at in job.left:
            job.left.discard(at)
            if not job.left:
                self._report(job)

    def _report(self, job: MarkerJob) -> None:
        if job.coordinator not in (self.coordinator, self._replaced):
            return  # Its broker has no shard any more.
        if self.is_unlucky():
            self.deliver_later(lambda: self._report(job))
            return
        if job.prepared.bumps_epochs and self.is_unlucky():
            self.deliver_late(lambda: self._report(job))  # repeated
        job.coordinator.handle(
            MarkersWritten(
                transactional_id=job.prepared.transactional_id,
                producer_id=job.prepared.producer_id,
                producer_epoch=job.prepared.producer_epoch,
            ),
            self.now_ms,
        )

    # The end

    def settle(self) -> None:
        """No more faults: all messages arrive, open transactions time out, two-phase producers recover."""
        self.has_faults = False
        self._replaced = None
        are_recovered = False
        for _ in range(QUIET_ROUNDS_MAX):
            self.coordinator.replicate()
            self._write_markers()
            late, self._late = self._late, []
            for _, message in late:
                message()
            if not late and not are_recovered:
                for each in self.two_phase:
                    each.finish()
                are_recovered = all(each.is_finished for each in self.two_phase)
            self.now_ms += TIMEOUT_MS // 4
            self._expire()
        if not are_recovered:
            raise Violation("a two-phase producer cannot end its transaction")

    def check(self) -> None:
        """Raise Violation if a guarantee is broken."""
        self.coordinator.check(self.now_ms)
        outcomes = list(self._outcomes())
        self.history.check(outcomes, GROUP)
        self._group.check(
            each.attempt for each in outcomes if each.partition == GROUP and each.is_commit
        )

    def _outcomes(self) -> Iterator[Outcome]:
        for at, partition in self.partitions.items():
            is_open: dict[int, list[Attempt]] = defaultdict(list)
            for entry in partition.log:
                if entry.attempt is not None:
                    is_open[entry.producer_id].append(entry.attempt)
                    continue
                ended = is_open.pop(entry.producer_id, [])
                for attempt in set(ended):
                    yield Outcome(attempt, at, entry.is_commit, ended.count(attempt))
            if is_open or partition.state.first_undecided_offset is not None:
                raise Violation(f"{at}: a transaction hangs, and with it the last stable offset")


def run(seed: int, steps: int = STEPS) -> World:
    """A whole run. Raises Violation."""
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.settle()
    world.check()
    return world


def main(arguments: list[str] | None = None) -> int:
    """Run many seeds, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    if chosen.seed is not None:
        seeds = range(chosen.seed, chosen.seed + 1)
    started = time.perf_counter()
    committed = aborted = replaced = failures = 0
    for seed in seeds:
        try:
            world = run(seed)
        except Violation as error:
            failures += 1
            print(f"transactions, seed {seed}: VIOLATED {error}", flush=True)  # noqa: T201
            continue
        if seed % SEEDS_PER_NOTE == SEEDS_PER_NOTE - 1:
            print(f"up to seed {seed}: {failures} violations", file=sys.stderr, flush=True)  # noqa: T201
        committed += len(world.history.committed)
        aborted += len(world.history.aborted)
        replaced += world.crashes
    print(  # noqa: T201
        f"transactions: {len(seeds)} seeds from {seeds.start}: {failures} violations, {committed} committed,"
        f" {aborted} aborted, {replaced} coordinators replaced, {time.perf_counter() - started:.1f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
