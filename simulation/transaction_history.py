"""What the clients of the simulation of transactions know, and what has to hold of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zhumq.model.ids import TopicPartition
from zhumq.transactions.transaction import EPOCH_MAX


class Violation(AssertionError):
    """A guarantee of transactions is broken."""


class Attempt(NamedTuple):
    """One transaction as its producer sees it."""

    transactional_id: str
    number: int


class Instance(NamedTuple):
    """One run of a producer's program, from its start to its crash."""

    transactional_id: str
    number: int


class Outcome(NamedTuple):
    """The end of an attempt on one partition."""

    attempt: Attempt
    partition: TopicPartition
    is_commit: bool
    records: int


Pair = tuple[int, int]  # of a producer id and an epoch


@dataclass(slots=True)
class History:
    """What the producers, and the database of the two-phase ones, know."""

    # The attempts whose commit was requested, and those whose commit or abort was confirmed.
    commits_requested: set[Attempt] = field(default_factory=set)
    committed: set[Attempt] = field(default_factory=set)
    aborted: set[Attempt] = field(default_factory=set)
    # How many records of an attempt were acknowledged, by partition.
    written: dict[Attempt, dict[TopicPartition, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    # The database that decides on two-phase transactions: the decision to commit, by transactional id.
    decisions: dict[str, tuple[Attempt, Pair]] = field(default_factory=dict)
    decided: set[Attempt] = field(default_factory=set)
    # Aborted by an operator, whatever the database says.
    forced: set[Attempt] = field(default_factory=set)
    _given: dict[Pair, Instance] = field(default_factory=dict)

    def give(self, pair: Pair, instance: Instance) -> None:
        """An instance goes on with this id and epoch. No other one may have them, and the last epoch is for fencing."""
        if pair[1] >= EPOCH_MAX:
            raise Violation(f"{instance} has the last epoch: {pair}")
        owner = self._given.setdefault(pair, instance)
        if owner != instance:
            raise Violation(f"{owner} and {instance} have the same id and epoch: {pair}")

    def decide(self, attempt: Attempt, pair: Pair) -> None:
        """The database commits, and with it this prepared transaction."""
        self.decisions[attempt.transactional_id] = (attempt, pair)
        self.decided.add(attempt)
        self.commits_requested.add(attempt)

    def check(self, found: Iterable[Outcome], group: TopicPartition) -> None:
        """Raise Violation if readers at read_committed see something else than what was confirmed."""
        outcomes: dict[Attempt, set[bool]] = defaultdict(set)
        visible: dict[tuple[Attempt, TopicPartition], int] = defaultdict(int)
        for each in found:
            outcomes[each.attempt].add(each.is_commit)
            visible[each.attempt, each.partition] += each.records if each.is_commit else 0
        self._check_outcomes(outcomes)
        for attempt in self.committed | (self.decided - self.forced):
            for at, count in self.written[attempt].items():
                # An offset that is committed twice is the same offset.
                is_whole = (
                    visible[attempt, at] > 0 if at == group else visible[attempt, at] == count
                )
                if not is_whole:
                    raise Violation(f"lost write: {attempt} on {at}")

    def _check_outcomes(self, outcomes: Mapping[Attempt, set[bool]]) -> None:
        for attempt, found in outcomes.items():
            if len(found) > 1:
                raise Violation(f"torn: {attempt} is committed and aborted")
            if False in found:
                continue
            if attempt not in self.commits_requested:
                raise Violation(f"aborted read: {attempt} was never committed")
            if attempt in self.aborted:
                raise Violation(f"aborted read: {attempt} was aborted")
