"""Breaks a real cluster and checks what its clients saw: `python -m zhumq.testing.chaos`."""

import argparse
import sys

from zhumq.testing.chaos.modes import (
    damages,
    kills_of_group_coordinators,
    kills_of_leaders,
    mixed_faults,
    pauses,
    switches_only,
)
from zhumq.testing.chaos.run import BROKERS, TOPICS, ChaosRun, run
from zhumq.testing.chaos.schedule import MIXED, FaultKind
from zhumq.testing.chaos.workload import TopicPlan


def main(arguments: list[str] | None = None) -> int:
    """Run one campaign; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m zhumq.testing.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long faults come")
    parser.add_argument("--rounds", type=int, help="so many rounds of faults, however long")
    parser.add_argument("--seed", type=int, default=1, help="what the schedule is drawn from")
    parser.add_argument("--kills", type=int, help="instead: so many kills of leaders, measured")
    parser.add_argument("--coordinator-kills", type=int, help="instead: of groups' coordinators")
    parser.add_argument(
        "--pauses", type=int, help="instead: so many pauses around the length of a session"
    )
    parser.add_argument("--switches", type=int, help="instead: so many changes of mode, no fault")
    parser.add_argument("--damages", type=int, help="instead: so many broken, cut, empty disks")
    parser.add_argument(
        "--only", nargs="+", choices=[each.name for each in FaultKind], help="these faults alone"
    )
    parser.add_argument(
        "--move-every",
        type=float,
        metavar="SECONDS",
        help="a fourth broker, and so often a partition's replicas are moved",
    )
    parser.add_argument("--zookeeper-nodes", type=int, default=3)
    parser.add_argument("--per-second", type=int, default=300, help="sends of each producer")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a clean run")
    chosen = parser.parse_args(arguments)
    steady = tuple(each for each in TOPICS if not each.is_switched)
    topics: tuple[TopicPlan, ...] = TOPICS
    switch_seconds = 7.0
    settings: dict[str, str] = {}
    if chosen.kills is not None:
        title, inflict = f"{chosen.kills} kills of leaders", kills_of_leaders(chosen.kills)
        topics = steady
    elif chosen.coordinator_kills is not None:
        title = f"{chosen.coordinator_kills} kills of group coordinators"
        inflict = kills_of_group_coordinators(chosen.coordinator_kills)
        topics = steady
    elif chosen.pauses is not None:
        title, inflict = f"{chosen.pauses} pauses of brokers", pauses(chosen.pauses)
        topics = steady
        # So that whoever comes back is soon the leader of something again.
        settings["leader.imbalance.check.interval.seconds"] = "2"
    elif chosen.damages is not None:
        title, inflict = f"{chosen.damages} damaged disks", damages(chosen.damages)
        # Recovery looks at what was written since the last checkpoint: here, at everything.
        settings["log.flush.offset.checkpoint.interval.ms"] = "86400000"
    elif chosen.switches is not None:
        switch_seconds = 3.0
        title = f"{chosen.switches} changes of mode"
        inflict = switches_only(chosen.switches, switch_seconds)
    else:
        kinds = [FaultKind[name] for name in chosen.only] if chosen.only else list(MIXED)
        if chosen.rounds is not None:
            title = f"{chosen.rounds} rounds of mixed faults"
            inflict = mixed_faults(rounds=chosen.rounds, kinds=kinds)
        else:
            title, inflict = "mixed faults", mixed_faults(chosen.minutes * 60, kinds=kinds)
    report = run(
        ChaosRun(
            title=title,
            seed=chosen.seed,
            inflict=inflict,
            topics=topics,
            zookeeper_nodes=chosen.zookeeper_nodes,
            per_second=chosen.per_second,
            switch_seconds=switch_seconds,
            brokers=BROKERS if chosen.move_every is None else BROKERS + 1,
            move_seconds=chosen.move_every,
            settings=settings,
            keep=chosen.keep,
            tell=_tell,
        )
    )
    for line in report.lines():
        _tell(line)
    return 0 if report.is_clean else 1


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
