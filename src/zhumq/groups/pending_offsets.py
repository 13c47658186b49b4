"""Offsets of open transactions, by producer: the commit marker makes them the committed offsets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from zhumq.groups.persisted import OffsetKey
from zhumq.model.state_machine import StateRecord

ENTRY_BYTES: Final = 500  # of a pending offset in addition to its record


@dataclass(slots=True)
class _Pending:
    """The last offset that a producer's transaction has for a partition."""

    position: int  # in the order of the log
    record: StateRecord | None  # None: an offset that is newer in the log was committed meanwhile

    @property
    def size_bytes(self) -> int:
        return ENTRY_BYTES + (0 if self.record is None else _bytes_of(self.record))


class PendingOffsets:
    """The offsets of all open transactions of a shard. Written by replay only.

    Of several commits of a partition the one with the last record in the log counts, as in Kafka, whatever the order
    in which the transactions end: after a compaction the log has no other one.
    """

    def __init__(self) -> None:
        # Both have the same entries, and no empty dictionaries inside.
        self._by_producer: dict[int, dict[OffsetKey, _Pending]] = {}
        self._by_group: dict[str, dict[OffsetKey, dict[int, _Pending]]] = {}
        self._next_position = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, key: OffsetKey) -> bool:
        return key in self._by_group.get(key.group_id, {})

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    @property
    def group_ids(self) -> Iterable[str]:
        return self._by_group.keys()

    def keys_of_group(self, group_id: str) -> Iterable[OffsetKey]:
        return self._by_group.get(group_id, {}).keys()

    def keys_of_topics(self, names: Iterable[str]) -> list[OffsetKey]:
        deleted = frozenset(names)
        return [key for keys in self._by_group.values() for key in keys if key.topic in deleted]

    def items(self) -> Iterator[tuple[int, OffsetKey, StateRecord | None]]:
        """Producer, partition, and the record unless a newer one was committed."""
        for producer_id, pending in self._by_producer.items():
            for key, each in pending.items():
                yield producer_id, key, each.record

    def put(self, producer_id: int, key: OffsetKey, record: StateRecord) -> None:
        """The producer's transaction has this offset for a partition from now on."""
        self._drop(producer_id, key)
        added = _Pending(self._next_position, record)
        self._next_position += 1
        self.size_bytes += added.size_bytes
        self._by_producer.setdefault(producer_id, {})[key] = added
        self._by_group.setdefault(key.group_id, {}).setdefault(key, {})[producer_id] = added

    def supersede(self, key: OffsetKey) -> None:
        """An offset was committed outside of transactions: the pending ones are older."""
        self._supersede(key, self._next_position)

    def remove(self, key: OffsetKey) -> None:
        """The offset of the partition was deleted: the pending ones go with it."""
        for producer_id in list(self._of(key)):
            self._drop(producer_id, key)

    def end(self, producer_id: int, *, is_commit: bool) -> list[StateRecord]:
        """Forget the offsets of a producer, whose transaction ended. Returns those that are committed by that."""
        committed = []
        for key, pending in list(self._by_producer.get(producer_id, {}).items()):
            self._drop(producer_id, key)
            if is_commit and pending.record is not None:
                committed.append(pending.record)
                self._supersede(key, pending.position)
        return committed

    def _of(self, key: OffsetKey) -> dict[int, _Pending]:
        return self._by_group.get(key.group_id, {}).get(key, {})

    def _supersede(self, key: OffsetKey, position: int) -> None:
        for pending in self._of(key).values():
            if pending.position < position:
                self.size_bytes -= pending.size_bytes
                pending.record = None
                self.size_bytes += pending.size_bytes

    def _drop(self, producer_id: int, key: OffsetKey) -> None:
        dropped = self._of(key).pop(producer_id, None)
        if dropped is None:
            return
        self.size_bytes -= dropped.size_bytes
        of_group = self._by_group[key.group_id]
        if not of_group[key]:
            del of_group[key]
        if not of_group:
            del self._by_group[key.group_id]
        of_producer = self._by_producer[producer_id]
        del of_producer[key]
        if not of_producer:
            del self._by_producer[producer_id]


def pending_bytes(records: Iterable[StateRecord]) -> int:
    """Memory of these records while they are pending."""
    return sum(ENTRY_BYTES + _bytes_of(record) for record in records)


def _bytes_of(record: StateRecord) -> int:
    return len(record.key) + len(record.value or b"")
