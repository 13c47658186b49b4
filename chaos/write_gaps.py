"""Measures how long writes stopped after a fault, from the history."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from chaos.history import Action, Operation, Phase

LONG_MS: Final = 3_000  # the bound for 99 % of gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """An event that may stop writes (or a group's commits)."""

    time_ms: int
    places: frozenset[str]  # partitions, or groups for commits


@dataclass(frozen=True, slots=True, kw_only=True)
class LongGap:
    """A gap longer than LONG_MS."""

    place: str
    since_ms: int
    lasted_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The time from each interruption to the first success of an operation begun after it."""

    gaps_ms: tuple[int, ...]
    never: int  # places without a success until the history ended
    long: tuple[LongGap, ...] = ()

    def percentile(self, share: float) -> int:
        """The smallest gap that at least this share of all gaps does not exceed."""
        ordered = sorted(self.gaps_ms)
        return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0

    def __str__(self) -> str:
        if not self.gaps_ms:
            return f"none measured, {self.never} never ended"
        text = f"p50 {self.percentile(0.5)} ms, p99 {self.percentile(0.99)} ms"
        ended = f"max {max(self.gaps_ms)} ms over {len(self.gaps_ms)}"
        long = sum(gap > LONG_MS for gap in self.gaps_ms)
        text += f", {ended}" + (f", {long} over {LONG_MS} ms" if long else "")
        return text + (f", {self.never} never ended" if self.never else "")


class GapMeter:
    """Measures gaps in a history: of sends to partitions, or of commits of groups."""

    def __init__(self, interruptions: Iterable[Interruption], action: Action = Action.SEND) -> None:
        self._action = action
        self._coming = sorted(interruptions, key=lambda each: each.time_ms, reverse=True)
        self._open_since: dict[str, list[int]] = {}
        self._begun: dict[tuple[int, str, int | None], int] = {}
        self._gaps: list[int] = []
        self._long: list[LongGap] = []

    @property
    def gaps(self) -> Gaps:
        never = sum(map(len, self._open_since.values()))
        never += sum(len(each.places) for each in self._coming)
        return Gaps(gaps_ms=tuple(self._gaps), never=never, long=tuple(self._long))

    def see(self, operation: Operation) -> None:
        """The next operation."""
        while self._coming and self._coming[-1].time_ms <= operation.time_ms:
            interruption = self._coming.pop()
            for place in interruption.places:
                self._open_since.setdefault(place, []).append(interruption.time_ms)
        # Without an open interruption there is nothing to measure.
        if operation.action is not self._action or not self._open_since:
            return
        is_commit = self._action is Action.COMMIT
        for partition, offset, value in operation.entries:
            place = operation.group if is_commit else partition
            key = (operation.process, partition, offset if is_commit else value)
            if operation.phase is Phase.INVOKE:
                self._begun[key] = operation.time_ms
                continue
            began_ms = self._begun.pop(key, None)
            if operation.phase is Phase.OK and began_ms is not None:
                self._succeeded(place, began_ms, operation.time_ms)

    def _succeeded(self, place: str, began_ms: int, time_ms: int) -> None:
        # The broker that was killed may have answered what began before the fault.
        since = self._open_since.get(place, [])
        ended = [each for each in since if each <= began_ms]
        self._gaps += [time_ms - each for each in ended]
        self._long += [
            LongGap(place=place, since_ms=each, lasted_ms=time_ms - each)
            for each in ended
            if time_ms - each > LONG_MS
        ]
        left = [each for each in since if each > began_ms]
        if left:
            self._open_since[place] = left
        else:
            self._open_since.pop(place, None)


class SilenceMeter:
    """The longest time without an acknowledged send after each interruption, up to the next one.

    For interruptions that stop writes only some time after the request, so that the first success does
    not end the gap.
    """

    def __init__(self, interruptions: Iterable[Interruption]) -> None:
        self._coming = sorted(interruptions, key=lambda each: each.time_ms, reverse=True)
        self._last_ms: dict[str, int] = {}
        self._longest: dict[str, int] = {}  # since the interruption before
        self._done: list[int] = []

    @property
    def gaps(self) -> Gaps:
        ended = (*self._done, *self._longest.values())
        return Gaps(gaps_ms=ended, never=sum(len(each.places) for each in self._coming))

    def see(self, operation: Operation) -> None:
        """The next operation."""
        while self._coming and self._coming[-1].time_ms <= operation.time_ms:
            for place in self._coming.pop().places:
                if place in self._longest:
                    self._done.append(self._longest[place])
                self._longest[place] = 0
        if operation.action is not Action.SEND or operation.phase is not Phase.OK:
            return
        for entry in operation.entries:
            place = entry.partition
            silence_ms = operation.time_ms - self._last_ms.get(place, operation.time_ms)
            self._last_ms[place] = operation.time_ms
            if place in self._longest:
                self._longest[place] = max(self._longest[place], silence_ms)


def only_at(
    interruptions: Iterable[Interruption], is_meant: Callable[[str], bool]
) -> list[Interruption]:
    """The interruptions restricted to these places."""
    some = [
        Interruption(time_ms=each.time_ms, places=frozenset(filter(is_meant, each.places)))
        for each in interruptions
    ]
    return [each for each in some if each.places]
