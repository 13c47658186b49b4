"""The kinds of runs: mixed faults, kills of one kind, pauses, damaged files, mode changes."""

import functools
import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from chaos.damage import DamageKind, are_equal, do_damage, end_offset
from chaos.findings import Kind
from chaos.nemesis import InjectedFault
from chaos.run_context import HEAL_SECONDS_MAX, RunContext
from chaos.schedule import MIXED, TARGETS, Durations, Fault, FaultKind, steps

Inflict = Callable[[RunContext], None]

# The default of zookeeper.session.timeout.ms.
SESSION_SECONDS: Final = 2.0
# Times the session timeout: some pauses end before the session expires, some as it does, some after.
PAUSE_FACTORS: Final = (0.6, 2.5)


def mixed_faults(
    seconds: float = math.inf,
    *,
    rounds: int | None = None,
    kinds: Sequence[FaultKind] = MIXED,
    durations: Durations | None = None,
) -> Inflict:
    """Every kind of fault, drawn by the seed, for so many seconds or rounds."""

    def inflict(context: RunContext) -> None:
        schedule = steps(context.seed, kinds=kinds, durations=durations)
        context.nemesis.run(itertools.islice(schedule, rounds), seconds=seconds)

    return inflict


def pauses(count: int) -> Inflict:
    """Pause brokers one after the other for about a session timeout. After each pause every registered
    broker must serve the partitions that it leads."""

    def inflict(context: RunContext) -> None:
        draw = random.Random(context.seed)  # noqa: S311 (repeatable, not secret)
        probe = context.probe
        probe.create_topics()
        probe.check(time.monotonic())
        for _ in range(count):
            kind = draw.choice((FaultKind.PAUSE_BROKER, FaultKind.PAUSE_LEADER))
            lasts_seconds = SESSION_SECONDS * draw.uniform(*PAUSE_FACTORS)
            context.nemesis.do(Fault(kind=kind, target=draw.randrange(TARGETS)))
            time.sleep(lasts_seconds)
            context.nemesis.heal()
            probe.check(time.monotonic())
            context.nemesis.report_crashed_brokers()
        for description in probe.result.late:
            context.findings.add(Kind.NOT_HEALED, "a registered broker", description)

    return inflict


def kills_of_leaders(count: int) -> Inflict:
    """Kill one leader after the other, each time after all replicas are in sync."""
    return _kills(FaultKind.KILL_LEADER, count)


def kills_of_group_coordinators(count: int) -> Inflict:
    """Kill one group coordinator after the other, each time after all replicas are in sync."""
    return _kills(FaultKind.KILL_GROUP_COORDINATOR, count)


def switches_only(count: int, every_seconds: float) -> Inflict:
    """No faults; wait while the workload's switcher changes modes."""

    def inflict(context: RunContext) -> None:
        def all_done() -> bool:
            return all(len(each.times_ms) >= count for each in context.workload.switchers)

        if not context.wait_until(all_done, count * every_seconds * 2 + HEAL_SECONDS_MAX):
            context.findings.add(
                Kind.NOT_HEALED, "switches", f"fewer than {count} succeeded in time"
            )

    return inflict


def damages(count: int) -> Inflict:
    """Damage the files of one broker after the other; before and after, all replicas are caught up."""

    def inflict(context: RunContext) -> None:
        draw = random.Random(context.seed)  # noqa: S311 (repeatable, not secret)
        kinds = itertools.cycle(DamageKind)
        for _ in range(count):
            if not _are_intact(context, "before the damage"):
                return
            kind, names = next(kinds), context.workload.partition_names
            context.nemesis.damage(
                draw.choice(context.cluster_under_test.broker_ids),
                functools.partial(do_damage, kind, partitions=names, draw=draw),
            )
            context.nemesis.heal()
            if not _are_intact(context, f"after {kind}"):
                return

    return inflict


def _are_intact(context: RunContext, when: str) -> bool:
    """Wait until every replica has all that any replica has now, also of internal topics."""
    for name in sorted({*context.workload.partition_names, *context.cluster_under_test.leaders()}):
        folders = context.cluster_under_test.folders(name)
        end = max(end_offset(folder) for folder in folders.values())
        if not context.wait_until(functools.partial(are_equal, folders, end)):
            context.findings.add(Kind.NOT_HEALED, name, f"{when}: not all replicas equal to {end}")
            return False
    return True


def _kills(kind: FaultKind, count: int) -> Inflict:
    def inflict(context: RunContext) -> None:
        draw = random.Random(context.seed)  # noqa: S311 (repeatable, not secret)
        for _ in range(count):
            if not context.wait_until(lambda: context.cluster_under_test.in_sync(context.topics)):
                context.findings.add(
                    Kind.NOT_HEALED, "replicas", context.cluster_under_test.describe(context.topics)
                )
                return
            injected = _kill_target(context, kind, draw)
            if injected is None:
                context.findings.add(Kind.NOT_HEALED, "targets", f"no target to {kind}")
                return
            _wait_for_progress(context, injected)
            context.nemesis.heal()

    return inflict


def _kill_target(context: RunContext, kind: FaultKind, draw: random.Random) -> InjectedFault | None:
    """Retry until there is a target: a group may have no coordinator for a moment."""
    done: list[InjectedFault] = []

    def tried() -> bool:
        injected = context.nemesis.do(Fault(kind=kind, target=draw.randrange(TARGETS)))
        done.extend([injected] if injected is not None else [])
        return bool(done)

    return done[0] if context.wait_until(tried) else None


def _wait_for_progress(context: RunContext, injected: InjectedFault) -> None:
    places = injected.leaders_hit | injected.groups_hit
    context.wait_until(lambda: context.workload.progress.has_passed(places, injected.time_ms))
