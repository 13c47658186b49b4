"""The schedule of faults. Pure: the same seed gives the same schedule."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CALM_AT_FIRST_MS: Final = 2_000
CALM_MS: Final = (1_000, 5_000)  # between one fault's end and the next
TWO_AT_ONCE: Final = 0.2  # share of steps with a second fault
TARGETS: Final = 2**31  # the drawn number selects one of the possible targets


class FaultKind(StrEnum):
    """Kinds of faults."""

    KILL_BROKER = "kill a broker"
    STOP_BROKER = "stop a broker cleanly"
    KILL_LEADER = "kill a leader"
    KILL_CONTROLLER = "kill the controller"
    KILL_GROUP_COORDINATOR = "kill a group's coordinator"
    KILL_ALL = "kill all brokers"
    KILL_ZOOKEEPER_LEADER = "kill ZooKeeper's leader"
    KILL_ZOOKEEPER = "kill all of ZooKeeper"
    PAUSE_ZOOKEEPER = "pause all of ZooKeeper"
    PAUSE_BROKER = "pause a broker"
    PAUSE_LEADER = "pause a leader"
    CUT_BROKER = "cut a broker from the others"
    CUT_PAIR = "cut two brokers from each other"
    CUT_ONE_WAY = "cut one way between two brokers"
    CUT_FROM_ZOOKEEPER = "cut a broker from ZooKeeper"
    CUT_FROM_ZOOKEEPER_ONE_WAY = "cut a broker from ZooKeeper one way"
    REFUSE_BROKER = "refuse a broker's connections to the others"
    SLOW_BROKER = "slow a broker's links"
    DAMAGE_BROKER = "damage a killed broker's files"


# Damage is a separate run: it removes one replica, so no other may have a fault at the same time.
MIXED: Final = tuple(kind for kind in FaultKind if kind is not FaultKind.DAMAGE_BROKER)
KILLS: Final = frozenset(
    {
        FaultKind.KILL_BROKER,
        FaultKind.KILL_LEADER,
        FaultKind.KILL_CONTROLLER,
        FaultKind.KILL_GROUP_COORDINATOR,
        FaultKind.KILL_ALL,
        FaultKind.DAMAGE_BROKER,
    }
)
PAUSES: Final = frozenset(
    {FaultKind.PAUSE_BROKER, FaultKind.PAUSE_LEADER, FaultKind.PAUSE_ZOOKEEPER}
)
PARTITIONS: Final = frozenset(
    {
        FaultKind.CUT_BROKER,
        FaultKind.CUT_PAIR,
        FaultKind.CUT_ONE_WAY,
        FaultKind.CUT_FROM_ZOOKEEPER,
        FaultKind.CUT_FROM_ZOOKEEPER_ONE_WAY,
        FaultKind.REFUSE_BROKER,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The length of faults in milliseconds: minimum, maximum."""

    kill: tuple[int, int] = (200, 5_000)
    # Longer than a broker's ZooKeeper session, so that it resumes after the session has expired.
    pause: tuple[int, int] = (3_000, 8_000)
    cut: tuple[int, int] = (1_000, 10_000)
    slow: tuple[int, int] = (2_000, 6_000)

    def of(self, kind: FaultKind) -> tuple[int, int]:
        if kind in PAUSES:
            return self.pause
        if kind in PARTITIONS:
            return self.cut
        return self.slow if kind is FaultKind.SLOW_BROKER else self.kill


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. The number selects the target when the fault is injected."""

    kind: FaultKind
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Faults that are injected together and healed together."""

    calm_ms: int  # before
    faults: tuple[Fault, ...]
    lasts_ms: int


def steps(
    seed: int,
    *,
    kinds: Sequence[FaultKind] = MIXED,
    durations: Durations | None = None,
) -> Iterator[Step]:
    """An endless schedule. Each kind comes once before any repeats, so that a short run has all of them."""
    lengths = durations or Durations()
    draw = random.Random(seed)  # noqa: S311 (a schedule that can be repeated, not a secret)
    deck: list[FaultKind] = []
    calm_ms = CALM_AT_FIRST_MS
    while True:
        if not deck:
            deck = list(kinds)
            draw.shuffle(deck)
        chosen = [deck.pop()]
        if draw.random() < TWO_AT_ONCE:
            chosen.append(draw.choice(kinds))
        yield Step(
            calm_ms=calm_ms,
            faults=tuple(Fault(kind=kind, target=draw.randrange(TARGETS)) for kind in chosen),
            lasts_ms=max(draw.randint(*lengths.of(kind)) for kind in chosen),
        )
        calm_ms = draw.randint(*CALM_MS)
