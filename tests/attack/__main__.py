"""`make attack`: runs each attack on a real broker beside an honest client, and measures both.

Prints a table. Exits with 1 if an honest client waited or failed, memory grew too far, or the broker did not
recover or stop.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from zhumq.testing.process import BrokerProcess

from .attacker import ATTACKS, BEGUN
from .honest import HonestClient, HonestLogins, Samples
from .login_flood import LOGIN_FLOODS, OFFERED_PER_SECOND_MIN, rates_of
from .target import Target, attacked_broker, memory_bytes, reset_peak

P99_SECONDS_MAX = 0.25
MEMORY_BYTES_MAX = 512 * 1024 * 1024
BEGIN_SECONDS_MAX = 60.0
RECOVERY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
AFTER_SECONDS = 12.0  # from the end of an attack to the measurement of the memory
ERRORS_SHARE_MAX = 0.01
KILLED = -9
MB = 1_000_000
ROW = "{:<36} {:>6} {:>7} {:>7} {:>8} {:>4} {:>7} {:>7} {:>7} {:>8} {:>6}  {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The measurements of one attack."""

    name: str
    samples: Samples
    before_bytes: int
    peak_bytes: int
    after_bytes: int
    recovery_seconds: float | None
    stop_seconds: float
    exit_code: int
    rates: dict[str, float]  # of a flood of logins, a second
    logins: Samples  # of a user at the same listener; it may have to wait for its turn

    @property
    def findings(self) -> list[str]:
        found = []
        samples = self.samples
        if samples.percentile(0.99) >= P99_SECONDS_MAX:
            found.append("p99")
        if len(samples.errors) > len(samples.seconds) * ERRORS_SHARE_MAX:
            found.append(f"errors ({samples.errors[0]})")
        if self.peak_bytes >= MEMORY_BYTES_MAX:
            found.append("memory")
        if self.recovery_seconds is None:
            found.append("no recovery")
        if self.exit_code or self.stop_seconds > STOP_SECONDS_MAX:
            found.append("stop")
        if self.rates and self.rates["offered"] < OFFERED_PER_SECOND_MIN:
            found.append("offered too little")
        return found

    def row(self) -> str:
        samples = self.samples
        row = self._row(samples)
        if self.rates:
            counts = (f"{name.replace('_', ' ')} {rate:,.1f}" for name, rate in self.rates.items())
            row += f"\n  a second: {', '.join(counts)}"
            row += (
                f"\n  honest logins at the same listener: {len(self.logins.seconds)}, "
                + ", ".join(
                    f"{name} {self.logins.percentile(share) * 1000:.0f} ms"
                    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
                )
            )
            row += f", failed {len(self.logins.errors)}"
        return row

    def _row(self, samples: Samples) -> str:
        recovery = "never" if self.recovery_seconds is None else f"{self.recovery_seconds:.1f} s"
        return ROW.format(
            self.name,
            len(samples.seconds),
            *(f"{samples.percentile(share) * 1000:.1f}" for share in (0.5, 0.99, 1.0)),
            len(samples.errors),
            *(
                f"{size / MB:.0f}"
                for size in (self.before_bytes, self.peak_bytes, self.after_bytes)
            ),
            recovery,
            f"{self.stop_seconds:.1f}",
            ", ".join(self.findings) or "ok",
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help="all of them by default")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each one lasts")
    parser.add_argument("--list", action="store_true", help="list the attacks and exit")
    arguments = parser.parse_args()
    if arguments.list:
        for name, attack in ATTACKS.items():
            sys.stdout.write(f"{name:<36} {attack.__doc__}\n")
        return 0
    unknown = set(arguments.names) - ATTACKS.keys()
    if unknown:
        parser.error(f"there is no attack {', '.join(sorted(unknown))}; --list shows all")
    load = Path("/proc/loadavg").read_text().split()[0]
    print(f"{os.cpu_count()} cores, load {load}; ms of an honest client, MB of the broker")
    header = ("ops", "p50", "p99", "max", "errs", "before", "peak", "after", "recovery", "stop")
    print(ROW.format("attack", *header, "verdict"), flush=True)
    results = run_all(arguments.names or ATTACKS, arguments.seconds)
    return 1 if any(result.findings for result in results) else 0


def run_all(names: Iterable[str], seconds: float) -> list[Result]:
    results = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="zhumq-attack-") as folder:
            result = run_one(name, seconds, Path(folder))
        print(result.row(), flush=True)
        results.append(result)
    return results


def run_one(name: str, seconds: float, folder: Path) -> Result:
    with attacked_broker(folder) as (broker, target):
        honest = HonestClient(target)
        honest.start()
        honest.wait_calm(RECOVERY_SECONDS_MAX)
        before_bytes = memory_bytes(broker.pid, "VmRSS")
        honest.samples = Samples()
        reset_peak(broker.pid)
        logins = HonestLogins(target)
        if name in LOGIN_FLOODS:
            logins.start()
        rates = _attack(name, target, seconds)
        # Samples from after the attack would only improve the percentiles.
        samples, honest.samples = honest.samples, Samples()
        login_samples, logins.samples = logins.samples, Samples()
        peak_bytes = memory_bytes(broker.pid, "VmHWM")
        ended = time.monotonic()
        recovery_seconds = honest.wait_calm(RECOVERY_SECONDS_MAX)
        time.sleep(max(0.0, AFTER_SECONDS - (time.monotonic() - ended)))
        after_bytes = memory_bytes(broker.pid, "VmRSS")
        honest.stop()
        logins.stop()
        stop_seconds, exit_code = _stop_under_attack(name, target, broker)
    return Result(
        name=name,
        samples=samples,
        before_bytes=before_bytes,
        peak_bytes=peak_bytes,
        after_bytes=after_bytes,
        recovery_seconds=recovery_seconds,
        stop_seconds=stop_seconds,
        exit_code=exit_code,
        rates=rates,
        logins=login_samples,
    )


def _attack(name: str, target: Target, seconds: float) -> dict[str, float]:
    """What the attack counted, a second, if it did."""
    attacker = _start(name, target)
    try:
        time.sleep(seconds)
    finally:
        _end(attacker)
    assert attacker.stdout is not None
    os.set_blocking(attacker.stdout.fileno(), True)
    return rates_of(attacker.stdout.read().splitlines())


def _stop_under_attack(name: str, target: Target, broker: BrokerProcess) -> tuple[float, int]:
    """Sends SIGTERM in the middle of the same attack. Returns the seconds of the stop and the exit code."""
    attacker = _start(name, target)
    try:
        begun = time.monotonic()
        try:
            exit_code = broker.stop()
        except subprocess.TimeoutExpired:
            exit_code = KILLED
        return time.monotonic() - begun, exit_code
    finally:
        _end(attacker)


def _start(name: str, target: Target) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.attack.attacker", name, *target.to_arguments()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    output: IO[str] | None = process.stdout
    assert output is not None
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    os.set_blocking(output.fileno(), False)
    while time.monotonic() < deadline and process.poll() is None:
        if BEGUN in (output.readline() or ""):
            return process
        time.sleep(0.01)
    _end(process)
    raise RuntimeError(f"the attack {name} did not begin")


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
