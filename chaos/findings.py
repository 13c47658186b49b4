"""The kinds of findings, each with its meaning."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EXAMPLES_MAX: Final = 3


class Kind(StrEnum):
    """The kinds of findings. Each is a violated guarantee."""

    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    ABORTED_READ = "aborted-read"
    PHANTOM = "phantom"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    COMMIT_REGRESSED = "commit-regressed"
    INTERMEDIATE_READ = "intermediate-read"
    TORN_TRANSACTION = "torn-transaction"
    WRITE_CYCLE = "write-cycle"
    READ_CYCLE = "read-cycle"
    ZOMBIE_COMMIT = "zombie-commit"
    CONSUMED_TWICE = "consumed-twice"
    NOT_CONSUMED = "not-consumed"
    LAST_STABLE_STUCK = "last-stable-stuck"
    REPLICAS_DIFFER = "replicas-differ"
    REPLICA_SHORT = "replica-short"
    REPLICA_DAMAGED = "replica-damaged"
    EPOCH_WENT_BACK = "epoch-went-back"
    NOT_HEALED = "not-healed"
    BROKER_FELL = "broker-fell"
    CLIENT_FATAL = "client-fatal"


MEANINGS: Final = {
    Kind.LOST_WRITE: "a value acknowledged or read, below the highest offset, is gone at the end",
    Kind.UNSEEN: "a value acknowledged or read, at the end of its log, is gone at the end",
    Kind.DUPLICATE: "one value at two offsets",
    Kind.INCONSISTENT_OFFSETS: "two values at one offset",
    Kind.ABORTED_READ: "a value was read whose send had certainly failed (G1a)",
    Kind.PHANTOM: "a value was read that no producer sent to this partition",
    Kind.POLL_SKIP: "a reader skipped an offset that holds a value",
    Kind.NONMONOTONIC_POLL: "a reader received an offset at or below the one before",
    Kind.NONMONOTONIC_SEND: "one producer's values are not in the order in which it sent them",
    Kind.COMMIT_REGRESSED: "a group's committed offset decreased",
    Kind.INTERMEDIATE_READ: "a value was read before its transaction was asked to commit (G1b)",
    Kind.TORN_TRANSACTION: "of a committed transaction some values are there and others are not",
    Kind.WRITE_CYCLE: "transactions of one transactional id are not one after the other in the logs (G0)",
    Kind.READ_CYCLE: "two transactions read of each other, or one of itself (G1c)",
    Kind.ZOMBIE_COMMIT: "a transaction was committed after another process had taken over its transactional id",
    Kind.CONSUMED_TWICE: "two committed transactions consumed one value",
    Kind.NOT_CONSUMED: "no committed transaction consumed a value",
    Kind.LAST_STABLE_STUCK: "a last stable offset below the high watermark stands still",
    Kind.REPLICAS_DIFFER: "two replicas hold different bytes below the high watermark",
    Kind.REPLICA_SHORT: "a replica never caught up with the high watermark",
    Kind.REPLICA_DAMAGED: "a replica's files are not a sequence of record batches",
    Kind.EPOCH_WENT_BACK: "a leader epoch in a log is lower than one before it",
    Kind.NOT_HEALED: "all faults are over, but writes or reads do not continue",
    Kind.BROKER_FELL: "a broker exited, or did not start, without being killed",
    Kind.CLIENT_FATAL: "a client got a fatal error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """All findings of one kind at one place."""

    kind: Kind
    place: str
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        more = "" if self.count <= len(self.examples) else f" (and {self.count} in all)"
        return f"{self.kind} at {self.place}: {'; '.join(self.examples)}{more}"


class Findings:
    """Counts findings by kind and place, and keeps the first few of each as examples."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Kind, str], int] = {}
        self._examples: dict[tuple[Kind, str], list[str]] = {}

    def add(self, kind: Kind, place: str, example: str) -> None:
        key = (kind, place)
        self._counts[key] = self._counts.get(key, 0) + 1
        examples = self._examples.setdefault(key, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)

    def __iter__(self) -> Iterator[Finding]:
        for (kind, place), count in self._counts.items():
            examples = tuple(self._examples[kind, place])
            yield Finding(kind=kind, place=place, count=count, examples=examples)
