"""Builders of operations, and random histories of a log without faults."""

import random
from collections.abc import Iterable

from chaos.history import Action, Entry, Operation, Phase

Record = tuple[int, int]  # offset and value
LAST = 99  # the process that reads everything at the end


def send(process: int, value: int, offset: int | None = None, partition: str = "p") -> Operation:
    """Invoked without an offset, acknowledged with one."""
    phase = Phase.INVOKE if offset is None else Phase.OK
    return _one(process, phase, Action.SEND, Entry(partition, offset, value))


def sent(
    process: int, value: int, phase: Phase, offset: int | None = None, partition: str = "p"
) -> Operation:
    """Any answer to a send."""
    return _one(process, phase, Action.SEND, Entry(partition, offset, value))


def written(process: int, *records: Record, partition: str = "p") -> list[Operation]:
    """Sends and their acknowledgements, one after the other."""
    return [
        each
        for offset, value in records
        for each in (
            send(process, value, partition=partition),
            send(process, value, offset, partition),
        )
    ]


def poll(process: int, *records: Record, partition: str = "p") -> Operation:
    return _many(process, Action.POLL, records, partition)


def last(*records: Record, partition: str = "p") -> Operation:
    return _many(LAST, Action.LAST_POLL, records, partition)


def assign(
    process: int, offset: int | None = None, *, group: str = "", partition: str = "p"
) -> Operation:
    return Operation(
        process=process,
        phase=Phase.OK,
        action=Action.ASSIGN,
        entries=(Entry(partition, offset),),
        group=group,
    )


def revoke(process: int, *, group: str = "", partition: str = "p") -> Operation:
    return Operation(
        process=process,
        phase=Phase.OK,
        action=Action.REVOKE,
        entries=(Entry(partition),),
        group=group,
    )


def commit(process: int, phase: Phase, offset: int) -> Operation:
    return _one(process, phase, Action.COMMIT, Entry("p", offset), group="g")


def committed(process: int, offset: int | None = None, phase: Phase = Phase.OK) -> Operation:
    return _one(process, phase, Action.COMMITTED, Entry("p", offset), group="g")


def asked(process: int) -> Operation:
    return committed(process, phase=Phase.INVOKE)


def _one(process: int, phase: Phase, action: Action, entry: Entry, *, group: str = "") -> Operation:
    return Operation(process=process, phase=phase, action=action, entries=(entry,), group=group)


def _many(process: int, action: Action, records: Iterable[Record], partition: str) -> Operation:
    entries = tuple(Entry(partition, offset, value) for offset, value in records)
    return Operation(process=process, phase=Phase.OK, action=action, entries=entries)


class PerfectLog:
    """A random history of one partition without faults: producers, a reader from the start and a group.

    Offsets have gaps, as control records leave them. Some sends fail, some are never answered.
    """

    def __init__(self, seed: int, *, steps: int = 200) -> None:
        self._draw = random.Random(seed)
        self.log: list[Record] = []
        self.operations: list[Operation] = [assign(10, 0), assign(20, group="g")]
        self._next_offset = 0
        self._next_value = 1
        self._position = 0  # of the reader, in the list
        self._group_position = 0
        self._committed = 0
        actions = (self._send, self._send, self._poll, self._group_poll, self._commit, self._ask)
        for _ in range(steps):
            self._draw.choice(actions)()
        self.operations.append(assign(LAST, 0))
        self.operations.append(last(*self.log))

    def _send(self) -> None:
        process, value = self._draw.randrange(3), self._next_value
        self._next_value += 1
        self.operations.append(send(process, value))
        outcome = self._draw.random()
        if outcome < 0.05:
            self.operations.append(sent(process, value, Phase.FAIL))
            return
        if outcome < 0.1:
            self.operations.append(sent(process, value, Phase.INFO))
            if self._draw.random() < 0.5:
                return
        self._next_offset += 1 if self._draw.random() < 0.9 else self._draw.randrange(1, 4)
        self.log.append((self._next_offset - 1, value))
        if outcome >= 0.15:
            self.operations.append(send(process, value, self._next_offset - 1))
        elif outcome >= 0.1:
            self.operations.append(
                sent(process, value, Phase.OK)
            )  # a duplicate, at an unknown offset

    def _poll(self) -> None:
        count = self._draw.randrange(1, 5)
        records = self.log[self._position : self._position + count]
        self._position += len(records)
        if records:
            self.operations.append(poll(10, *records))

    def _group_poll(self) -> None:
        if self._draw.random() < 0.2:  # another member resumes at the committed offset
            self.operations += [revoke(20, group="g"), assign(20, group="g")]
            at = [index for index, (offset, _) in enumerate(self.log) if offset >= self._committed]
            self._group_position = at[0] if at else len(self.log)
        records = self.log[self._group_position : self._group_position + 3]
        self._group_position += len(records)
        if records:
            self.operations.append(poll(20, *records))

    def _commit(self) -> None:
        if self._group_position == 0:
            return
        offset = self.log[self._group_position - 1][0] + 1
        if offset < self._committed:
            return
        self.operations.append(commit(20, Phase.INVOKE, offset))
        outcome = self._draw.random()
        if outcome < 0.1:
            self.operations.append(commit(20, Phase.FAIL, offset))
            return
        self._committed = offset
        self.operations.append(commit(20, Phase.INFO if outcome < 0.2 else Phase.OK, offset))

    def _ask(self) -> None:
        self.operations += [asked(30), committed(30, self._committed or None)]
