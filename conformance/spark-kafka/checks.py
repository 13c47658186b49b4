"""Checks of `format("kafka")` as Spark applications use it: batch and stream reads and writes."""

import os
import sys

from harness import (
    Spark,
    add_partitions,
    check,
    delete_before,
    delete_topic,
    fails,
    finish,
    fresh,
    main,
    new_checkpoint,
    new_topic,
    produce,
    until,
)
from pyspark.sql.functions import window

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ADMIN_OFFSETS = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


@check("batch: what is written is read back, with keys, headers and partitions")
def write_and_read(spark: Spark) -> None:
    topic = new_topic("write", 2)
    rows = spark.session.range(1000).selectExpr(
        "cast(id as string) as key",
        "if(id = 7, null, cast(id as string)) as value",
        "cast(id % 2 as int) as partition",
        "array(struct('n' as key, cast(cast(id as string) as binary) as value)) as headers",
    )
    spark.write(rows, topic=topic, includeHeaders="true")
    found = spark.read(subscribe=topic, includeHeaders="true").collect()
    assert len(found) == 1000
    for row in found:
        number = int(bytes(row.key))
        assert row.value is None if number == 7 else bytes(row.value) == bytes(row.key)
        assert (row.topic, row.partition) == (topic, number % 2)
        assert bytes(row.headers[0].value) == bytes(row.key)


@check("batch: a topic in each row, and one that does not exist yet")
def write_many(spark: Spark) -> None:
    one, two = new_topic("one"), fresh("auto")
    rows = spark.session.range(100).selectExpr(
        "cast(id as string) as value", f"if(id < 50, '{one}', '{two}') as topic"
    )
    spark.write(rows)
    assert spark.numbers(one) == list(range(50))
    assert spark.numbers(two) == list(range(50, 100))


for codec in CODECS:

    @check(f"batch: {codec} is read, and written")
    def compressed(spark: Spark, codec: str = codec) -> None:
        topic = new_topic("codec")
        produce(topic, range(2000), compression=codec)
        assert spark.numbers(topic) == list(range(2000))
        rows = spark.session.range(2000, 3000).selectExpr("cast(id as string) as value")
        spark.write(rows, topic=topic, kafka__compression__type=codec)
        assert spark.numbers(topic) == list(range(3000))


@check("batch: rows of 900 KB go both ways")
def large(spark: Spark) -> None:
    topic = new_topic("large")
    rows = spark.session.range(8).selectExpr("repeat(cast(id as string), 900000) as value")
    spark.write(rows, topic=topic)
    found = spark.read(subscribe=topic).selectExpr("length(value) as size").collect()
    assert [row.size for row in found] == [900_000] * 8


@check("batch: startingOffsets and endingOffsets, assign and subscribePattern")
def by_offset(spark: Spark) -> None:
    topic = new_topic("offsets", 2)
    for partition in range(2):
        produce(topic, range(100), partition=partition)
    one = spark.read(
        assign=f'{{"{topic}": [1]}}',
        startingOffsets=f'{{"{topic}": {{"1": 10}}}}',
        endingOffsets=f'{{"{topic}": {{"1": 15}}}}',
    )
    assert [row.offset for row in one.collect()] == [10, 11, 12, 13, 14]
    relative = spark.read(
        subscribePattern=f"{topic[:-2]}.*",
        startingOffsets=f'{{"{topic}": {{"0": -2, "1": 99}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 3, "1": -1}}}}',
    )
    assert sorted((row.partition, row.offset) for row in relative.collect()) == [
        (0, 0), (0, 1), (0, 2), (1, 99),
    ]  # fmt: skip


@check("batch: startingTimestamp, endingTimestamp and offsets by timestamp")
def by_timestamp(spark: Spark) -> None:
    topic = new_topic("times")
    produce(topic, range(100), timestamp=lambda number: 1_700_000_000_000 + number)
    rows = spark.read(
        subscribe=topic, startingTimestamp="1700000000010", endingTimestamp="1700000000020"
    )
    assert [row.offset for row in rows.collect()] == list(range(10, 20))
    each = f'{{"{topic}": {{"0": 1700000000095}}}}'
    assert spark.read(subscribe=topic, startingOffsetsByTimestamp=each).count() == 5
    late = {"subscribe": topic, "startingTimestamp": "1800000000000"}
    fails(lambda: spark.read(**late).count(), "No offset matched from request")
    latest = spark.read(startingOffsetsByTimestampStrategy="latest", **late)
    assert latest.count() == 0


