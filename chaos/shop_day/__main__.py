"""A day in a shop, with kills, and the comparison at its end: `python -m chaos.shop_day`."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.interruption import interruptible
from chaos.shop_day.generator import ROWS_MIN
from chaos.shop_day.run import DayOptions, run_day

ROWS_DEFAULT = 100_000


def main(arguments: list[str] | None = None) -> int:
    """Run once; 1 if a row differs."""
    parser = argparse.ArgumentParser(prog="python -m chaos.shop_day", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS_DEFAULT, help="about so many messages")
    parser.add_argument(
        "--kills", type=int, default=20, help="of drivers, of executors and of brokers each"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the data and of the kills")
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder even if nothing differs"
    )
    chosen = parser.parse_args(arguments)
    if chosen.rows < ROWS_MIN:
        parser.error(f"--rows is at least {ROWS_MIN}")
    if chosen.kills < 0:
        parser.error("--kills is 0 or more")
    folder = Path(tempfile.mkdtemp(prefix="zhumq-shop-day-"))
    _print_line(f"in {folder}")
    options = DayOptions(rows=chosen.rows, kills=chosen.kills, seed=chosen.seed)
    done = run_day(options, folder, _print_line)
    for line in done.lines:
        _print_line(line)
    if done.found or chosen.keep:
        _print_line(f"data and logs: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if done.found else 0


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(interruptible(main, "the processes are killed, the data stays"))
