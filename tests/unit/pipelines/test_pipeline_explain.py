"""The cause of a failure as one line of Spark's error text."""

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from zhumq.pipelines.causes import explain

JAVA = """\
An error occurred while calling o404.save.
: org.apache.spark.SparkException: [WRITING_JOB_ABORTED] Writing job aborted. SQLSTATE: 40000
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.writingJobAbortedError(Errors.scala:962)
Caused by: org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(Factory.scala:281)
"""
OWN = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "reader.py", line 1, in read
zhumq.spark.fetcher.DataLost: orders-0 begins at 10, after the offset 5 asked for
 SQLSTATE: XXKST
"""
PYTHON = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "own_steps.py", line 3, in fail
ValueError: row 7 is not what it seems
"""
UNREADABLE = """\
An error occurred while calling o404.save.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///drop/a%20b.json.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(Errors.scala:920)
Caused by: org.apache.spark.SparkRuntimeException: [CANNOT_PARSE_JSON_FIELD] Cannot parse 'x'. SQLSTATE: 2203G
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (JAVA, "Python worker failed to connect back."),
        (OWN, "orders-0 begins at 10, after the offset 5 asked for"),
        (PYTHON, "ValueError: row 7 is not what it seems"),
        (UNREADABLE, "file:///drop/a%20b.json: Cannot parse 'x'."),
        ("[SOME.CLASS] the words", "the words"),
        ("x" * 5000, "x" * 600),
    ],
)
def test_the_cause_is_one_line(text: str, words: str) -> None:
    assert explain(PySparkException(message=text)) == words
