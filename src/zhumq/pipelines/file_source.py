"""Files that arrive in a folder, as a stream or a batch, with the file and its time in each row."""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from zhumq.pipelines.routing import FILE
from zhumq.pipelines.spec import FilesSource, OnError
from zhumq.pipelines.spec_errors import spec_errors

MODIFIED: Final = "_modified"
# Spark leaves files out that are a week older than the newest one. A file that comes late is read, too;
# the names of all files are remembered instead.
_MAX_FILE_AGE: Final = "36500d"


def read_files(session: SparkSession, source: FilesSource, *, streaming: bool) -> DataFrame:
    """The rows of the files, with FILE and MODIFIED. Raises SpecInvalid."""
    options = {
        "mode": "FAILFAST" if source.on_error is OnError.FAIL else "DROPMALFORMED",
        # A header that is not that of the schema would put values into the wrong columns.
        "enforceSchema": "false",
        **source.options,
    }
    if source.pattern is not None:
        options["pathGlobFilter"] = source.pattern
    with spec_errors(source.mark):
        if streaming:
            options.setdefault("maxFileAge", _MAX_FILE_AGE)
            options["maxFilesPerTrigger"] = str(source.files_per_batch)
            stream = session.readStream.format(source.format).options(**options)
            frame = (stream.schema(source.schema) if source.schema else stream).load(source.path)
        else:
            reader = session.read.format(source.format).options(**options)
            frame = (reader.schema(source.schema) if source.schema else reader).load(source.path)
        return frame.select(
            "*",
            F.col("_metadata.file_path").alias(FILE),
            F.col("_metadata.file_modification_time").alias(MODIFIED),
        )
