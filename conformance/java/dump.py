"""Runs Kafka's DumpLogSegments over every segment of a data folder, and checks its output."""

import re
import subprocess
import sys
from pathlib import Path

FILES_PER_PROCESS = 60  # a JVM for each file would take minutes
KINDS = ("log", "index", "timeindex")
COMPLAINTS = re.compile(
    r"isvalid: false|Mismatches in|Found timestamp mismatch|Found out of order timestamp"
    r"|Exception|invalid bytes|\bWARN\b|\bERROR\b"
)
# The tool begins each file with "the offset before was -1", so a segment that begins elsewhere is always
# reported as "-1 is followed by N"; any other pair is a real gap.
GAP = re.compile(r"^\s+(?!-1 )-?\d+ is followed by \d+")
BATCH = re.compile(r"^baseOffset: \d+")


def is_preallocated(path: Path) -> bool:
    """Whether an index of a running broker is preallocated; the tool reads its zeros as entries."""
    return path.suffix != ".log" and not any(path.read_bytes()[-8:])


def files_to_dump(data: Path) -> list[Path]:
    """Segments that are not empty, with their indexes."""
    logs = sorted(
        path
        for path in data.glob("*/[0-9]*.log")
        if path.stat().st_size and not path.parent.name.endswith("-delete")
    )
    candidates = [path.with_suffix(f".{kind}") for path in logs for kind in KINDS]
    return [
        path
        for path in candidates
        if path.exists() and path.stat().st_size and not is_preallocated(path)
    ]


def main(data: Path, log: Path, java: list[str]) -> int:
    files = files_to_dump(data)
    complaints: list[str] = []
    batches = 0
    with log.open("w") as output:
        for start in range(0, len(files), FILES_PER_PROCESS):
            names = ",".join(map(str, files[start : start + FILES_PER_PROCESS]))
            dumped = subprocess.run(
                [*java, "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
            )  # fmt: skip
            output.write(dumped.stdout)
            lines = dumped.stdout.splitlines()
            batches += sum(1 for line in lines if BATCH.match(line))
            complaints += [line for line in lines if COMPLAINTS.search(line) or GAP.match(line)]
            if dumped.returncode:
                complaints.append(f"exit code {dumped.returncode}")
    print(f"{len(files)} files, {batches} batches, {len(complaints)} complaints", file=sys.stderr)
    for each in complaints[:10]:
        print(f"  {each[:300]}", file=sys.stderr)
    return 0 if batches and not complaints else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
