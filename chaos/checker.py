"""Checks a history against the guarantees of a log; shares no code with the broker.

The rules are those of Jepsen's Kafka tests, written independently.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from chaos.commit_rules import CommitsNeverGoBack
from chaos.findings import Finding, Findings, Kind
from chaos.history import Action, Operation, Phase
from chaos.order_rules import PollsInOrder, SendsInOrder
from chaos.transaction_rules import (
    LastStableMoves,
    ReadsOfCommitted,
    TransactionsAreWhole,
    TransactionsInOrder,
)
from chaos.transaction_table import Outcome, TransactionTable
from chaos.value_log import ValueLogs


class Rule(Protocol):
    """Sees every operation once, in order, then reports what is wrong."""

    def see(self, operation: Operation) -> None: ...

    def finish(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of checking a history. The counts show how much was checked."""

    findings: tuple[Finding, ...]
    operations: int
    sends_acknowledged: int
    sends_failed: int
    sends_unknown: int  # never answered, or answered by a time-out
    values_read: int  # different ones
    commits: int
    transactions_committed: int
    transactions_aborted: int
    transactions_unknown: int  # commits without an answer

    @property
    def is_clean(self) -> bool:
        return not self.findings


class Watcher(Protocol):
    """Sees every operation once, like a rule, but reports no findings."""

    def see(self, operation: Operation) -> None: ...


def check(history: Iterable[Operation], watchers: Iterable[Watcher] = ()) -> Verdict:
    """Check every operation. The history must end with a last read of everything."""
    others = tuple(watchers)
    logs = ValueLogs()
    findings = Findings()
    table = TransactionTable()
    rules: tuple[Rule, ...] = (
        table,
        ValuesAtOneOffset(logs, findings),
        PollsInOrder(logs, findings),
        SendsInOrder(findings),
        CommitsNeverGoBack(logs, findings),
        ReadsOfCommitted(table, logs, findings),
        AcknowledgedIsRead(logs, findings),
        TransactionsAreWhole(table, logs, findings),
        TransactionsInOrder(table, logs, findings),
        LastStableMoves(findings),
    )
    operations = commits = 0
    for operation in history:
        operations += 1
        if operation.action is Action.COMMIT and operation.phase is Phase.OK:
            commits += 1
        for rule in rules:
            rule.see(operation)
        for watcher in others:
            watcher.see(operation)
    for rule in rules:
        rule.finish()
    acknowledged = sum(len(log.acknowledged) for log in logs)
    failed = sum(len(log.failed) for log in logs)
    return Verdict(
        findings=tuple(findings),
        operations=operations,
        sends_acknowledged=acknowledged,
        sends_failed=failed,
        sends_unknown=sum(len(log.invoked) for log in logs) - acknowledged - failed,
        values_read=sum(len(log.read) for log in logs),
        commits=commits,
        transactions_committed=table.count(Outcome.COMMITTED),
        transactions_aborted=table.count(Outcome.ABORTED),
        transactions_unknown=table.count(Outcome.UNKNOWN),
    )


class ValuesAtOneOffset:
    """Fills the value logs. One value has one offset, one offset one value."""

    def __init__(self, logs: ValueLogs, findings: Findings) -> None:
        self._logs = logs
        self._findings = findings

    def see(self, operation: Operation) -> None:
        if operation.action is Action.SEND:
            self._see_send(operation)
        elif operation.action in (Action.POLL, Action.LAST_POLL):
            for entry in operation.entries:
                assert entry.value is not None, "a record without a value"
                log = self._logs[entry.partition]
                log.read.add(entry.value)
                if operation.action is Action.LAST_POLL:
                    log.read_last.add(entry.value)
                if entry.offset is not None:
                    log.highest_read = max(log.highest_read, entry.offset)
                    log.place(entry.offset, entry.value, self._findings, "read")

    def finish(self) -> None:
        for log in self._logs:
            for value in log.read & log.failed:
                self._findings.add(Kind.ABORTED_READ, log.partition, f"value {value}")
            for value in log.read - log.invoked:
                self._findings.add(Kind.PHANTOM, log.partition, f"value {value}")

    def _see_send(self, operation: Operation) -> None:
        for entry in operation.entries:
            assert entry.value is not None, "a send without a value"
            log = self._logs[entry.partition]
            if operation.phase is Phase.INVOKE:
                log.invoked.add(entry.value)
            elif operation.phase is Phase.FAIL:
                log.failed.add(entry.value)
            elif operation.phase is Phase.OK:
                log.acknowledged[entry.value] = entry.offset
                # A broker may recognise a duplicate without knowing its offset any more.
                if entry.offset is not None:
                    log.place(entry.offset, entry.value, self._findings, "acknowledged")


class AcknowledgedIsRead:
    """The last reader reads every value that was acknowledged or that any reader read."""

    def __init__(self, logs: ValueLogs, findings: Findings) -> None:
        self._logs = logs
        self._findings = findings

    def see(self, operation: Operation) -> None:
        """The rule needs the whole history: see `finish`."""

    def finish(self) -> None:
        for log in self._logs:
            for value in (log.acknowledged.keys() | log.read) - log.read_last:
                offset = log.offset_of.get(value)
                is_below = offset is not None and offset < log.highest_read
                kind = Kind.LOST_WRITE if is_below else Kind.UNSEEN
                how = "acknowledged" if value in log.acknowledged else "read"
                where = "at an unknown offset" if offset is None else f"at {offset}"
                self._findings.add(kind, log.partition, f"value {value} {how} {where}")
