"""Floods of failed logins by a program in C: Python reaches a tenth of the rate. Built once."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.quotas import alter_quotas

from .target import Target, address

SOURCE = Path(__file__).with_suffix(".c")
PROGRAM = SOURCE.parents[2] / "build" / "attack" / "login_flood"
WARNINGS = ("-O2", "-Wall", "-Wextra", "-Werror")
ATTEMPTS_PER_SECOND = 12_000
OFFERED_PER_SECOND_MIN = 10_000
MANY_ADDRESSES = 250
COUNTS = ("offered", "accepted", "answered", "closed", "given_up", "not_opened")


def build() -> None:
    if PROGRAM.exists() and PROGRAM.stat().st_mtime >= SOURCE.stat().st_mtime:
        return
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", *WARNINGS, "-o", str(PROGRAM), str(SOURCE)], check=True)


def flood_command(target: Target, mechanism: str, *, per_second: int, addresses: int) -> list[str]:
    host, port = address(target.sasl)
    return [str(word) for word in (PROGRAM, host, port, mechanism, per_second, addresses)]


async def _flood(target: Target, mechanism: str, addresses: int) -> None:
    await asyncio.to_thread(build)
    command = flood_command(target, mechanism, per_second=ATTEMPTS_PER_SECOND, addresses=addresses)
    # It ends with this process, and prints its counts to the same output.
    await asyncio.create_subprocess_exec(*command)


async def login_flood_plain(target: Target) -> None:
    """12,000 connections a second from 250 addresses, each with a wrong password."""
    await _flood(target, "plain", MANY_ADDRESSES)


async def login_flood_scram(target: Target) -> None:
    """12,000 connections a second from 250 addresses, each with a wrong proof."""
    await _flood(target, "scram", MANY_ADDRESSES)


async def login_flood_of_one_address(target: Target) -> None:
    """12,000 connections a second from one address, each with a wrong proof."""
    await _flood(target, "scram", 1)


async def login_flood_within_quotas(target: Target) -> None:
    """The same, where an address may open 2 connections a second, and that of the honest client 500."""
    await asyncio.to_thread(_limit_connections, target)
    await _flood(target, "scram", MANY_ADDRESSES)


def _limit_connections(target: Target) -> None:
    with ClusterConnection(target.kafka) as admin:
        for ip, rate in (("127.0.0.1", 500), (None, 2)):
            alter_quotas(admin, {"ip": ip}, {"connection_creation_rate": rate})


LOGIN_FLOODS: dict[str, Callable[[Target], Awaitable[None]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        login_flood_plain,
        login_flood_scram,
        login_flood_of_one_address,
        login_flood_within_quotas,
    )
}


def rates_of(lines: Sequence[str]) -> dict[str, float]:
    """What the program counted, each in the mean of a second; empty for the output of another attack."""
    seconds = [json.loads(line) for line in lines if line.startswith("{")]
    if not seconds:
        return {}
    elapsed = sum(each["seconds"] for each in seconds)
    rates = {name: sum(each[name] for each in seconds) / elapsed for name in COUNTS}
    return rates | {"cpu": seconds[-1]["cpu_seconds"] / elapsed}
