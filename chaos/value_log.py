"""The contents of each partition, as far as a history shows them."""

from collections.abc import Iterator

from chaos.findings import Findings, Kind


class ValueLog:
    """One partition as its clients saw it."""

    def __init__(self, partition: str) -> None:
        self.partition = partition
        self.invoked: set[int] = set()
        self.failed: set[int] = set()
        self.acknowledged: dict[int, int | None] = {}
        self.read: set[int] = set()
        self.read_last: set[int] = set()  # by the last reader
        self.highest_read = -1
        self.value_at: dict[int, int] = {}
        self.offset_of: dict[int, int] = {}

    def place(self, offset: int, value: int, findings: Findings, how: str) -> None:
        """Note that a client saw this value at this offset."""
        other_value = self.value_at.setdefault(offset, value)
        if other_value != value:
            findings.add(
                Kind.INCONSISTENT_OFFSETS,
                self.partition,
                f"offset {offset}: value {other_value}, then {how} with value {value}",
            )
        other_offset = self.offset_of.setdefault(value, offset)
        if other_offset != offset:
            findings.add(
                Kind.DUPLICATE,
                self.partition,
                f"value {value}: at offset {other_offset}, then {how} at offset {offset}",
            )

    def first_value_between(self, first_offset: int, next_offset: int) -> int | None:
        """The lowest of these offsets that is known to hold a value."""
        for offset in range(first_offset, next_offset):
            if offset in self.value_at:
                return offset
        return None


class ValueLogs:
    """All partitions of a history."""

    def __init__(self) -> None:
        self._logs: dict[str, ValueLog] = {}

    def __getitem__(self, partition: str) -> ValueLog:
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = ValueLog(partition)
        return log

    def __iter__(self) -> Iterator[ValueLog]:
        return iter(self._logs.values())
