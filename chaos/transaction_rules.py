"""Rules for transactions: readers see committed ones alone and whole, in order, and soon."""

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Final

from chaos.findings import Findings, Kind
from chaos.history import Action, Entry, Operation, Phase
from chaos.transaction_table import Outcome, TransactionSeen, TransactionTable
from chaos.value_log import ValueLogs

# Longer than the timeout of a transaction and a fault that hinders its abort.
STILL_MS_MAX: Final = 60_000


class ReadsOfCommitted:
    """Passes writes and outcomes on to the value logs. No client reads a value before the commit is asked for."""

    def __init__(self, table: TransactionTable, logs: ValueLogs, findings: Findings) -> None:
        self._table = table
        self._logs = logs
        self._findings = findings

    def see(self, operation: Operation) -> None:
        match operation.action:
            case Action.BEGIN:
                for entry in operation.entries:
                    assert entry.value is not None, "a write without a value"
                    self._logs[entry.partition].invoked.add(entry.value)
            case Action.POLL | Action.LAST_POLL | Action.CONSUMED:
                self._see_read(operation)
            case _:
                pass

    def finish(self) -> None:
        for seen in self._table:
            for partition, _, value in seen.writes:
                assert value is not None, "a write without a value"
                log = self._logs[partition]
                if seen.outcome is Outcome.COMMITTED:
                    log.acknowledged[value] = None
                elif seen.outcome is Outcome.ABORTED:
                    log.failed.add(value)
                    if value not in log.read:
                        continue
                    self._findings.add(Kind.ABORTED_READ, partition, f"value {value} of {seen}")

    def _see_read(self, operation: Operation) -> None:
        for partition, _, value in operation.entries:
            writer = self._table.writer_of(value or 0)
            if writer is not None and writer.commit_asked_at is None:
                self._findings.add(
                    Kind.INTERMEDIATE_READ,
                    partition,
                    f"process {operation.process} read value {value} of {writer}",
                )


class TransactionsAreWhole:
    """Of a transaction all values are in the logs at the end, or none; consumed values count once."""

    def __init__(self, table: TransactionTable, logs: ValueLogs, findings: Findings) -> None:
        self._table = table
        self._logs = logs
        self._findings = findings
        self._sources: set[str] = set()  # the partitions that transactions consume

    def see(self, operation: Operation) -> None:
        if operation.action is Action.CONSUMED:
            self._sources.update(entry.partition for entry in operation.entries)

    def finish(self) -> None:
        consumers: dict[tuple[str, int], TransactionSeen] = {}
        for seen in self._table:
            there = [each for each in seen.writes if self._is_there(each)]
            if there and len(there) < len(seen.writes):
                missing = next(each for each in seen.writes if each not in there)
                self._findings.add(
                    Kind.TORN_TRANSACTION,
                    missing.partition,
                    f"{seen}: value {missing.value} is missing, {len(there)} of {len(seen.writes)} are there",
                )
            if not there and seen.outcome is not Outcome.COMMITTED:
                continue
            self._check_owner(seen)
            for partition, _, value in seen.consumed:
                assert value is not None, "a consumed record without a value"
                other = consumers.setdefault((partition, value), seen)
                if other is not seen:
                    self._findings.add(
                        Kind.CONSUMED_TWICE, partition, f"value {value} by {other} and by {seen}"
                    )
        for partition in self._sources:
            for value in self._logs[partition].read_last:
                if (partition, value) not in consumers:
                    self._findings.add(Kind.NOT_CONSUMED, partition, f"value {value}")

    def _is_there(self, entry: Entry) -> bool:
        return entry.value in self._logs[entry.partition].read_last

    def _check_owner(self, seen: TransactionSeen) -> None:
        """A process that lost its transactional id before it asked for the commit cannot have committed."""
        asked_at = seen.commit_asked_at
        if asked_at is None:
            return
        for position, process in self._table.owners.get(seen.transactional_id, ()):
            if seen.began_at < position < asked_at and process != seen.process:
                self._findings.add(
                    Kind.ZOMBIE_COMMIT,
                    seen.transactional_id,
                    f"{seen} of process {seen.process} was committed after process {process} began",
                )


