"""`make scale`: measures the pure cores at the size of large clusters, without a broker."""

import argparse
import gc
import json
import resource
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.report import commit, machine, number
from benchmarks.scale_acls import ACL_COUNTS, SMALL_ACL_COUNTS, acl_figures
from benchmarks.scale_cases import (
    WIDE_TOPICS,
    Figures,
    answer_figures,
    death_figures,
    election_figures,
    fetch_figures,
    image_figures,
    node_figures,
    placement_figures,
    wide_topic_figures,
)
from benchmarks.scale_disk import disk_figures
from benchmarks.scale_world import Size, World
from benchmarks.server import BUILD

BROKERS = (10, 100, 1_000)
SMALL_BROKERS = (3, 10)
SMALL_PARTITIONS_PER_BROKER = 30
SMALL_WIDE_TOPICS = (1_000,)
PIPE_COLUMNS = 140


def measure(size: Size, console: Console) -> dict[str, Figures]:
    """All figures of one size, by case."""
    world = World(size=size)
    cases: dict[str, Figures] = {
        "cluster": {"partitions": size.partitions, "topics": size.topics},
        "placement": placement_figures(world),
    }
    cases["metadata image"], image = image_figures(world)
    cases["metadata image in ZooKeeper"] = node_figures(image)
    cases["a broker dies, fetch mode"] = death_figures(image)
    cases["a broker dies, raft mode"] = election_figures(world)
    cases["idle replication, one broker"] = fetch_figures(world)
    cases["Metadata answers"] = answer_figures(image)
    console.print(f"{size.brokers} brokers, {size.partitions} partitions: done", style="dim")
    return cases


def print_table(columns: dict[str, dict[str, Figures]], title: str, console: Console) -> None:
    table = Table(title=title)
    table.add_column("what")
    table.add_column("figure")
    for heading in columns:
        table.add_column(heading, justify="right")
    for case in next(iter(columns.values())):
        figures = list(dict.fromkeys(name for each in columns.values() for name in each[case]))
        for index, name in enumerate(figures):
            cells = [_cell(each[case].get(name)) for each in columns.values()]
            last = index == len(figures) - 1
            table.add_row(case if index == 0 else "", name, *cells, end_section=last)
    console.print(table)


def _cell(value: float | None) -> str:
    return "" if value is None else number(value)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("--partitions-per-broker", type=int, default=1_000)
    parser.add_argument("--partitions-per-topic", type=int, default=100)
    parser.add_argument("--output", type=Path, default=BUILD / "scale")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)
    began, clock = datetime.now(UTC), time.monotonic()
    sizes = {
        f"{brokers} brokers": Size(
            brokers=brokers,
            partitions_per_broker=(
                SMALL_PARTITIONS_PER_BROKER if arguments.small else arguments.partitions_per_broker
            ),
            partitions_per_topic=10 if arguments.small else arguments.partitions_per_topic,
        )
        for brokers in (SMALL_BROKERS if arguments.small else BROKERS)
    }
    clusters: dict[str, dict[str, Figures]] = {}
    for heading, size in sizes.items():
        clusters[heading] = measure(size, console)
        gc.collect()
    widths = SMALL_WIDE_TOPICS if arguments.small else WIDE_TOPICS
    topics = {f"{width} partitions": {"one topic": wide_topic_figures(width)} for width in widths}
    disk = {"this disk": {"a broker dies, raft mode": disk_figures(small=arguments.small)}}
    counts = SMALL_ACL_COUNTS if arguments.small else ACL_COUNTS
    rules = {f"{count} ACLs": {"authorizer": acl_figures(count)} for count in counts}
    print_table(clusters, "the cores at size", console)
    print_table(topics, "one topic in one node", console)
    print_table(rules, "ACLs", console)
    print_table(disk, "what the survivors write", console)
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "latest.json"
    document = {
        "began": began.isoformat(),
        "command": " ".join(["python", "-m", "benchmarks.scale", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "seconds": time.monotonic() - clock,
        "memory_mb_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "clusters": clusters,
        "topics": topics,
        "acls": rules,
        "disk": disk,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    console.print(
        f"{path}, in {document['seconds']:.0f} s, {document['memory_mb_max']:.0f} MB at most"
    )


if __name__ == "__main__":
    main()
