"""`make archive-volume`: archives very many messages into Parquet and Delta at once, with an upkeep beside it: memory, files."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import deltalake
import pyarrow.compute as pc
import pyarrow.dataset
from rich.console import Console
from rich.table import Table

from benchmarks.cases import topic_on
from benchmarks.loaders import build_loaders, produce
from benchmarks.report import commit, machine
from benchmarks.server import Server
from benchmarks.spark_session import ROLES, PeakMemory
from benchmarks.zhumq_server import prepare_zhumq

MESSAGES: Final = 100_000_000
MESSAGE_BYTES: Final = 100
PARTITIONS: Final = 4
ROWS_PER_BATCH: Final = 500_000
HEAP: Final = "1g"
POLL_SECONDS: Final = 5.0
STOP_SECONDS_MAX: Final = 300.0

# Both sinks share one read. The upkeep begins with the first full minute.
PIPELINE: Final = """\
name: volume
trigger: 1s
spark: {{spark.driver.memory: {heap}}}
sources:
  records: {{topic: {topic}, from: earliest, options: {{maxOffsetsPerTrigger: {batch}}}}}
sinks:
  parquet: {{from: records, table: {folder}/parquet}}
  delta: {{from: records, table: {folder}/delta, format: delta, upkeep: {{every: 1m, older_than: 1h}}}}
"""


@dataclass(slots=True)
class Archive:
    """The two tables of a run."""

    folder: Path
    files_max: int = 0  # of the newest version of the Delta table, at any look

    def rows(self) -> int:
        """How many rows both sinks have written, by the status of the run."""
        try:
            status = json.loads((self.folder / "state/volume/status.json").read_text())
        except FileNotFoundError:
            return 0
        return min((each["rows_out"] or 0 for each in status["sinks"].values()), default=0)

    def look(self) -> None:
        if (self.folder / "delta/_delta_log").is_dir():
            files = len(deltalake.DeltaTable(str(self.folder / "delta")).file_uris())
            self.files_max = max(self.files_max, files)

    def files(self, table: str) -> int:
        return sum(1 for _ in (self.folder / table).rglob("*.parquet"))

    def check(self, count: int) -> None:
        """Each table has each offset of each partition once, as far as counts, ends and sums tell."""
        delta = deltalake.DeltaTable(str(self.folder / "delta")).to_pyarrow_dataset()
        parquet = pyarrow.dataset.dataset(str(self.folder / "parquet"), format="parquet")
        for name, found in (("delta", delta), ("parquet", parquet)):
            counts, sums, ends = {}, {}, {}
            for batch in found.to_batches(columns=["partition", "offset"]):
                for group in pc.unique(batch["partition"]).to_pylist():
                    offsets = batch["offset"].filter(pc.equal(batch["partition"], group))
                    counts[group] = counts.get(group, 0) + len(offsets)
                    sums[group] = sums.get(group, 0) + pc.sum(offsets).as_py()
                    ends[group] = max(ends.get(group, 0), pc.max(offsets).as_py() + 1)
            expected = {each: end * (end - 1) // 2 for each, end in ends.items()}
            if counts != ends or sums != expected or sum(counts.values()) != count:
                raise SystemExit(f"{name} has {counts}, up to {ends}, of {count:,} messages")


@contextmanager
def running(folder: Path, topic: str, server: Server) -> Iterator["subprocess.Popen[bytes]"]:
    file = folder / "volume.yml"
    text = PIPELINE.format(topic=topic, folder=folder, batch=ROWS_PER_BATCH, heap=HEAP)
    file.write_text(text)
    words = [sys.executable, "-m", "zhumq", "pipeline", "run", str(file), "--bootstrap"]
    words += [server.bootstrap, "--state-dir", str(folder / "state"), "--master", "local[2]"]
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def follow(process: "subprocess.Popen[bytes]", archive: Archive, count: int) -> float:
    """Wait until both tables have everything, stop the run, and return the seconds until then."""
    began = time.monotonic()
    shown = 0
    while archive.rows() < count:
        if process.poll() is not None:
            log = (archive.folder / "run.log").read_text()[-2000:]
            raise SystemExit(f"the run ended with exit code {process.returncode}: {log}")
        archive.look()
        if archive.rows() - shown >= count // 20:
            shown = archive.rows()
            print(f"{shown:,} rows, {archive.files_max} files at most", flush=True)
        time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - began
    os.kill(process.pid, signal.SIGTERM)
    if process.wait(STOP_SECONDS_MAX) != 0:
        raise SystemExit(f"the run stopped with exit code {process.returncode}")
    return seconds


def main() -> None:
    """Run once, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    count = parser.parse_args().messages
    build_loaders()
    with tempfile.TemporaryDirectory(prefix="zhumq-archive-") as name:
        folder = Path(name)
        archive = Archive(folder)
        with prepare_zhumq(folder).start() as server, topic_on(server, PARTITIONS) as topic:
            produce(server, topic, partitions=PARTITIONS, count=count, size=MESSAGE_BYTES, acks=1)
            with PeakMemory(broker=server.pid) as peak, running(folder, topic, server) as process:
                seconds = follow(process, archive, count)
        archive.check(count)
        kept_up = (folder / "run.log").read_text().count("kept up")
        cores = machine()["cores"]
        table = Table(
            title=f"{count:,} messages of {MESSAGE_BYTES} B into Parquet and Delta, in batches of"
            f" {ROWS_PER_BATCH:,}, JVM heap {HEAP}; {commit()}, {cores} cores",
        )
        figures = {
            "s": f"{seconds:,.0f}",
            "rows/s into each": f"{count / seconds:,.0f}",
            **{f"{role}, MB": f"{peak.largest.get(role, 0) / 1e6:,.0f}" for role in ROLES},
            "upkeeps": str(kept_up),
            "files of the Delta table, at most": str(archive.files_max),
            "files of Delta on the disk": str(archive.files("delta")),
            "files of Parquet": str(archive.files("parquet")),
        }
        for heading in figures:
            table.add_column(heading, justify="right")
        table.add_row(*figures.values())
        Console(width=200).print(table)


if __name__ == "__main__":
    main()
