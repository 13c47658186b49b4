"""Which ids are registered in which subjects: all of the registry that a check of ids needs."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from zhumq.schemas.log_records import DeleteSubjectRecord, LogRecord, SchemaRecord

# The subject of an id, where any may have it.
ANY_SUBJECT: Final = ""

SubjectId = tuple[str, int]


class SubjectIds:
    """Made by replaying the records of the registry, as `Registry` is, without the texts of the schemas."""

    def __init__(self) -> None:
        # By subject, the ids of its versions that are not deleted.
        self._versions: dict[str, dict[int, int]] = {}
        self._counts: Counter[SubjectId] = Counter()

    def replay(self, record: LogRecord) -> None:
        """Apply a record. It never fails: what makes no sense has no effect."""
        match record:
            case SchemaRecord(subject=subject, version=number, value=version):
                self._remove(subject, number)
                if version is not None and not version.is_deleted:
                    self._versions.setdefault(subject, {})[number] = version.id
                    self._counts[subject, version.id] += 1
                    self._counts[ANY_SUBJECT, version.id] += 1
            case DeleteSubjectRecord(subject=subject, version=int() as last):
                for number in [each for each in self._versions.get(subject, ()) if each <= last]:
                    self._remove(subject, number)
            case _:
                pass

    def _remove(self, subject: str, number: int) -> None:
        versions = self._versions.get(subject, {})
        id_ = versions.pop(number, None)
        if id_ is None:
            return
        if not versions:
            del self._versions[subject]
        for each in ((subject, id_), (ANY_SUBJECT, id_)):
            self._counts[each] -= 1
            if not self._counts[each]:
                del self._counts[each]

    def registered(self, asked: Iterable[SubjectId]) -> set[SubjectId]:
        """Those that a version of the subject has which is not deleted."""
        return {each for each in asked if each in self._counts}
