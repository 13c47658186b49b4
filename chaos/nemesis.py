"""Injects a schedule of faults into a real cluster, records them, and heals the cluster."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.cluster_under_test import ClusterUnderTest, broker_name, zookeeper_name
from chaos.findings import Findings, Kind
from chaos.history import Recorder
from chaos.network import CUT, REFUSED, Link
from chaos.schedule import Fault, FaultKind, Step
from chaos.write_gaps import Interruption
from zhumq.cluster.dev_zookeeper import DevZookeeperFailed

SLOW_MS: Final = 150
INTERNAL_PREFIX: Final = "__"
STARTS_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """One fault that was injected."""

    kind: FaultKind
    time_ms: int
    target: str
    is_alone: bool = True  # no other fault came with it
    leaders_hit: frozenset[str] = frozenset()  # partitions whose leader was killed
    groups_hit: frozenset[str] = frozenset()  # groups whose coordinator was killed


@dataclass(slots=True, kw_only=True)
class ActiveFaults:
    """The faults that `heal` has to undo."""

    dead: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)
    paused_zookeepers: set[int] = field(default_factory=set)  # by their numbers


class Nemesis:
    """Injects faults into a cluster, one step after the other. Not thread-safe."""

    def __init__(
        self,
        cluster_under_test: ClusterUnderTest,
        recorder: Recorder,
        findings: Findings,
        *,
        groups: Sequence[str] = (),
        print_line: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.injected_faults: list[InjectedFault] = []
        self._cluster_under_test = cluster_under_test
        self._recorder = recorder
        self._findings = findings
        self._groups = groups
        self._print_line = print_line
        self._active_faults = ActiveFaults()
        self._stop = threading.Event()

    def run(self, schedule: Iterable[Step], *, seconds: float) -> None:
        """Run the schedule for so many seconds. The cluster is healed at the end, also after an error, but
        not after Ctrl-C: then no client uses it any more."""
        deadline = time.monotonic() + seconds
        try:
            for step in schedule:
                left = deadline - time.monotonic() - step.calm_ms / 1_000
                if left <= 0:
                    break
                self._wait(step.calm_ms / 1_000)
                self.report_crashed_brokers()
                for fault in step.faults:
                    self.do(fault, is_alone=len(step.faults) == 1)
                self._wait(min(step.lasts_ms / 1_000, left))
                self.heal()
        except Exception:
            self.heal()
            raise
        self.heal()

    def do(self, fault: Fault, *, is_alone: bool = True) -> InjectedFault | None:
        """Inject one fault into the target that its number selects; None if there is no target."""
        injected = self._do(fault)
        if injected is not None:
            injected = dataclasses.replace(injected, is_alone=is_alone)
            self._note(injected, injected.target)
        return injected

    def damage(self, broker_id: int, inflict: Callable[[Path], str]) -> InjectedFault:
        """Kill a broker and damage its data folder."""
        injected = self.kill(FaultKind.DAMAGE_BROKER, [broker_id], {})
        description = inflict(self._cluster_under_test.cluster.brokers[broker_id].data_dir)
        self._note(injected, f"{injected.target}, {description}")
        return injected

    def heal(self) -> None:
        """Undo all faults: links first, so that restarted brokers reach each other."""
        self._cluster_under_test.network.heal()
        for broker_id in sorted(self._active_faults.paused):
            broker = self._cluster_under_test.cluster.brokers[broker_id]
            if broker.running:
                broker.resume()
        self._active_faults.paused.clear()
        self._heal_zookeeper()
        self._start(sorted(self._active_faults.dead))
        self._active_faults.dead.clear()

    def report_crashed_brokers(self) -> None:
        """Add a finding for every broker that exited without being killed."""
        crashed = [
            broker_id
            for broker_id, broker in self._cluster_under_test.cluster.brokers.items()
            if not broker.running and broker_id not in self._active_faults.dead
        ]
        for broker_id in crashed:
            tail = self._cluster_under_test.log_tail(broker_id)
            self._findings.add(Kind.BROKER_FELL, f"broker-{broker_id}", f"it exited:\n{tail}")
            self._print_line(f"broker {broker_id} exited without being killed")
            self._active_faults.dead.add(broker_id)

    def interruptions(self) -> list[Interruption]:
        """The kills of leaders that no other fault overlapped, to measure write gaps."""
        return [
            Interruption(time_ms=injected.time_ms, places=injected.leaders_hit)
            for injected in self.injected_faults
            if injected.leaders_hit and injected.is_alone
        ]

    def group_interruptions(self) -> list[Interruption]:
        """The kills of group coordinators, to measure commit gaps."""
        return [
            Interruption(time_ms=injected.time_ms, places=injected.groups_hit)
            for injected in self.injected_faults
            if injected.groups_hit and injected.is_alone
        ]

    def kill(
        self, kind: FaultKind, broker_ids: Sequence[int], leaders: dict[str, int]
    ) -> InjectedFault:
        """Send SIGKILL to these brokers, all at once."""
        groups = {
            group: self._cluster_under_test.group_coordinator(group)
            for group in (self._groups if kind is FaultKind.KILL_GROUP_COORDINATOR else ())
        }
        time_ms = self._recorder.now_ms()
        # Marked first, so that a killed broker never counts as crashed.
        self._active_faults.dead.update(broker_ids)
        for broker_id in broker_ids:
            self._cluster_under_test.network.shut(broker_name(broker_id))
            self._cluster_under_test.cluster.kill(broker_id)
        hit = {name for name in _written(leaders) if leaders[name] in broker_ids}
        return InjectedFault(
            kind=kind,
            time_ms=time_ms,
            target=_names(broker_ids),
            leaders_hit=frozenset(hit),
            groups_hit=frozenset(name for name, each in groups.items() if each in broker_ids),
        )

    def _do(self, fault: Fault) -> InjectedFault | None:
        cluster_under_test = self._cluster_under_test
        alive = [
            each for each in cluster_under_test.broker_ids if each not in self._active_faults.dead
        ]
        active = [each for each in alive if each not in self._active_faults.paused]
        if not active:
            return None
        leaders = (
            cluster_under_test.leaders() if "leader" in fault.kind or "kill" in fault.kind else {}
        )
        chosen = active[fault.target % len(active)]
        match fault.kind:
            case FaultKind.KILL_BROKER:
                return self.kill(fault.kind, [chosen], leaders)
            case FaultKind.STOP_BROKER:
                return self._stop_cleanly(fault, chosen)
            case FaultKind.KILL_LEADER:
                leader = self._some_leader(fault, leaders, active)
                return None if leader is None else self.kill(fault.kind, [leader], leaders)
            case FaultKind.KILL_CONTROLLER:
                controller = cluster_under_test.controller()
                if controller not in active or controller is None:
                    return None
                return self.kill(fault.kind, [controller], leaders)
            case FaultKind.KILL_GROUP_COORDINATOR:
                return self._kill_group_coordinator(fault, active, leaders)
            case FaultKind.KILL_ALL:
                return self.kill(fault.kind, alive, {})
            case (
                FaultKind.KILL_ZOOKEEPER_LEADER
                | FaultKind.KILL_ZOOKEEPER
                | FaultKind.PAUSE_ZOOKEEPER
            ):
                return self._do_to_zookeeper(fault)
            case FaultKind.PAUSE_BROKER:
                return self._pause(fault, chosen)
            case FaultKind.PAUSE_LEADER:
                leader = self._some_leader(fault, leaders, active)
                return None if leader is None else self._pause(fault, leader)
            case _:
                return self._do_to_links(fault, chosen)

    def _note(self, injected: InjectedFault, description: str) -> None:
        self.injected_faults.append(injected)
        self._print_line(f"{injected.time_ms / 1_000:8.1f} s  {injected.kind}: {description}")

    def _do_to_links(self, fault: Fault, chosen: int) -> InjectedFault:
        cluster_under_test = self._cluster_under_test
        others = [each for each in cluster_under_test.broker_ids if each != chosen]
        other = others[fault.target // len(cluster_under_test.broker_ids) % len(others)]
        target = _names([chosen])
        match fault.kind:
            case FaultKind.CUT_BROKER:
                cluster_under_test.set_links(chosen, others, CUT)
            case FaultKind.REFUSE_BROKER:
                cluster_under_test.set_links(chosen, others, REFUSED)
            case FaultKind.SLOW_BROKER:
                cluster_under_test.set_links(chosen, others, Link(delay_ms=SLOW_MS))
            case FaultKind.CUT_PAIR:
                cluster_under_test.set_links(chosen, [other], CUT)
                target = _names([chosen, other])
            case FaultKind.CUT_ONE_WAY:
                cluster_under_test.set_link(chosen, other, CUT)
                target = f"from {chosen} to {other}"
            case FaultKind.CUT_FROM_ZOOKEEPER:
                cluster_under_test.set_zookeeper_links(chosen, CUT)
            case FaultKind.CUT_FROM_ZOOKEEPER_ONE_WAY:
                cluster_under_test.set_zookeeper_links(chosen, CUT, both_ways=False)
            case _:
                raise AssertionError(f"{fault.kind} is not a fault of links")
        return InjectedFault(kind=fault.kind, time_ms=self._recorder.now_ms(), target=target)

    def _some_leader(self, fault: Fault, leaders: dict[str, int], active: list[int]) -> int | None:
        """The leader of one of the partitions that clients write to."""
        led = sorted(name for name in _written(leaders) if leaders[name] in active)
        return leaders[led[fault.target % len(led)]] if led else None

    def _kill_group_coordinator(
        self, fault: Fault, active: list[int], leaders: dict[str, int]
    ) -> InjectedFault | None:
        if not self._groups:
            return None
        group = self._groups[fault.target % len(self._groups)]
        coordinator = self._cluster_under_test.group_coordinator(group)
        if coordinator is None or coordinator not in active:
            return None
        return self.kill(fault.kind, [coordinator], leaders)

    def _do_to_zookeeper(self, fault: Fault) -> InjectedFault | None:
        ensemble = self._cluster_under_test.cluster.zookeeper
        paused = self._active_faults.paused_zookeepers
        nodes = [each for each in ensemble.nodes if each.running and each.number not in paused]
        if fault.kind is FaultKind.KILL_ZOOKEEPER_LEADER:
            # A paused node does not answer, so the leader cannot be looked up.
            try:
                nodes = [] if paused else [ensemble.leader()]
            except DevZookeeperFailed:
                nodes = []
        if not nodes:
            return None
        time_ms = self._recorder.now_ms()
        for node in nodes:
            if fault.kind is FaultKind.PAUSE_ZOOKEEPER:
                paused.add(node.number)
                node.pause()
            else:
                self._cluster_under_test.network.shut(zookeeper_name(node.number))
                node.kill()
        names = ", ".join(zookeeper_name(node.number) for node in nodes)
        return InjectedFault(kind=fault.kind, time_ms=time_ms, target=names)

    def _stop_cleanly(self, fault: Fault, broker_id: int) -> InjectedFault:
        """SIGTERM, as an operator does before an upgrade."""
        injected = InjectedFault(
            kind=fault.kind, time_ms=self._recorder.now_ms(), target=_names([broker_id])
        )
        self._active_faults.dead.add(broker_id)
        self._cluster_under_test.network.shut(broker_name(broker_id))
        code = self._cluster_under_test.cluster.brokers[broker_id].stop()
        if code:
            tail = self._cluster_under_test.log_tail(broker_id)
            self._findings.add(
                Kind.BROKER_FELL, f"broker-{broker_id}", f"it stopped with code {code}:\n{tail}"
            )
        return injected

    def _pause(self, fault: Fault, broker_id: int) -> InjectedFault:
        self._active_faults.paused.add(broker_id)
        self._cluster_under_test.cluster.brokers[broker_id].pause()
        return InjectedFault(
            kind=fault.kind, time_ms=self._recorder.now_ms(), target=_names([broker_id])
        )

    def _heal_zookeeper(self) -> None:
        ensemble = self._cluster_under_test.cluster.zookeeper
        for node in ensemble.nodes:
            if node.number in self._active_faults.paused_zookeepers and node.running:
                node.resume()
        self._active_faults.paused_zookeepers.clear()
        dead = [node for node in ensemble.nodes if not node.running]
        for node in dead:
            self._cluster_under_test.network.reopen(zookeeper_name(node.number))
        ensemble.restart(*dead)

    def _start(self, broker_ids: list[int]) -> None:
        """Start brokers in parallel; a broker that does not start is a finding, and is retried."""
        left = broker_ids
        for _ in range(STARTS_MAX):
            for broker_id in left:
                self._cluster_under_test.network.reopen(broker_name(broker_id))
                self._cluster_under_test.cluster.brokers[broker_id].launch()
            left = [broker_id for broker_id in left if not self._is_ready(broker_id)]
            if not left:
                return

    def _is_ready(self, broker_id: int) -> bool:
        try:
            self._cluster_under_test.cluster.brokers[broker_id].wait_until_ready()
        except RuntimeError:
            tail = self._cluster_under_test.log_tail(broker_id)
            self._findings.add(
                Kind.BROKER_FELL, f"broker-{broker_id}", f"it did not start:\n{tail}"
            )
            return False
        return True

    def _wait(self, seconds: float) -> None:
        self._stop.wait(max(0.0, seconds))


def _written(partitions: Iterable[str]) -> list[str]:
    """The partitions that clients write to, without those of internal topics."""
    return [name for name in partitions if not name.startswith(INTERNAL_PREFIX)]


def _names(broker_ids: Sequence[int]) -> str:
    noun = "broker" if len(broker_ids) == 1 else "brokers"
    return f"{noun} {', '.join(map(str, broker_ids))}"
