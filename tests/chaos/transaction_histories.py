"""Builders of operations of transactions, and random histories of transactions without faults."""

import random

from chaos.history import Action, Entry, Operation, Phase
from chaos.transaction_table import ABORT, COMMIT
from histories import assign, last, poll

Write = tuple[str, int]  # partition and value
PARTITIONS = ("p", "q", "r")
READER = 50


def init(process: int, transactional_id: str = "x") -> Operation:
    return Operation(process=process, phase=Phase.OK, action=Action.INIT, group=transactional_id)


def begin(process: int, *writes: Write, transactional_id: str = "x") -> Operation:
    return Operation(
        process=process,
        phase=Phase.INVOKE,
        action=Action.BEGIN,
        entries=tuple(Entry(partition, None, value) for partition, value in writes),
        group=transactional_id,
    )


def consumed(process: int, *reads: tuple[str, int, int]) -> Operation:
    """Of each read: partition, offset, value."""
    entries = tuple(Entry(*each) for each in reads)
    return Operation(process=process, phase=Phase.OK, action=Action.CONSUMED, entries=entries)


def end(process: int, phase: Phase, note: str, transactional_id: str = "x") -> Operation:
    return Operation(
        process=process, phase=phase, action=Action.END, note=note, group=transactional_id
    )


def committed_transaction(
    process: int, *writes: Write, transactional_id: str = "x"
) -> list[Operation]:
    return [
        begin(process, *writes, transactional_id=transactional_id),
        end(process, Phase.INVOKE, COMMIT, transactional_id),
        end(process, Phase.OK, COMMIT, transactional_id),
    ]


def aborted_transaction(
    process: int, *writes: Write, transactional_id: str = "x"
) -> list[Operation]:
    return [
        begin(process, *writes, transactional_id=transactional_id),
        end(process, Phase.INVOKE, ABORT, transactional_id),
        end(process, Phase.OK, ABORT, transactional_id),
    ]


def last_stable(time_ms: int, offset: int, high_watermark: int, partition: str = "p") -> Operation:
    return Operation(
        process=60,
        phase=Phase.OK,
        action=Action.LAST_STABLE,
        entries=(Entry(partition, offset, high_watermark),),
        time_ms=time_ms,
    )


class PerfectTransactions:
    """A random history of transactions on three partitions: writers of their own ids, and one that copies from `p`.

    Some commits are never answered, some transactions abort, some processes are replaced while theirs is open.
    """

    def __init__(self, seed: int, *, steps: int = 120) -> None:
        self._draw = random.Random(seed)
        self.operations: list[Operation] = [
            assign(READER, 0, partition=each) for each in PARTITIONS
        ]
        self.visible: dict[str, list[tuple[int, int]]] = {each: [] for each in PARTITIONS}
        self._ends = dict.fromkeys(PARTITIONS, 0)
        self._read = dict.fromkeys(PARTITIONS, 0)
        self._copied = 0
        self._next_value = 1
        self._next_process = 1
        self._owner: dict[str, int] = {}
        for _ in range(steps):
            self._draw.choice((self._write, self._write, self._copy, self._poll))()
        while self._copied < len(self.visible["p"]):
            self._copy()
        for partition, records in self.visible.items():
            self.operations.append(last(*records, partition=partition))

    def _process_of(self, transactional_id: str) -> int:
        if transactional_id not in self._owner or self._draw.random() < 0.1:
            self._owner[transactional_id] = self._next_process
            self._next_process += 1
            self.operations.append(init(self._owner[transactional_id], transactional_id))
        return self._owner[transactional_id]

    def _write(self) -> None:
        name = self._draw.choice(("x", "y"))
        self._transact(name, [self._draw.choice(PARTITIONS) for _ in range(3)], [])

    def _copy(self) -> None:
        # It writes elsewhere: what it wrote to `p` it would have to copy, too.
        source = self.visible["p"][self._copied : self._copied + 2]
        if source and self._transact("copy", ["q", "r"], source):
            self._copied += len(source)

    def _transact(self, name: str, partitions: list[str], source: list[tuple[int, int]]) -> bool:
        process = self._process_of(name)
        writes = []
        for partition in partitions:
            writes.append((partition, self._next_value))
            self._next_value += 1
        self.operations.append(begin(process, *writes, transactional_id=name))
        if source:
            self.operations.append(consumed(process, *(("p", *each) for each in source)))
        outcome = self._draw.random()
        offsets = self._append(partitions)
        if outcome < 0.2:
            if outcome < 0.1:
                self.operations.append(end(process, Phase.INVOKE, ABORT, name))
                self.operations.append(end(process, Phase.OK, ABORT, name))
            else:
                del self._owner[name]  # the process dies with its transaction open
            return False
        self.operations.append(end(process, Phase.INVOKE, COMMIT, name))
        for (partition, value), offset in zip(writes, offsets, strict=True):
            self.visible[partition].append((offset, value))
        if outcome < 0.9:
            self.operations.append(end(process, Phase.OK, COMMIT, name))
        else:
            self.operations.append(end(process, Phase.INFO, COMMIT, name))
            del self._owner[name]
        return True

    def _append(self, partitions: list[str]) -> list[int]:
        offsets = []
        for partition in partitions:
            offsets.append(self._ends[partition])
            self._ends[partition] += 1
        for partition in set(partitions):
            self._ends[partition] += 1  # the marker
        return offsets

    def _poll(self) -> None:
        partition = self._draw.choice(PARTITIONS)
        start = self._read[partition]
        records = self.visible[partition][start : start + self._draw.randrange(1, 4)]
        if records:
            self._read[partition] += len(records)
            self.operations.append(poll(READER, *records, partition=partition))
