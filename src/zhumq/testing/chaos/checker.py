"""Checks a history against what a log promises; it shares no code with the broker.

The rules are those by which Jepsen judges Kafka, written anew. Transactions will add theirs (aborted
reads of whole transactions, cycles of reads and writes) as further rules of the same shape.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from zhumq.testing.chaos.commit_rules import CommitsNeverGoBack
from zhumq.testing.chaos.findings import Finding, Findings, Kind
from zhumq.testing.chaos.history import Action, Operation, Phase
from zhumq.testing.chaos.order_rules import PollsInOrder, SendsInOrder
from zhumq.testing.chaos.value_log import ValueLogs


class Rule(Protocol):
    """Sees every operation once, in order, then says what was wrong."""

    def see(self, operation: Operation) -> None: ...

    def finish(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a history came to. The counts say how much was checked."""

    findings: tuple[Finding, ...]
    operations: int
    sends_acknowledged: int
    sends_failed: int
    sends_unknown: int  # never answered, or answered by a time-out
    values_read: int  # different ones
    commits: int

    @property
    def is_clean(self) -> bool:
        return not self.findings


class Watcher(Protocol):
    """Anybody else who wants to see every operation once."""

    def see(self, operation: Operation) -> None: ...


def check(history: Iterable[Operation], watchers: Iterable[Watcher] = ()) -> Verdict:
    """Look at every operation once. It must end with a last read of everything."""
    others = tuple(watchers)
    logs = ValueLogs()
    findings = Findings()
    rules: tuple[Rule, ...] = (
        ValuesAtOneOffset(logs, findings),
        PollsInOrder(logs, findings),
        SendsInOrder(findings),
        CommitsNeverGoBack(logs, findings),
        AcknowledgedIsRead(logs, findings),
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
    )


class ValuesAtOneOffset:
    """Writes down what is known of the logs. One value has one offset, one offset one value."""

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
                # A broker may know that it has a value already, and no longer where.
                if entry.offset is not None:
                    log.place(entry.offset, entry.value, self._findings, "acknowledged")


class AcknowledgedIsRead:
    """What was acknowledged, or read by anybody, is read by those who read last."""

    def __init__(self, logs: ValueLogs, findings: Findings) -> None:
        self._logs = logs
        self._findings = findings

    def see(self, operation: Operation) -> None:
        """Nothing can be said before the end."""

    def finish(self) -> None:
        for log in self._logs:
            for value in (log.acknowledged.keys() | log.read) - log.read_last:
                offset = log.offset_of.get(value)
                is_below = offset is not None and offset < log.highest_read
                kind = Kind.LOST_WRITE if is_below else Kind.UNSEEN
                how = "acknowledged" if value in log.acknowledged else "read"
                where = "at an unknown offset" if offset is None else f"at {offset}"
                self._findings.add(kind, log.partition, f"value {value} {how} {where}")
