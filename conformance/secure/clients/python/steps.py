"""The steps of a client over a secured listener: the arguments of its program, and one line for each step."""

import argparse
import ssl
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

PARTITIONS = 2
RECORDS = 100
WAIT_S = 60
MECHANISM = "SCRAM-SHA-512"
STEPS = ("create", "describe", "produce", "consume", "group", "delete", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What every program of this suite is given, in whatever language it is written."""

    bootstrap: str
    protocol: str  # SASL_SSL or SSL
    ca: Path
    certificate: Path | None
    key: Path | None
    user: str
    password: str
    topic: str

    @property
    def uses_sasl(self) -> bool:
        return self.protocol == "SASL_SSL"

    def with_wrong_credentials(self) -> "Arguments":
        """With a wrong password, or without a certificate."""
        return replace(self, certificate=None, key=None, password=f"not {self.password}")

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def arguments() -> Arguments:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "protocol", "topic"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--certificate", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--user", default="")
    parser.add_argument("--password", default="")
    return Arguments(**vars(parser.parse_args()))


def equal(expected: object, found: object) -> None:
    assert found == expected, f"expected {expected!r}, got {found!r}"


def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.1)


class Client(ABC):
    """What a client can do: methods named after steps, and parts of steps."""

    def __init__(self, given: Arguments) -> None:
        self.given = given

    @abstractmethod
    def send(self, values: list[bytes]) -> None: ...

    @abstractmethod
    def member(self, count: int) -> list[bytes]:
        """A member of the group: reads so many records, commits, leaves."""

    @abstractmethod
    def committed(self) -> int:
        """The committed offsets of the group, added up."""

    def produce(self) -> None:
        self.send(numbers(0, RECORDS))

    def group(self) -> None:
        equal(sorted(numbers(0, RECORDS)), sorted(self.member(RECORDS)))
        self.send(numbers(RECORDS, 1))
        equal(numbers(RECORDS, 1), self.member(1))
        equal(RECORDS + 1, self.committed())


def run(client: object) -> None:
    """Call the methods of the client that are named after steps; each prints PASS or FAIL."""
    failed = False
    for step in STEPS:
        body = getattr(client, step, None)
        if body is None:
            continue
        began = time.monotonic()
        try:
            body()
        except Exception:
            failed = True
            print(step, file=sys.stderr)
            traceback.print_exc()
            print(f"FAIL\t{step}", flush=True)
        else:
            print(f"PASS\t{step}", flush=True)
        print(f"{time.monotonic() - began:5.1f} s  {step}", file=sys.stderr)
    sys.exit(1 if failed else 0)
