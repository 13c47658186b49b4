"""What a broker knows about ids of schemas: it asks once for each, and again from time to time."""

from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

from zhumq.schemas.subject_ids import SubjectId

# How long a registered id counts as such without another question: a deleted one is taken for so long.
REFRESH_MS: Final = 30_000
# How long one that is not registered counts as such: a schema that is registered meanwhile is refused for so long.
UNREGISTERED_MS: Final = 2_000
KEPT_MAX: Final = 100_000
ASKED_MAX: Final = 10_000  # and not answered yet. The producers of others try again.
QUESTION_MAX: Final = 1_000


class _Known(NamedTuple):
    is_registered: bool
    at_ms: int


class Verdict(NamedTuple):
    """The ids that are not taken: as they are not registered, or as that is not known yet."""

    unregistered: Sequence[SubjectId]
    unknown: Sequence[SubjectId]


class KnownIds:
    """Pure: the time and the answers of the registry are passed in.

    What is known to be registered stays so until the registry says otherwise: producers go on while it is away.
    """

    def __init__(self) -> None:
        self._known: dict[SubjectId, _Known] = {}  # the oldest first
        self._to_ask: dict[SubjectId, None] = {}
        self._asked: frozenset[SubjectId] = frozenset()

    def look_up(self, ids: Iterable[SubjectId], now_ms: int) -> Verdict:
        unregistered: list[SubjectId] = []
        unknown: list[SubjectId] = []
        for each in ids:
            known = self._known.get(each)
            if known is None:
                unknown.append(each)
            elif known.is_registered:
                if now_ms - known.at_ms < REFRESH_MS:
                    continue
            elif now_ms - known.at_ms < UNREGISTERED_MS:
                unregistered.append(each)
                continue
            else:
                unknown.append(each)
            if each not in self._asked and len(self._to_ask) < ASKED_MAX:
                self._to_ask[each] = None
        return Verdict(unregistered, unknown)

    @property
    def has_questions(self) -> bool:
        return bool(self._to_ask)

    def next_question(self) -> list[SubjectId]:
        """What to ask the registry now; `answer` or `fail` follows."""
        question = list(self._to_ask)[:QUESTION_MAX]
        for each in question:
            del self._to_ask[each]
        self._asked = frozenset(question)
        return question

    def answer(
        self, question: Sequence[SubjectId], registered: Container[SubjectId], now_ms: int
    ) -> None:
        self._asked = frozenset()
        for each in question:
            self._known.pop(each, None)
            self._known[each] = _Known(each in registered, now_ms)
        while len(self._known) > KEPT_MAX:
            del self._known[next(iter(self._known))]

    def fail(self) -> None:
        """The registry gave no answer. An id that is used again is asked for again."""
        self._asked = frozenset()
