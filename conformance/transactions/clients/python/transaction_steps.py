"""The steps of a client with transactions: the arguments of its program, and one line for each step."""

import argparse
import sys
import time
import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass

WAIT_S = 60
VALUES = 3  # of a transaction, in each topic
END = b"end"
STEPS = ("commit", "abort", "committed", "uncommitted", "offsets", "fenced", "misuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What every program of this suite is given, in whatever language it is written. Topics have one partition."""

    bootstrap: str
    first: str
    second: str
    id: str  # transactional id
    group: str

    @property
    def topics(self) -> tuple[str, str]:
        return (self.first, self.second)


def arguments() -> Arguments:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "first", "second", "id", "group"):
        parser.add_argument(f"--{name}", required=True)
    return Arguments(**vars(parser.parse_args()))


def values(word: str) -> list[bytes]:
    return [f"{word}-{number}".encode() for number in range(VALUES)]


class Client(ABC):
    """What a client has to do; each method with what the suite says about it."""

    def __init__(self, given: Arguments) -> None:
        self.given = given

    @abstractmethod
    def transact(self, word: str, *, is_commit: bool) -> None:
        """Send `values(word)` to both topics in one transaction, and end it."""

    @abstractmethod
    def send_end(self) -> None:
        """Send END to both topics, without a transaction."""

    @abstractmethod
    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        """All values of a topic up to END, without it."""

    @abstractmethod
    def send_offsets(self, offset: int, *, is_commit: bool) -> None:
        """Commit this offset of the first topic in a transaction of the group, with a value in the second topic."""

    @abstractmethod
    def committed_offset(self) -> int:
        """Of the group, in the first topic; -1 if there is none."""

    @abstractmethod
    def fenced(self) -> bool:
        """Whether an open transaction cannot be committed any more after a second instance has begun."""

    @abstractmethod
    def misuse(self) -> bool:
        """Whether a value outside of a transaction and an end without one are refused, and a transaction after that works."""


def run(client: Client) -> None:
    """Play all steps and print the verdict of each."""
    bodies = {
        "commit": lambda: client.transact("committed", is_commit=True),
        "abort": lambda: _abort(client),
        "committed": lambda: _check_read(client, committed=True),
        "uncommitted": lambda: _check_read(client, committed=False),
        "offsets": lambda: _check_offsets(client),
        "fenced": lambda: _check(client.fenced(), "the first instance could commit"),
        "misuse": lambda: _check(client.misuse(), "it was not refused"),
    }
    has_failed = False
    for step in STEPS:
        began = time.monotonic()
        try:
            bodies[step]()
            verdict = "PASS"
        except Exception:
            traceback.print_exc()
            verdict = "FAIL"
            has_failed = True
        print(f"{verdict}\t{step}", flush=True)
        print(f"{time.monotonic() - began:6.1f} s  {step}", file=sys.stderr)
    sys.exit(1 if has_failed else 0)


def _abort(client: Client) -> None:
    client.transact("aborted", is_commit=False)
    client.transact("again", is_commit=True)
    client.send_end()


def _check_read(client: Client, *, committed: bool) -> None:
    words = ("committed", "again") if committed else ("committed", "aborted", "again")
    expected = [value for word in words for value in values(word)]
    for topic in client.given.topics:
        found = client.read(topic, committed=committed)
        _check(found == expected, f"{topic}: {found}")


def _check_offsets(client: Client) -> None:
    client.send_offsets(2, is_commit=True)
    _check(client.committed_offset() == 2, "the offset was not committed")
    client.send_offsets(5, is_commit=False)
    _check(client.committed_offset() == 2, "the offset of an aborted transaction was committed")
    client.send_offsets(3, is_commit=True)
    _check(client.committed_offset() == 3, "the second offset was not committed")


def _check(fact: bool, words: str) -> None:
    assert fact, words
