"""Runs the consensus cores through faults in virtual time: `python -m simulation`."""

import argparse
import hashlib
import heapq
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from simulation.checkers import LEADER_EXISTS, Checkers, InvariantViolated, Quorum
from simulation.simulated_broker import SimulatedBroker
from simulation.simulated_clients import SimulatedConsumer, SimulatedProducer
from simulation.simulated_controller import SimulatedController
from simulation.simulated_replica import Produce, SimulatedReplica
from simulation.simulation_options import FAULT_KINDS, FAULTY_MS, Options, options_for
from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import Message, Mode, QuorumState, ReplicaSettings
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.voters import Voters

LAST_EVENTS: Final = 60
RECOVERY_MS_MAX: Final = 120_000
SEEDS_PER_NOTE: Final = 100
CRASH_AT_RISKY_STEP: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a simulation."""

    events: int
    trace_hash: str
    acknowledged: int
    committed: int
    elections: int


class World:
    """One event queue, the brokers, the network between them, and the faults."""

    def __init__(self, options: Options, *, trace: bool = False) -> None:
        self.options = options
        self.random = random.Random(options.seed)  # noqa: S311  the seed must replay it
        self.now_ms = 0
        self.last_events: deque[str] = deque(maxlen=LAST_EVENTS)
        self._trace = trace
        self._hash = hashlib.blake2b(digest_size=8)
        self._queue: list[tuple[int, int, str, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0
        self.events = 0
        self.node_ids = tuple(range(options.nodes))
        self._draw_faults()
        self.brokers = {
            each: SimulatedBroker(each, self, clock_rate=self.random.uniform(0.93, 1.07))
            for each in self.node_ids
        }
        self.checkers = Checkers(
            {each: broker.log for each, broker in self.brokers.items()}, self._quorum
        )
        self.controller = SimulatedController(self, options.mode)
        self._cuts: set[tuple[int, int]] = set()
        self._is_faulty = True
        self.producers_stop = False
        self.producers = [SimulatedProducer(each, self, acks=-1) for each in range(2)]
        self.producers.append(SimulatedProducer(2, self, acks=1))
        self.consumers = [SimulatedConsumer(self)]

    def _draw_faults(self) -> None:
        """Draw the kinds of faults of this seed, and their rates."""
        chance = self.random
        kinds = self.options.faults
        if kinds is None:
            kinds = tuple(each for each in FAULT_KINDS if chance.random() < 0.5)
        self._fault_kinds = kinds
        self._fault_gap_ms = chance.choice((150, 400, 1_000, 2_500))
        self._loss = chance.choice((0.0, 0.0, 0.02, 0.1)) if kinds else 0.0
        self._duplicates = chance.choice((0.0, 0.05, 0.2)) if kinds else 0.0
        self._delay_ms = chance.choice((5, 20, 80))
        self._long_delays = chance.choice((0.0, 0.01, 0.05)) if kinds else 0.0
        self._crash_mid_step = chance.choice((0.0, 0.0, 0.002)) if "crash" in kinds else 0.0
        self._late_writes = chance.choice((0.0, 0.0, 0.2)) if kinds else 0.0
        self._slow_flush_ms = chance.choice((2, 10, 60, 250))
        # Small answers stop followers between two epochs of a leader's log.
        self.fetch_entries_max = chance.choice((1, 3, 20))
        self._think_ms = chance.choice((20, 60, 200))

    def _quorum(self, mode: Mode) -> Quorum:
        record = self.controller.record
        # A named leader that has not learned of a change to raft still commits on the earlier in-sync
        # set, which was a majority of the replicas.
        if mode is Mode.RAFT or record.mode is Mode.RAFT or record.changing_mode:
            voters = Voters(record.replicas)
            return Quorum(
                counted=frozenset(voters.ids),
                needed=voters.majority,
                needed_in_all=voters.majority,
            )
        in_sync = frozenset(record.in_sync)
        return Quorum(counted=in_sync, needed=len(in_sync), needed_in_all=self.options.min_in_sync)

    # Randomness

    def draw(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def draw_node(self) -> int:
        return self.random.choice(self.node_ids)

    def think_ms(self) -> int:
        return self.draw(1, self._think_ms)

    def flush_delay_ms(self) -> int:
        return self.draw(1, self._slow_flush_ms if self.draw(0, 4) == 0 else 3)

    def is_lost(self) -> bool:
        return self._is_faulty and self.random.random() < self._loss

    def is_write_late(self) -> bool:
        return self._is_faulty and self.random.random() < self._late_writes

    def maybe_crash(self, broker: SimulatedReplica, *, often: bool = False) -> None:
        """Sometimes crash a process between two steps of a Ready."""
        chance = CRASH_AT_RISKY_STEP if self._crash_mid_step and often else self._crash_mid_step
        if self._is_faulty and chance and self.random.random() < chance:
            self._crash(broker.broker_id)

    # Events

    def later(self, delay_ms: int, name: str, call: Callable[..., None], *arguments: Any) -> None:
        self._scheduled += 1
        heapq.heappush(
            self._queue, (self.now_ms + delay_ms, self._scheduled, name, call, arguments)
        )

    def note(self, *words: object) -> None:
        """One line of the trace; equal seeds give equal traces."""
        line = f"{self.now_ms} " + " ".join(map(str, words))
        self._hash.update(line.encode())
        self.last_events.append(line)
        if self._trace:
            print(line)  # noqa: T201

    def run_until(self, end_ms: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Run events in order. Returns True if `is_done` becomes true before the end."""
        queue = self._queue
        checked_ms = self.now_ms
        while queue and queue[0][0] <= end_ms:
            self.now_ms, _, name, call, arguments = heapq.heappop(queue)
            self.events += 1
            self._hash.update(f"{self.now_ms}{name}".encode())
            call(*arguments)
            if is_done is not None and self.now_ms - checked_ms >= 100:
                checked_ms = self.now_ms
                if is_done():
                    return True
        self.now_ms = end_ms
        return False

    # The network

    def send(self, sender: int, to: int, message: Message) -> None:
        if self._trace:
            self.note("send", sender, to, message)
        if (sender, to) in self._cuts or self.is_lost():
            return
        copies = 1
        if self._is_faulty and self.random.random() < self._duplicates:
            copies = 2
        for _ in range(copies):
            delay_ms = self.draw(1, self._delay_ms)
            if self._is_faulty and self.random.random() < self._long_delays:
                delay_ms += self.draw(1, 5_000)
            self.later(delay_ms, "message", self._deliver, to, message)

    def _deliver(self, to: int, message: Message) -> None:
        broker = self.brokers[to]
        if broker.paused_until_ms > self.now_ms:
            self.later(broker.paused_until_ms - self.now_ms, "message", self._deliver, to, message)
        elif broker.is_up:
            broker.receive(message)

    def deliver_produce(self, to: int, produce: Produce) -> None:
        broker = self.brokers[to]
        if broker.paused_until_ms <= self.now_ms:
            broker.produce(produce)

    def new_replica(
        self,
        kind: type[RaftReplica] | type[AssignedReplica],
        broker: SimulatedReplica,
        state: QuorumState,
        voters: Voters,
    ) -> RaftReplica | AssignedReplica:
        """A replica that starts with the broker's disk."""
        settings = ReplicaSettings(min_in_sync_replicas=self.options.min_in_sync)
        return kind(
            broker.broker_id,
            voters,
            broker.log,
            settings,
            state,
            high_watermark=broker.checkpointed_high_watermark,
            incarnation=broker.incarnation,
            draw=self.draw,
            now_ms=broker.now_ms,
        )

    # Faults

    def _next_fault(self) -> None:
        if not self._is_faulty:
            return
        if self._fault_kinds:
            self._inject_fault(self.random.choice(self._fault_kinds))
        if self.options.switches and self.draw(0, 5) == 0:
            self.note("switch the mode")
            self.controller.switch_mode()
        if self.options.moves and self.draw(0, 3) == 0:
            self._move()
        if self.draw(0, 7) == 0:
            self.controller.balance()
        self.later(self.draw(1, 2 * self._fault_gap_ms), "fault", self._next_fault)

    def _move(self) -> None:
        """Reassign to any live brokers, or cancel a reassignment."""
        alive = sorted(self.controller.registered)
        count = self.options.replicas or len(self.node_ids)
        if self.draw(0, 6) == 0:
            self.controller.move(None)
        elif len(alive) >= count:
            self.controller.move(tuple(self.random.sample(alive, count)))

    def _inject_fault(self, kind: str) -> None:
        node = self.draw_node()
        broker = self.brokers[node]
        duration_ms = self.random.choice((30, 300, 1_500, 4_000))
        match kind:
            case "crash":
                self._crash(node)
            case "crash all" if self.draw(0, 3) == 0:
                for each in self.node_ids:
                    self._crash(each)
            case "pause":
                self.note("pause", node, duration_ms)
                broker.paused_until_ms = self.now_ms + duration_ms
            case "cut":
                other = self.draw_node()
                self._report_unreachable(broker)
                self._cut({(node, other), (other, node)}, duration_ms)
            case "cut one way":
                other = self.draw_node()
                self._cut({(node, other)}, duration_ms)
            case "cut from store":
                self.note("cut from store", node, duration_ms)
                self.controller.cut.add(node)
                self.later(duration_ms, "mend", self.controller.cut.discard, node)
            case "controller away":
                self.note("controller away", duration_ms)
                self.controller.away_until_ms = self.now_ms + duration_ms
            case "damage":
                self._damage(broker)
            case "wipe" if self.draw(0, 2) == 0:
                self._wipe(broker)
            case "retention":
                self._delete_old(broker)
            case _:
                pass

    def _crash(self, node: int) -> None:
        broker = self.brokers[node]
        if broker.is_up:
            self._report_unreachable(broker)
            broker.crash()
            self.later(self.random.choice((20, 200, 1_000, 4_000)), "start", self._start, node)

    def _report_unreachable(self, broker: SimulatedBroker) -> None:
        """Sometimes another broker reports it unreachable before its session ends."""
        if broker.broker_epoch is not None and self.draw(0, 1):
            delay_ms = self.draw(1, 300)
            self.later(
                delay_ms,
                "unreachable",
                self.controller.report_unreachable,
                broker.broker_id,
                broker.broker_epoch,
            )

    def _start(self, node: int) -> None:
        if not self.brokers[node].is_up:
            self.brokers[node].start()

    def _cut(self, cuts: set[tuple[int, int]], duration_ms: int) -> None:
        self.note("cut", sorted(cuts), duration_ms)
        self._cuts |= cuts
        self.later(duration_ms, "mend", self._mend, cuts)

    def _mend(self, cuts: set[tuple[int, int]]) -> None:
        self._cuts -= cuts

    def _damage(self, broker: SimulatedBroker) -> None:
        """Flip bits on a minority only: data that a majority lost cannot be recovered."""
        log = broker.log
        if self._may_lose_disk(broker) and log.flushed_offset > log.log_start_offset:
            broker.damage(self.draw(log.log_start_offset, log.flushed_offset - 1))

    def _wipe(self, broker: SimulatedBroker) -> None:
        if self._may_lose_disk(broker) and broker.replica is not None:
            broker.wipe()
            self.later(self.random.choice((20, 200, 1_000)), "start", self._start, broker.broker_id)

    def _may_lose_disk(self, broker: SimulatedBroker) -> bool:
        """Whether other brokers have everything on this broker's disk."""
        record = self.controller.record
        alone = record.mode is Mode.FETCH and set(record.in_sync) <= {broker.broker_id}
        # In fetch mode, one disk after the other may be replaced.
        votes = record.mode is Mode.RAFT or record.changing_mode
        others = [each.state for each in self.brokers.values()]
        unsure = any(each.recovering or (votes and each.votes_unknown) for each in others)
        return not (self.checkers.excused or unsure or alone)

    def _delete_old(self, broker: SimulatedBroker) -> None:
        """Retention deletes below the high watermark, but no entry that a producer may send again."""
        if broker.replica is None:
            return
        limit = min(
            broker.replica.high_watermark,
            *(each.last_offset for each in self.producers if each.repeats),
            *(each.position for each in self.consumers),
        )
        broker.log.delete_before(max(limit - self.draw(0, 30), 0))

    # The run

    def run(self) -> Outcome:
        """Run the faulty phase, heal all faults, and run the final checks."""
        for each in self.node_ids:
            self.brokers[each].start()
        self.controller.tick()
        for producer in self.producers:
            self.later(self.draw(1, 500), "begin", producer.send)
        for consumer in self.consumers:
            self.later(self.draw(1, 500), "begin", consumer.poll)
        self.later(self.draw(500, 3_000), "fault", self._next_fault)
        self.run_until(self.options.faulty_ms)
        self._heal()
        self._settle()
        return Outcome(
            events=self.events,
            trace_hash=self._hash.hexdigest(),
            acknowledged=self.checkers.acknowledgements,
            committed=len(self.checkers.committed),
            elections=self.checkers.epochs_led,
        )

    def _heal(self) -> None:
        self.note("heal")
        self._is_faulty = False
        self.fetch_entries_max = 20
        self._cuts.clear()
        self.controller.cut.clear()
        self.controller.away_until_ms = 0
        for each in self.node_ids:
            self.brokers[each].paused_until_ms = 0
            self._start(each)

    def _settle(self) -> None:
        """Wait until the cluster serves under load, then until it is quiescent without load."""
        before = self.checkers.acknowledgements
        served = self.run_until(
            self.now_ms + RECOVERY_MS_MAX,
            lambda: self._leader() is not None and self.checkers.acknowledgements > before + 3,
        )
        if not served:
            raise InvariantViolated(
                LEADER_EXISTS, f"nothing is acknowledged: {self._state_summary()}"
            )
        self.producers_stop = True
        if not self.run_until(self.now_ms + RECOVERY_MS_MAX, self._is_at_rest):
            raise InvariantViolated(LEADER_EXISTS, f"not quiescent: {self._state_summary()}")
        leader = self._leader()
        assert leader is not None
        assert leader.replica is not None
        replicas = self.controller.record.replicas
        self.checkers.final(leader.broker_id, leader.replica.high_watermark, replicas)

    def _leader(self) -> SimulatedBroker | None:
        leaders = [
            each
            for each in self.brokers.values()
            if each.replica is not None and each.replica.serving
        ]
        return leaders[0] if len(leaders) == 1 else None

    def _is_at_rest(self) -> bool:
        leader = self._leader()
        controller = self.controller
        if leader is None or not all(each.is_idle for each in self.producers):
            return False
        if not controller.is_settled:
            return False
        end_offset = leader.log.log_end_offset
        if any(each.position < end_offset for each in self.consumers):
            return False
        return all(
            each.replica is not None
            and each.log.log_end_offset == each.log.flushed_offset == end_offset
            and each.replica.high_watermark == end_offset
            and not each.replica.quorum_state.recovering
            for each in (self.brokers[replica] for replica in controller.record.replicas)
        )

    def _state_summary(self) -> str:
        return (
            "; ".join(
                f"{each.broker_id}: {each.replica.role if each.replica else 'down'}"
                f" epoch {each.state.epoch} log {each.log.log_start_offset}..{each.log.flushed_offset}"
                f"..{each.log.log_end_offset} recovering {each.state.recovering}"
                for each in self.brokers.values()
            )
            + f"; record {self.controller.record}"
        )


