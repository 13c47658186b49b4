"""Rules for committed offsets: a group resumes at its committed offset, which never decreases."""

from dataclasses import dataclass

from chaos.findings import Findings, Kind
from chaos.history import Action, Operation, Phase
from chaos.value_log import ValueLogs

Place = tuple[str, str]  # group and partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A partition was assigned to a member; its first record must fit the commits before."""

    place: Place
    committed: int  # acknowledged or read before; 0 if nothing was


class CommitsNeverGoBack:
    """Members commit increasing offsets, so an acknowledged or fetched commit is a lower bound."""

    def __init__(self, logs: ValueLogs, findings: Findings) -> None:
        self._logs = logs
        self._findings = findings
        self._floor: dict[Place, int] = {}  # acknowledged, or fetched by a client
        self._invoked: dict[Place, int] = {}  # the highest offset that any member tried to commit
        self._asked: dict[int, dict[Place, int]] = {}  # the floors when a process fetched
        self._starts: dict[tuple[int, str], Start] = {}
        self._late_starts: list[tuple[int, Place, int, int]] = []

    def see(self, operation: Operation) -> None:
        match operation.action:
            case Action.COMMIT:
                self._see_commit(operation)
            case Action.COMMITTED:
                self._see_committed(operation)
            case Action.ASSIGN if operation.group:
                for entry in operation.entries:
                    place = (operation.group, entry.partition)
                    self._starts[operation.process, entry.partition] = Start(
                        place=place, committed=self._floor.get(place, 0)
                    )
            case Action.REVOKE:
                for entry in operation.entries:
                    self._starts.pop((operation.process, entry.partition), None)
            case Action.POLL if self._starts:
                self._see_poll(operation)
            case _:
                pass

    def finish(self) -> None:
        # A member that starts above every commit skips the values in between for the whole group.
        for process, (group, partition), expected, offset in self._late_starts:
            held = self._logs[partition].first_value_between(expected, offset)
            if held is not None:
                self._findings.add(
                    Kind.POLL_SKIP,
                    partition,
                    f"process {process} of group {group} began at {offset}, the highest commit"
                    f" was {expected}, and there is a value at {held}",
                )

    def _see_commit(self, operation: Operation) -> None:
        for partition, offset, _ in operation.entries:
            assert offset is not None, "a commit without an offset"
            place = (operation.group, partition)
            if operation.phase is Phase.INVOKE:
                self._invoked[place] = max(self._invoked.get(place, 0), offset)
            elif operation.phase is Phase.OK:
                self._floor[place] = max(self._floor.get(place, 0), offset)

    def _see_committed(self, operation: Operation) -> None:
        if operation.phase is Phase.INVOKE:
            places = [(operation.group, entry.partition) for entry in operation.entries]
            self._asked[operation.process] = {each: self._floor.get(each, 0) for each in places}
            return
        floors = self._asked.pop(operation.process, {})
        if operation.phase is not Phase.OK:
            return
        for partition, offset, _ in operation.entries:
            place = (operation.group, partition)
            floor = floors.get(place, 0)
            if (offset or 0) < floor:
                self._findings.add(
                    Kind.COMMIT_REGRESSED,
                    f"{operation.group}/{partition}",
                    f"{floor} was committed, then {offset} was",
                )
            self._floor[place] = max(self._floor.get(place, 0), offset or 0)

    def _see_poll(self, operation: Operation) -> None:
        for partition, offset, _ in operation.entries:
            start = self._starts.pop((operation.process, partition), None)
            if start is None:
                continue
            assert offset is not None, "a record without an offset"
            if offset < start.committed:
                self._findings.add(
                    Kind.COMMIT_REGRESSED,
                    f"{start.place[0]}/{partition}",
                    f"process {operation.process} began at {offset} though {start.committed} was"
                    " committed",
                )
            highest = max(self._invoked.get(start.place, 0), self._floor.get(start.place, 0))
            if offset > highest:
                self._late_starts.append((operation.process, start.place, highest, offset))
