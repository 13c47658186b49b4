"""`format("zhumq")` on real Spark: batches and streams, in and out."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery
from spark_support import create_topic, produce, wait_until

from zhumq.cli.main import run
from zhumq.testing.broker import RunningBroker, broker

# The first test includes the start of the session, on a machine that may be busy.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


class Topics:
    """Reads and writes topics of one broker through one session."""

    def __init__(self, spark: SparkSession, running: RunningBroker) -> None:
        self.spark = spark
        self.bootstrap = running.bootstrap
        self.data_dir = running.data_dir

    def read(self, **options: str) -> DataFrame:
        named = {name.replace("__", "."): value for name, value in options.items()}
        reader = self.spark.read.format("zhumq")
        return reader.options(**{"kafka.bootstrap.servers": self.bootstrap, **named}).load()

    def stream(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("zhumq")
        return reader.options(**{"kafka.bootstrap.servers": self.bootstrap, **options}).load()

    def write(self, rows: DataFrame, **options: str) -> None:
        writer = rows.write.format("zhumq").mode("append")
        writer.options(**{"kafka.bootstrap.servers": self.bootstrap, **options}).save()

    def copy(self, rows: DataFrame, topic: str, checkpoint: Path, **trigger: Any) -> StreamingQuery:
        writer = rows.writeStream.format("zhumq").option("kafka.bootstrap.servers", self.bootstrap)
        writer = writer.option("topic", topic).option("checkpointLocation", str(checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def values(self, topic: str) -> list[bytes]:
        return sorted(
            bytes(row.value) for row in self.read(subscribe=topic, columns="value").collect()
        )


@pytest.fixture
def topics(spark: SparkSession, running: RunningBroker) -> Topics:
    return Topics(spark, running)


def _milliseconds(moment: datetime) -> int:
    """A timestamp of a row, which PySpark gives in the time zone of this machine."""
    return round(moment.timestamp() * 1000)


def texts(first: int, until: int) -> list[bytes]:
    return [b"%06d" % index for index in range(first, until)]


@pytest.mark.thorough
def test_every_codec_and_column_comes_through(topics: Topics) -> None:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    create_topic(topics.bootstrap, "codecs", len(codecs))
    for partition, codec in enumerate(codecs):
        produce(
            topics.bootstrap,
            "codecs",
            texts(0, 500),
            partition=partition,
            compression=codec,
            timestamp=lambda index: 1_700_000_000_000 + index,
        )
    rows = topics.read(subscribe="codecs", includeHeaders="true", minPartitions="9")
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    found = rows.withColumn("task", spark_partition_id()).orderBy("partition", "offset").collect()
    assert len({row.task for row in found}) >= 9
    assert [(row.partition, row.offset) for row in found] == [
        (partition, offset) for partition in range(len(codecs)) for offset in range(500)
    ]
    for row in found:
        assert (bytes(row.key), bytes(row.value)) == (b"%d" % row.offset, b"%06d" % row.offset)
        assert (row.topic, row.timestampType) == ("codecs", 0)
        assert _milliseconds(row.timestamp) == 1_700_000_000_000 + row.offset
        assert bytes(row.headers[0].value) == b"%d" % row.offset


def test_gaps_of_a_compacted_topic_are_read_over(spark: SparkSession, tmp_path: Path) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "16384",
        "min.cleanable.dirty.ratio": "0.01",
    }
    with broker(data_dir=tmp_path) as first:
        create_topic(first.bootstrap, "compacted", 1, config)
        values = (bytes(1000) for _ in range(400))
        produce(first.bootstrap, "compacted", values, batch_rows=20, keys=20)
    # After a clean stop all of it is below the recovery point, so compaction can clean it.
    with broker(data_dir=tmp_path, settings={"log.cleaner.backoff.ms": "50"}) as second:
        files = tmp_path / "compacted-0"
        wait_until(
            lambda: sum(each.stat().st_size for each in files.glob("*.log")) < 200_000,
            "the topic is compacted",
        )
        rows = Topics(spark, second).read(subscribe="compacted", columns="offset,key")
        found = rows.selectExpr("offset", "cast(key as string) as key").collect()
    offsets = [row.offset for row in found]
    assert len(offsets) < 400
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == 399
    assert {row.key for row in found} == {str(index) for index in range(20)}


def test_offsets_times_and_columns_choose_what_is_read(topics: Topics) -> None:
    create_topic(topics.bootstrap, "Choice", 2)
    for partition in range(2):
        produce(
            topics.bootstrap,
            "Choice",
            texts(0, 100),
            partition=partition,
            timestamp=lambda index: 1000 + index,
        )
    by_time = topics.read(
        subscribePattern="Cho.*",
        startingOffsetsByTimestamp='{"Choice": {"0": 1090, "1": 1095}}',
        columns="offset, partition",
    )
    assert by_time.columns == ["offset", "partition"]
    assert by_time.count() == 15
    by_offset = topics.read(
        assign='{"Choice": [1]}',
        startingOffsets='{"Choice": {"1": 10}}',
        endingOffsets='{"Choice": {"1": 12}}',
    )
    assert [row.offset for row in by_offset.collect()] == [10, 11]


@pytest.mark.thorough
def test_filters_are_pushed_when_asked_for(topics: Topics) -> None:
    create_topic(topics.bootstrap, "filtered", 2)
    for partition in range(2):
        produce(topics.bootstrap, "filtered", texts(0, 100), partition=partition)
    rows = topics.read(subscribe="filtered", pushFilters="true")
    few = rows.where("partition = 1 and offset >= 10 and offset < 15 and topic = 'filtered'")
    assert few.rdd.getNumPartitions() == 1
    assert [row.offset for row in few.collect()] == [10, 11, 12, 13, 14]
    plain = topics.read(subscribe="filtered")
    assert plain.where("partition = 1 and offset < 15").count() == 15
    assert plain.count() == 200  # The filter of the query before is not applied again.


def test_a_batch_is_written_with_keys_headers_partitions_and_times(topics: Topics) -> None:
    create_topic(topics.bootstrap, "written", 2)
    rows = topics.spark.range(1000).selectExpr(
        "cast(id as string) as key",
        "if(id = 7, null, cast(id as string)) as value",
        "'written' as topic",
        "cast(id % 2 as int) as partition",
        "array(struct('n' as key, cast(cast(id as string) as binary) as value)) as headers",
        "timestamp_millis(1700000000000 + id) as timestamp",
    )
    topics.write(rows, includeTimestamp="true", **{"kafka.compression.type": "zstd"})
    found = topics.read(subscribe="written", includeHeaders="true").collect()
    assert len(found) == 1000
    for row in found:
        number = int(bytes(row.key))
        assert row.partition == number % 2
        assert row.value is None if number == 7 else bytes(row.value) == bytes(row.key)
        assert (row.headers[0].key, bytes(row.headers[0].value)) == ("n", bytes(row.key))
        assert _milliseconds(row.timestamp) == 1_700_000_000_000 + number


@pytest.mark.thorough
def test_a_stream_goes_on_from_its_checkpoint_and_shows_its_lag(
    topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(topics.bootstrap, "in", 2)
    create_topic(topics.bootstrap, "out", 2)
    for partition in range(2):
        produce(
            topics.bootstrap,
            "in",
            texts(partition * 500, partition * 500 + 500),
            partition=partition,
        )

    def once() -> StreamingQuery:
        rows = topics.stream(
            subscribe="in", startingOffsets="earliest", groupId="copier", maxOffsetsPerTrigger="400"
        )
        query = topics.copy(rows.select("key", "value"), "out", tmp_path, availableNow=True)
        assert query.awaitTermination(120)
        return query

    query = once()
    sizes = [each.numInputRows for each in query.recentProgress]
    assert sum(sizes) == 1000
    assert max(sizes) <= 400
    assert topics.values("out") == texts(0, 1000)
    produce(topics.bootstrap, "in", texts(1000, 1100))
    assert _lags(topics, "copier", capsys) == {0: 100, 1: 0}
    once()
    assert topics.values("out") == texts(0, 1100)
    assert _lags(topics, "copier", capsys) == {0: 0, 1: 0}


def _lags(topics: Topics, group: str, capsys: pytest.CaptureFixture[str]) -> dict[int, int]:
    """The lags that `zhumq group describe` shows."""
    capsys.readouterr()
    assert run(["group", "describe", group, "--bootstrap", topics.bootstrap, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    return {each["partition"]: each["lag"] for each in described["offsets"]}


@pytest.mark.thorough
def test_a_replayed_micro_batch_writes_nothing_twice(topics: Topics, tmp_path: Path) -> None:
    create_topic(topics.bootstrap, "source", 2)
    create_topic(topics.bootstrap, "target", 1)
    for partition in range(2):
        produce(
            topics.bootstrap,
            "source",
            texts(partition * 50, partition * 50 + 50),
            partition=partition,
        )
    rows = topics.stream(subscribe="source", startingOffsets="earliest").select("value")

    def once() -> None:
        assert topics.copy(rows, "target", tmp_path, availableNow=True).awaitTermination(120)

    once()
    assert topics.values("target") == texts(0, 100)
    # As if the driver had died after the tasks finished and before Spark recorded it.
    for name in ("0", ".0.crc"):
        (tmp_path / "commits" / name).unlink()
    once()
    assert topics.values("target") == texts(0, 100)


@pytest.mark.thorough
def test_a_running_stream_sees_new_records_and_new_partitions(
    topics: Topics, tmp_path: Path
) -> None:
    create_topic(topics.bootstrap, "live")
    create_topic(topics.bootstrap, "seen")
    rows = topics.stream(subscribe="live", startingOffsets="earliest").select("value")
    query = topics.copy(rows, "seen", tmp_path)
    try:
        produce(topics.bootstrap, "live", texts(0, 10))
        wait_until(lambda: topics.values("seen") == texts(0, 10), "the first rows are copied")
        admin = AdminClient({"bootstrap.servers": topics.bootstrap})
        admin.create_partitions([NewPartitions("live", 2)])["live"].result(30)
        produce(topics.bootstrap, "live", texts(10, 20), partition=1)
        wait_until(lambda: topics.values("seen") == texts(0, 20), "the new partition is copied")
    finally:
        query.stop()


def test_lost_records_fail_a_query_unless_fail_on_data_loss_is_false(topics: Topics) -> None:
    create_topic(topics.bootstrap, "lost")
    produce(topics.bootstrap, "lost", texts(0, 100))
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    (future,) = admin.delete_records([KafkaPartition("lost", 0, 60)]).values()
    future.result(30)
    given = {"subscribe": "lost", "startingOffsets": '{"lost": {"0": 0}}'}
    with pytest.raises(Exception, match="the log begins at 60"):
        topics.read(**given).count()
    assert topics.read(failOnDataLoss="false", **given).count() == 40


def test_segment_folders_are_a_table_too(topics: Topics) -> None:
    create_topic(topics.bootstrap, "files")
    produce(topics.bootstrap, "files", texts(0, 100), compression="lz4")
    rows = topics.spark.read.format("zhumq").load(str(topics.data_dir / "files-0"))
    assert [bytes(row.value) for row in rows.collect()] == texts(0, 100)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no topics are given"),
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere'"),
        ({"subscribe": "x", "startingOffsets": "soon"}, "startingOffsets is not JSON"),
        ({"subscribe": "x", "columns": "colour"}, "no column 'colour'"),
        ({"subscribe": "x", "startAt": "1"}, "no option 'startat'"),
    ],
)
def test_a_bad_option_is_a_clear_error(topics: Topics, options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        topics.read(**options).count()


@pytest.mark.thorough
def test_rows_that_cannot_be_written_are_refused(topics: Topics) -> None:
    rows = topics.spark.range(3).selectExpr("cast(id as string) as value")
    for bad, options, words in [
        (rows, {}, "no topic is given"),
        (rows.selectExpr("value as v"), {"topic": "t"}, "need a column 'value'"),
        (topics.spark.range(3).selectExpr("id as value"), {"topic": "t"}, "'value' is bigint"),
        (rows, {"topic": "t", "kafka.no.such.setting": "1"}, "no.such.setting"),
        (rows.selectExpr("*", "cast(null as string) as topic"), {}, "a row has no topic"),
        (rows, {"topic": "bad name!"}, "rows did not reach their topic|cannot write to"),
    ]:
        with pytest.raises(Exception, match=words):
            topics.write(bad, **options)
    with pytest.raises(Exception, match="only appended to"):
        rows.write.format("zhumq").option("topic", "t").mode("overwrite").save()