def run_seed(options: Options, *, trace: bool = False) -> Outcome:
    """Run one simulation. Raises InvariantViolated with the last events as notes."""
    world = World(options, trace=trace)
    try:
        return world.run()
    except InvariantViolated as error:
        error.add_note("\n".join(world.last_events))
        error.add_note(f"{options}")
        raise


def main(arguments: list[str] | None = None) -> int:
    """Run many seeds, or one with its trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument(
        "--seconds",
        type=float,
        default=FAULTY_MS / 1_000,
        help="virtual duration of the faulty phase",
    )
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    if chosen.seed is not None:
        seeds = range(chosen.seed, chosen.seed + 1)
    started = time.perf_counter()
    events = acknowledged = elections = failures = 0
    outcome = None
    for seed in seeds:
        options = options_for(seed, faulty_ms=int(chosen.seconds * 1_000))
        try:
            outcome = run_seed(options, trace=chosen.trace)
        except InvariantViolated as error:
            failures += 1
            print("\n".join(getattr(error, "__notes__", ())))  # noqa: T201
            print(f"seed {seed}: VIOLATED {error}", flush=True)  # noqa: T201
            continue
        if seed % SEEDS_PER_NOTE == SEEDS_PER_NOTE - 1:
            print(f"up to seed {seed}: {failures} violations", file=sys.stderr, flush=True)  # noqa: T201
        events += outcome.events
        acknowledged += outcome.acknowledged
        elections += outcome.elections
    seconds = time.perf_counter() - started
    if len(seeds) == 1 and outcome is not None:
        print(f"trace hash {outcome.trace_hash}")  # noqa: T201
    print(  # noqa: T201
        f"{len(seeds)} seeds from {seeds.start}: {failures} violations, {events} events,"
        f" {acknowledged} acknowledged, {elections} epochs led, {seconds:.1f} s,"
        f" {events / max(seconds, 0.001):.0f} events/s"
    )
    return 1 if failures else 0
