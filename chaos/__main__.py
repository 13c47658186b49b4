"""Injects faults into a real cluster and checks the history of its clients: `python -m chaos`."""

import argparse
import sys

from chaos.interruption import interruptible
from chaos.modes import (
    damages,
    kills_of_group_coordinators,
    kills_of_leaders,
    mixed_faults,
    pauses,
    switches_only,
)
from chaos.run import BROKERS, TOPICS, TRANSACTION_TOPICS, ChaosRun, run
from chaos.schedule import MIXED, FaultKind
from chaos.workload import TopicPlan


def main(arguments: list[str] | None = None) -> int:
    """Run once; 1 if the checker found anything."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="inject faults for so long")
    parser.add_argument(
        "--rounds", type=int, help="inject so many rounds of faults instead, however long they take"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the schedule")
    parser.add_argument(
        "--kills", type=int, help="instead: kill so many leaders, and measure the write gaps"
    )
    parser.add_argument(
        "--coordinator-kills", type=int, help="instead: kill so many group coordinators"
    )
    parser.add_argument(
        "--pauses", type=int, help="instead: pause brokers so often, for about a ZooKeeper session"
    )
    parser.add_argument(
        "--switches", type=int, help="instead: change modes so often, without faults"
    )
    parser.add_argument(
        "--damages", type=int, help="instead: so many flipped, zeroed, cut or empty disks"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[each.name for each in FaultKind],
        help="inject only these kinds of faults",
    )
    parser.add_argument(
        "--move-every",
        type=float,
        metavar="SECONDS",
        help="add a fourth broker, and move a partition's replicas at this interval",
    )
    parser.add_argument(
        "--transactions",
        action="store_true",
        help="clients write transactions, and some of their requests are delayed",
    )
    parser.add_argument("--zookeeper-nodes", type=int, default=3)
    parser.add_argument("--per-second", type=int, default=300, help="sends per producer")
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder even if nothing is found"
    )
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
        # A broker that comes back soon leads partitions again.
        settings["leader.imbalance.check.interval.seconds"] = "2"
    elif chosen.damages is not None:
        title, inflict = f"{chosen.damages} damaged disks", damages(chosen.damages)
        # Recovery scans what was written since the last checkpoint: without checkpoints, everything.
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
    if chosen.transactions:
        title, topics = f"transactions, {title}", TRANSACTION_TOPICS
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
            transactional=chosen.transactions,
            producers=4 if chosen.transactions else 2,
            keep=chosen.keep,
            print_line=_print_line,
        )
    )
    for line in report.lines():
        _print_line(line)
    return 0 if report.is_clean else 1


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(interruptible(main, "the brokers are killed, their data stays"))