@check("batch: minPartitions cuts a partition into several tasks")
def cut(spark: Spark) -> None:
    topic = new_topic("cut")
    produce(topic, range(5000))
    rows = spark.read(subscribe=topic, minPartitions="7")
    assert rows.rdd.getNumPartitions() == 7
    assert sorted(row.offset for row in rows.collect()) == list(range(5000))


@check("batch: read_committed reads what no transaction wrote")
def committed(spark: Spark) -> None:
    topic = new_topic("committed")
    produce(topic, range(100))
    assert spark.read(subscribe=topic, kafka__isolation__level="read_committed").count() == 100


@check("batch: offsets may be asked of consumers of a group, as before Spark 3.1")
def consumer_offsets(spark: Spark) -> None:
    topic = new_topic("deprecated", 3)
    for partition in range(3):
        produce(topic, range(10), partition=partition)
    spark.session.conf.set(ADMIN_OFFSETS, "true")
    try:
        assert spark.read(subscribe=topic, groupIdPrefix="conformance").count() == 30
        rows = spark.stream(subscribe=topic, startingOffsets="earliest")
        out = new_topic("deprecated-out")
        assert sum(finish(spark.copy(rows, out, new_checkpoint(), {"availableNow": True}))) == 30
    finally:
        spark.session.conf.set(ADMIN_OFFSETS, "false")


@check("batch: a topic that does not exist is a clear error")
def missing(spark: Spark) -> None:
    topic = fresh("missing")
    options = {"assign": f'{{"{topic}": [0]}}', "startingOffsets": f'{{"{topic}": {{"0": 0}}}}'}
    rows = spark.read(endingOffsets=f'{{"{topic}": {{"0": 5}}}}', **options)
    fails(rows.count, "UnknownTopicOrPartitionException")


@check("batch: lost records fail a query, or are left out")
def lost(spark: Spark) -> None:
    topic = new_topic("lost")
    produce(topic, range(100))
    delete_before(topic, 60)
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 0}}}}'}
    fails(lambda: spark.read(**options).count(), "failOnDataLoss")
    rows = spark.read(failOnDataLoss="false", **options)
    assert sorted(row.offset for row in rows.collect()) == list(range(60, 100))


@check("stream: topic to topic, limited by maxOffsetsPerTrigger, goes on from its checkpoint")
def copied(spark: Spark) -> None:
    source, target, checkpoint = new_topic("in", 2), new_topic("out", 2), new_checkpoint()
    for partition in range(2):
        produce(source, range(partition * 500, partition * 500 + 500), partition=partition)

    def once() -> list[int]:
        rows = spark.stream(
            subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="400"
        )
        return finish(spark.copy(rows, target, checkpoint, {"availableNow": True}))

    assert once() == [400, 400, 200]
    assert spark.numbers(target) == list(range(1000))
    produce(source, range(1000, 1100))
    assert once() == [100]
    assert spark.numbers(target) == list(range(1100))


@check("stream: a running query sees new records and new partitions")
def live(spark: Spark) -> None:
    source, target = new_topic("live"), new_topic("seen")
    rows = spark.stream(
        subscribe=source, startingOffsets="earliest", kafka__metadata__max__age__ms="1000"
    )
    query = spark.copy(rows, target, new_checkpoint())
    try:
        produce(source, range(10))
        until(lambda: spark.numbers(target) == list(range(10)), "the first rows are copied")
        add_partitions(source, 2)
        produce(source, range(10, 20), partition=1)
        until(lambda: spark.numbers(target) == list(range(20)), "the new partition is copied")
    finally:
        query.stop()


@check("stream: the continuous mode")
def continuous(spark: Spark) -> None:
    source, target = new_topic("continuous"), new_topic("continuous-out")
    rows = spark.stream(subscribe=source, startingOffsets="earliest")
    query = spark.copy(rows, target, new_checkpoint(), {"continuous": "1 second"})
    try:
        produce(source, range(100))
        until(lambda: spark.numbers(target) == list(range(100)), "the rows are copied")
    finally:
        query.stop()