class TransactionsInOrder:
    """Transactions of one transactional id are one after the other, and none reads of one that reads of it.

    Those of different ids may lie in the logs in different orders: Kafka does not isolate their writes.
    """

    def __init__(self, table: TransactionTable, logs: ValueLogs, findings: Findings) -> None:
        self._table = table
        self._logs = logs
        self._findings = findings

    def see(self, operation: Operation) -> None:
        """The rule needs the whole history: see `finish`."""

    def finish(self) -> None:
        by_number = {seen.number: seen for seen in self._table}
        written = self._write_edges()
        read = {
            (writer.number, seen.number)
            for seen in by_number.values()
            if seen.outcome is not Outcome.ABORTED
            for _, _, value in seen.consumed
            if (writer := self._table.writer_of(value or 0)) is not None
        }
        write_cycle = _cycle_in(written)
        self._report(Kind.WRITE_CYCLE, by_number, write_cycle)
        # A cycle of writes is reported already; then only reads alone show another.
        self._report(Kind.READ_CYCLE, by_number, _cycle_in(read if write_cycle else written | read))

    def _report(self, kind: Kind, by_number: dict[int, TransactionSeen], cycle: list[int]) -> None:
        if cycle:
            names = ", then ".join(str(by_number[each]) for each in cycle)
            self._findings.add(kind, by_number[cycle[0]].transactional_id, names)

    def _write_edges(self) -> set[tuple[int, int]]:
        """From each transaction to the next of its id: in each log, and by the time of its process."""
        edges = set()
        latest: dict[str, TransactionSeen] = {}
        for seen in self._table:
            if not any(
                value in self._logs[partition].read_last for partition, _, value in seen.writes
            ):
                continue
            before = latest.get(seen.transactional_id)
            if before is not None and (before.ended_at or seen.began_at) < seen.began_at:
                edges.add((before.number, seen.number))
            latest[seen.transactional_id] = seen
        for log in self._logs:
            last: dict[str, int] = {}
            for offset in sorted(log.value_at):
                writer = self._table.writer_of(log.value_at[offset])
                if writer is None:
                    continue
                other = last.get(writer.transactional_id, writer.number)
                if other != writer.number:
                    edges.add((other, writer.number))
                last[writer.transactional_id] = writer.number
        return edges


class LastStableMoves:
    """A last stable offset below the high watermark moves before long."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        # Of each partition: the offset, since when it is the same, and whether it was reported.
        self._unchanged: dict[str, tuple[int, int, bool]] = {}

    def see(self, operation: Operation) -> None:
        if operation.action is not Action.LAST_STABLE or operation.phase is not Phase.OK:
            return
        for partition, last_stable, high_watermark in operation.entries:
            assert last_stable is not None, "a partition without a last stable offset"
            assert high_watermark is not None, "a partition without a high watermark"
            offset, since_ms, is_reported = self._unchanged.get(partition, (-1, 0, False))
            if offset != last_stable or last_stable >= high_watermark:
                self._unchanged[partition] = (last_stable, operation.time_ms, False)
            elif operation.time_ms - since_ms > STILL_MS_MAX and not is_reported:
                self._unchanged[partition] = (offset, since_ms, True)
                self._findings.add(
                    Kind.LAST_STABLE_STUCK,
                    partition,
                    f"at {offset} since {since_ms} ms, the high watermark is {high_watermark}",
                )

    def finish(self) -> None:
        """All was reported when it was seen."""


def _cycle_in(edges: Iterable[tuple[int, int]]) -> list[int]:
    """The nodes of one cycle; none if there is no cycle."""
    graph: TopologicalSorter[int] = TopologicalSorter()
    for start, end in edges:
        graph.add(end, start)
    try:
        graph.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
