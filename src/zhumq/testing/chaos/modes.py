"""The kinds of runs: mixed faults, kills of one sort, pauses, damaged files, changes of mode."""

import functools
import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from zhumq.testing.chaos.damage import DamageKind, are_equal, do_damage, end_offset
from zhumq.testing.chaos.findings import Kind
from zhumq.testing.chaos.nemesis import Deed
from zhumq.testing.chaos.scene import HEAL_SECONDS_MAX, Scene
from zhumq.testing.chaos.schedule import MIXED, TARGETS, Durations, Fault, FaultKind, steps

Harm = Callable[[Scene], None]

# What brokers ask for (zookeeper.session.timeout.ms) unless they are told otherwise.
SESSION_SECONDS: Final = 2.0
# Of the length of a session: some of these pauses end before it does, some when, some after it.
PAUSE_FACTORS: Final = (0.6, 2.5)


def mixed_faults(
    seconds: float = math.inf,
    *,
    rounds: int | None = None,
    kinds: Sequence[FaultKind] = MIXED,
    durations: Durations | None = None,
) -> Harm:
    """Every kind of fault, dealt by the seed, for so long or in so many rounds."""

    def harm(scene: Scene) -> None:
        schedule = steps(scene.seed, kinds=kinds, durations=durations)
        scene.nemesis.run(itertools.islice(schedule, rounds), seconds=seconds)

    return harm


def pauses(count: int) -> Harm:
    """Brokers stand still for about the length of a session, one after the other; after each every
    registered broker must serve what it is the leader of."""

    def harm(scene: Scene) -> None:
        draw = random.Random(scene.seed)  # noqa: S311 (repeatable, not secret)
        probe = scene.probe
        probe.create_topics()
        probe.check(time.monotonic())
        for _ in range(count):
            kind = draw.choice((FaultKind.PAUSE_BROKER, FaultKind.PAUSE_LEADER))
            lasts_seconds = SESSION_SECONDS * draw.uniform(*PAUSE_FACTORS)
            scene.nemesis.do(Fault(kind=kind, target=draw.randrange(TARGETS)))
            time.sleep(lasts_seconds)
            scene.nemesis.heal()
            probe.check(time.monotonic())
            scene.nemesis.look_for_the_fallen()
        for words in probe.result.late:
            scene.findings.add(Kind.NOT_HEALED, "a registered broker", words)

    return harm


def kills_of_leaders(count: int) -> Harm:
    """One leader after the other; each time all replicas are in sync before."""
    return _kills(FaultKind.KILL_LEADER, count)


def kills_of_group_coordinators(count: int) -> Harm:
    """One group's coordinator after the other; each time all replicas are in sync before."""
    return _kills(FaultKind.KILL_GROUP_COORDINATOR, count)


def switches_only(count: int, every_seconds: float) -> Harm:
    """No fault at all, while the workload's switcher switches."""

    def harm(scene: Scene) -> None:
        def all_done() -> bool:
            return all(len(each.times_ms) >= count for each in scene.workload.switchers)

        if not scene.wait_until(all_done, count * every_seconds * 2 + HEAL_SECONDS_MAX):
            scene.findings.add(Kind.NOT_HEALED, "switches", f"not {count} were granted in time")

    return harm


def damages(count: int) -> Harm:
    """One broker's files after the other's; each time all replicas are whole before and after."""

    def harm(scene: Scene) -> None:
        draw = random.Random(scene.seed)  # noqa: S311 (repeatable, not secret)
        kinds = itertools.cycle(DamageKind)
        for _ in range(count):
            if not _are_whole(scene, "before the damage"):
                return
            kind, names = next(kinds), scene.workload.partition_names
            scene.nemesis.damage(
                draw.choice(scene.field.broker_ids),
                functools.partial(do_damage, kind, partitions=names, draw=draw),
            )
            scene.nemesis.heal()
            if not _are_whole(scene, f"after {kind}"):
                return

    return harm


def _are_whole(scene: Scene, when: str) -> bool:
    """Wait until every replica has all that any replica has now, also of what brokers keep."""
    for name in sorted({*scene.workload.partition_names, *scene.field.leaders()}):
        folders = scene.field.folders(name)
        end = max(end_offset(folder) for folder in folders.values())
        if not scene.wait_until(functools.partial(are_equal, folders, end)):
            scene.findings.add(Kind.NOT_HEALED, name, f"{when}: not all replicas equal to {end}")
            return False
    return True


def _kills(kind: FaultKind, count: int) -> Harm:
    def harm(scene: Scene) -> None:
        draw = random.Random(scene.seed)  # noqa: S311 (repeatable, not secret)
        for _ in range(count):
            if not scene.wait_until(lambda: scene.field.in_sync(scene.topics)):
                scene.findings.add(Kind.NOT_HEALED, "replicas", scene.field.describe(scene.topics))
                return
            deed = _kill_somebody(scene, kind, draw)
            if deed is None:
                scene.findings.add(Kind.NOT_HEALED, "targets", f"there is nobody to {kind}")
                return
            _wait_for_progress(scene, deed)
            scene.nemesis.heal()

    return harm


def _kill_somebody(scene: Scene, kind: FaultKind, draw: random.Random) -> Deed | None:
    """Try until there is a target, as a group may be without a coordinator for a moment."""
    done: list[Deed] = []

    def tried() -> bool:
        deed = scene.nemesis.do(Fault(kind=kind, target=draw.randrange(TARGETS)))
        done.extend([deed] if deed is not None else [])
        return bool(done)

    return done[0] if scene.wait_until(tried) else None


def _wait_for_progress(scene: Scene, deed: Deed) -> None:
    places = deed.leaders_hit | deed.groups_hit
    scene.wait_until(lambda: scene.workload.progress.has_passed(places, deed.time_ms))
