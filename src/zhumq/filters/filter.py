"""A compiled filter: which of some messages pass it."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from zhumq.filters.columns import Columns
from zhumq.filters.compiler import Compiler, Probe, Test, probes
from zhumq.filters.parser import parse
from zhumq.filters.syntax import Field

COMPILED_KEPT: Final = 2_000
# Below this number of messages, a look at each is cheaper than an index.
INDEXED_MIN: Final = 4


class Filter:
    """Immutable, so any number of consumers may share one."""

    __slots__ = ("_fields", "_probes", "_test", "text")

    def __init__(
        self, text: str, fields: tuple[Field, ...], test: Test, found: tuple[Probe, ...]
    ) -> None:
        self.text = text
        self._fields = fields
        self._test = test
        self._probes = found

    def select(self, messages: Columns) -> list[int]:
        """The positions of the messages that pass: those for which the condition is true, not unknown."""
        candidates: Iterable[int] = range(len(messages))
        if self._probes and len(messages) >= INDEXED_MIN:
            candidates = self._candidates(messages)
            if not candidates:
                return []
        row = [messages.column(field) for field in self._fields]
        test = self._test
        return [position for position in candidates if test(row, position)]

    def _candidates(self, messages: Columns) -> Sequence[int]:
        found: list[Sequence[int]] = []
        for field, kind, values in self._probes:
            index = messages.index(field, kind)
            found += [positions for value in values if (positions := index.get(value)) is not None]
        if len(found) == 1:
            return found[0]
        return sorted(set().union(*found))


@lru_cache(maxsize=COMPILED_KEPT)
def compile_filter(text: str) -> Filter | None:
    """The filter of a text; None if every message passes it. Raises FilterInvalid."""
    condition = parse(text)
    if condition is None:
        return None
    compiler = Compiler()
    test = compiler.test(condition)
    return Filter(text, compiler.fields, test, probes(condition))
