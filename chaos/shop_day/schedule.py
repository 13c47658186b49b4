"""When what is killed: events at hours of the day, from a seed. Pure."""

import random
from dataclasses import dataclass
from enum import StrEnum

from chaos.shop_day.facts import NOON_TICK, TICKS


class EventKind(StrEnum):
    """What happens to the programs of the shop."""

    DRIVER = "driver"
    EXECUTOR = "executor"
    BROKER = "broker"
    NOON = "noon"  # the pipeline of the tables is stopped, and goes on with a new column


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Happens when messages up to `tick` may have been sent."""

    kind: EventKind
    tick: int


def plan(*, kills: int, draw: random.Random) -> list[Event]:
    """So many kills of each kind, half of them before noon."""
    kinds = [EventKind.DRIVER, EventKind.EXECUTOR, EventKind.BROKER] * kills
    draw.shuffle(kinds)
    half = len(kinds) // 2
    return [
        *_spread(kinds[:half], 0, NOON_TICK),
        Event(kind=EventKind.NOON, tick=NOON_TICK),
        *_spread(kinds[half:], NOON_TICK, TICKS),
    ]


def _spread(kinds: list[EventKind], first: int, last: int) -> list[Event]:
    return [
        Event(kind=kind, tick=first + (last - first) * number // (len(kinds) + 1))
        for number, kind in enumerate(kinds, start=1)
    ]