@check("stream: a windowed count with a watermark, written as it closes")
def windows(spark: Spark) -> None:
    source, target = new_topic("windows"), new_topic("counts")
    produce(source, range(600), timestamp=lambda number: 1_700_000_000_000 + number * 1000)
    counts = (
        spark.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="300")
        .withWatermark("timestamp", "1 second")
        .groupBy(window("timestamp", "100 seconds"))
        .count()
        .selectExpr("cast(count as string) as value")
    )
    finish(spark.copy(counts, target, new_checkpoint(), {"availableNow": True}))
    assert spark.numbers(target) == [100] * 5  # The last window is still open.


@check("stream: records that expire under a query fail it, or are left out")
def expired(spark: Spark) -> None:
    for tolerant in (False, True):
        source, target, checkpoint = new_topic("expired"), new_topic("kept"), new_checkpoint()

        def once(
            source: str = source,
            target: str = target,
            checkpoint: object = checkpoint,
            tolerant: bool = tolerant,
        ) -> None:
            rows = spark.stream(
                subscribe=source,
                startingOffsets="earliest",
                failOnDataLoss=str(not tolerant).lower(),
            )
            finish(spark.copy(rows, target, checkpoint, {"availableNow": True}))

        produce(source, range(10))
        once()
        produce(source, range(10, 30))
        delete_before(source, 20)
        if tolerant:
            once()
            assert spark.numbers(target) == [*range(10), *range(20, 30)]
        else:
            fails(once, "failOnDataLoss")


@check("stream: a topic that is deleted fails its query")
def deleted(spark: Spark) -> None:
    source, target, checkpoint = new_topic("deleted"), new_topic("left"), new_checkpoint()
    produce(source, range(10))

    def once() -> None:
        rows = spark.stream(subscribe=source, startingOffsets="earliest")
        finish(spark.copy(rows, target, checkpoint, {"availableNow": True}))

    once()
    delete_topic(source)
    fails(once, "UnknownTopicOrPartitionException")


@check("both connectors: the same rows, columns and types")
def same_rows(spark: Spark) -> None:
    topic = new_topic("same", 2)
    for partition in range(2):
        produce(topic, range(500), partition=partition, compression="lz4")
    options = {"subscribe": topic, "includeHeaders": "true"}
    theirs, ours = spark.read(**options), spark.read("zhumq", **options)
    assert theirs.schema.simpleString() == ours.schema.simpleString()
    assert sorted(map(str, theirs.collect())) == sorted(map(str, ours.collect()))


@check("both connectors: one reads what the other writes")
def each_other(spark: Spark) -> None:
    rows = spark.session.range(500).selectExpr(
        "cast(id as string) as key", "cast(id as string) as value"
    )
    placed = []
    for sink, source in (("kafka", "zhumq"), ("zhumq", "kafka")):
        topic = new_topic("each-other", 4)
        spark.write(rows, sink, topic=topic)
        found = spark.read(source, subscribe=topic).collect()
        placed.append(sorted((bytes(row.key), bytes(row.value), row.partition) for row in found))
    # Both connectors send the same key to the same partition.
    assert len(placed[0]) == 500
    assert placed[0] == placed[1]


@check("both connectors: a stream begins at the same offsets")
def same_offsets(spark: Spark) -> None:
    topic = new_topic("offset-json")
    produce(topic, range(10))
    position = f'{{"{topic}": {{"0": 4}}}}'
    for source in ("kafka", "zhumq"):
        rows = spark.stream(source, subscribe=topic, startingOffsets=position)
        target = new_topic("offset-json-out")
        finish(spark.copy(rows, target, new_checkpoint(), {"availableNow": True}))
        assert spark.numbers(target) == list(range(4, 10))


COMPACTED = os.environ.get("COMPACTED_TOPICS", "").split(",")
for place, compacted in enumerate(filter(None, COMPACTED)):

    @check(f"batch: {compacted} is read to its end")
    def read_compacted(spark: Spark, topic: str = compacted, place: int = place) -> None:
        """Some segments of the topic hold no records after compaction."""
        expected = os.environ["COMPACTED_RECORDS"].split(";")[place]
        for source in ("kafka", "zhumq"):
            rows = spark.read(source, subscribe=topic).select("offset", "key").collect()
            found = [f"{row.offset}:{bytes(row.key).decode()}" for row in rows]
            assert ",".join(found) == expected, (source, found)


if __name__ == "__main__":
    sys.exit(main())
