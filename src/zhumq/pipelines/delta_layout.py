"""What zhumq keeps in a Delta table, and which protocol it has. Needs no Spark."""

from dataclasses import dataclass
from typing import Final

from zhumq.model.errors import ZhumqError

# Delta's protocol: what a table without table features, deletion vectors or column mapping needs.
READER_VERSION: Final = 1
WRITER_VERSION: Final = 2
# Readers of tables, and VACUUM of other engines, ignore names that begin with an underscore.
STATE_FOLDER: Final = "_zhumq"
DELETES_FOLDER: Final = f"{STATE_FOLDER}/deletes"  # of a merge: a Delta table, too
WRITTEN_MS: Final = "_written_ms"  # its column: when a delete was kept

# An upkeep: what is removed is older than this.
HOUR_MS: Final = 3_600_000
OLDER_THAN_MS_MIN: Final = (
    HOUR_MS  # a batch that takes longer would lose the files it has not committed
)
OLDER_THAN_MS_DEFAULT: Final = 7 * 24 * HOUR_MS
DELETES_OLDER_THAN_MS_DEFAULT: Final = 30 * 24 * HOUR_MS
EXPIRY_MS_MIN: Final = 24 * HOUR_MS  # partitions are of a day
EXPIRY_MS_MAX: Final = 100 * 366 * 24 * HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """How long the partitions of a table are kept: those whose day is longer ago are removed."""

    column: str  # of dates, or of texts such as 2026-01-31
    after_ms: int


class DeltaFailed(ZhumqError):
    """A Delta table that cannot be read or written."""
