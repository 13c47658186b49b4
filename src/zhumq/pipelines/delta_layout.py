"""What zhumq keeps in a Delta table, and which protocol it has. Needs no Spark."""

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


class DeltaFailed(ZhumqError):
    """A Delta table that cannot be read or written."""
