"""Rules for order: no read skips or repeats a record, and sends keep their order."""

from array import array
from typing import NamedTuple

from chaos.findings import Findings, Kind
from chaos.history import Action, Operation, Phase
from chaos.value_log import ValueLogs


class Gap(NamedTuple):
    """Offsets that a reader did not receive. They may hold control records, which no reader receives."""

    process: int
    partition: str
    first_offset: int
    next_offset: int


class PollsInOrder:
    """A reader receives every value after its position, once, in log order."""

    def __init__(self, logs: ValueLogs, findings: Findings) -> None:
        self._logs = logs
        self._findings = findings
        self._next: dict[int, dict[str, int | None]] = {}  # of each process
        self._gaps: list[Gap] = []

    def see(self, operation: Operation) -> None:
        positions = self._next.setdefault(operation.process, {})
        match operation.action:
            case Action.ASSIGN:
                for entry in operation.entries:
                    positions[entry.partition] = entry.offset
            case Action.REVOKE:
                for entry in operation.entries:
                    positions.pop(entry.partition, None)
            case Action.SUBSCRIBE:
                positions.clear()
            case Action.POLL | Action.LAST_POLL:
                self._see_poll(operation, positions)
            case _:
                pass

    def finish(self) -> None:
        # Only now the full contents of the log are known.
        for gap in self._gaps:
            held = self._logs[gap.partition].first_value_between(gap.first_offset, gap.next_offset)
            if held is not None:
                self._findings.add(
                    Kind.POLL_SKIP,
                    gap.partition,
                    f"process {gap.process} went from {gap.first_offset} to {gap.next_offset}"
                    f" past the value at {held}",
                )

    def _see_poll(self, operation: Operation, positions: dict[str, int | None]) -> None:
        for partition, offset, _ in operation.entries:
            assert offset is not None, "a record without an offset"
            expected = positions.get(partition)
            if expected is not None and offset < expected:
                self._findings.add(
                    Kind.NONMONOTONIC_POLL,
                    partition,
                    f"process {operation.process} was at {expected} and received {offset}",
                )
            elif expected is not None and offset > expected:
                self._gaps.append(Gap(operation.process, partition, expected, offset))
            positions[partition] = offset + 1


class SendsInOrder:
    """One producer's values are in a partition in the order in which it sent them."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._place: dict[tuple[str, int], int] = {}  # send position of a value still unanswered
        self._sent: dict[tuple[int, str], int] = {}
        self._answers: dict[tuple[int, str], tuple[array[int], array[int]]] = {}

    def see(self, operation: Operation) -> None:
        if operation.action is not Action.SEND:
            return
        for partition, offset, value in operation.entries:
            assert value is not None, "a send without a value"
            key = (operation.process, partition)
            if operation.phase is Phase.INVOKE:
                place = self._sent.get(key, 0)
                self._place[partition, value] = place
                self._sent[key] = place + 1
                continue
            answered = self._place.pop((partition, value), None)
            if operation.phase is Phase.OK and answered is not None and offset is not None:
                places, offsets = self._answers.setdefault(key, (array("q"), array("q")))
                places.append(answered)
                offsets.append(offset)

    def finish(self) -> None:
        # Answers may be recorded in another order than sends, so they are sorted first.
        for (process, partition), (places, offsets) in self._answers.items():
            before = -1
            for _, offset in sorted(zip(places, offsets, strict=True)):
                if offset <= before:
                    self._findings.add(
                        Kind.NONMONOTONIC_SEND,
                        partition,
                        f"process {process} sent what is at {before} before what is at {offset}",
                    )
                before = max(before, offset)
