"""The source's own fetch client and its segment reader on a real broker, without Spark."""

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan
from spark_support import create_topic, delete_topic, produce, wait_until
from tests.integration.written_transactions import Transactions

from zhumq.client.brokers import TopicMissing
from zhumq.client.errors import ClusterFailed
from zhumq.client.wire import Connection
from zhumq.model.errors import CorruptMessage
from zhumq.model.ids import TopicPartition
from zhumq.spark.cluster_client import LATEST, ClusterClient
from zhumq.spark.fetcher import FETCH_BYTES_FIRST, DataLost
from zhumq.spark.options import OptionInvalid, read_options
from zhumq.spark.planner import plan_batch
from zhumq.spark.ranges import OffsetRange, from_json
from zhumq.spark.reader import BatchReader, FilteringReader, RangePartition, read_range
from zhumq.spark.segments import FolderUnusable
from zhumq.spark.stream_reader import StreamReader
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.process import broker_process


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


def options_of(running: RunningBroker, streaming: bool = False, **options: str) -> Any:
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"kafka.bootstrap.servers": running.bootstrap, **named}
    return read_options(given, streaming=streaming)


def rows(reader: BatchReader) -> list[dict[str, Any]]:
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def offsets(reader: BatchReader) -> list[int]:
    return [row["offset"] for row in rows(reader)]


def cut_before(running: RunningBroker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    (future,) = admin.delete_records([KafkaPartition(topic, 0, offset)]).values()
    future.result(30)


def test_a_range_is_read_to_the_offset(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "range")
    produce(running.bootstrap, "range", (b"%d" % i for i in range(20_000)))
    options = options_of(running, subscribe="range", columns="offset,value")
    place = TopicPartition("range", 0)
    part = OffsetRange(place=place, first_offset=1234, until_offset=15_001)
    found = [row for batch in read_range(part, options) for row in batch.to_pylist()]
    assert found == [{"offset": i, "value": b"%d" % i} for i in range(1234, 15_001)]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_the_isolation_level_decides_which_transactions_are_read(
    running: RunningBroker, level: str
) -> None:
    topic = f"transactions-{level}"
    create_topic(running.bootstrap, topic)
    written = Transactions(running.bootstrap, topic)
    given = {} if level == "read_committed" else {"isolationLevel": level}  # it is the default

    def values() -> list[bytes]:
        options = options_of(running, subscribe=topic, columns="value", **given)
        return [row["value"] for row in rows(BatchReader(options))]

    assert values() == written.visible[level]
    written.commit()
    assert values() == written.visible[level] + written.visible_later[level]


def test_a_short_range_fetches_little_more_than_it_reads(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(running.bootstrap, "backlog")
    produce(running.bootstrap, "backlog", (bytes(1000) for _ in range(12_000)), batch_rows=100)
    options = options_of(running, subscribe="backlog", columns="offset")
    received: list[int] = []
    exactly = Connection._receive_exactly

    def counting(connection: Connection, count: int) -> bytes:
        received.append(count)
        return exactly(connection, count)

    monkeypatch.setattr(Connection, "_receive_exactly", counting)
    for row_count, bytes_max in ((100, FETCH_BYTES_FIRST + 200_000), (5000, 6_500_000)):
        received.clear()
        part = OffsetRange(
            place=TopicPartition("backlog", 0), first_offset=50, until_offset=50 + row_count
        )
        assert sum(batch.num_rows for batch in read_range(part, options)) == row_count
        assert sum(received) < bytes_max


def test_what_retention_has_deleted_is_an_error_or_left_out(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "cut")
    produce(running.bootstrap, "cut", (b"x" for _ in range(100)))
    cut_before(running, "cut", 40)
    given = {"subscribe": "cut", "startingOffsets": '{"cut": {"0": 10}}', "columns": "offset"}
    with pytest.raises(DataLost, match=r"the log begins at 40.*failOnDataLoss"):
        rows(BatchReader(options_of(running, **given)))
    forgiving = BatchReader(options_of(running, failOnDataLoss="false", **given))
    assert offsets(forgiving) == list(range(40, 100))


def test_an_end_that_the_log_never_reaches_is_an_error_or_the_end(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "short")
    produce(running.bootstrap, "short", (b"x" for _ in range(10)))
    given = {
        "subscribe": "short",
        "endingOffsets": '{"short": {"0": 20}}',
        "columns": "offset",
        "kafkaConsumer__pollTimeoutMs": "300",
    }
    with pytest.raises(DataLost, match="the log ends at 10"):
        rows(BatchReader(options_of(running, **given)))
    assert offsets(BatchReader(options_of(running, failOnDataLoss="false", **given))) == [
        *range(10)
    ]


def test_a_topic_that_is_deleted_between_planning_and_reading(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "gone")
    produce(running.bootstrap, "gone", [b"x"])
    strict = BatchReader(options_of(running, subscribe="gone"))
    (partition,) = strict.partitions()
    delete_topic(running.bootstrap, "gone")
    with pytest.raises(DataLost, match="the topic no longer exists"):
        list(strict.read(partition))
    forgiving = BatchReader(options_of(running, subscribe="gone", failOnDataLoss="false"))
    assert list(forgiving.read(partition)) == []


def test_what_does_not_exist_is_named(running: RunningBroker) -> None:
    with pytest.raises(TopicMissing, match=r"no topic 'nowhere'.*zhumq topic create"):
        BatchReader(options_of(running, subscribe="nowhere")).partitions()
    create_topic(running.bootstrap, "small")
    with pytest.raises(TopicMissing, match="'small' has no partition 4"):
        BatchReader(options_of(running, assign='{"small": [4]}')).partitions()
    assert BatchReader(options_of(running, subscribePattern="no.*such")).partitions() == []


def test_offsets_must_name_every_partition(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "two", 2)
    with ClusterClient(running.bootstrap) as client:
        for offsets_given, words in [
            ('{"two": {"0": 0}}', "has no offset for two-1"),
            ('{"two": {"0": 0, "1": 0, "2": 0}}', "names two-2, which is not read"),
        ]:
            options = options_of(running, subscribe="two", startingOffsets=offsets_given)
            with pytest.raises(OptionInvalid, match=words):
                plan_batch(client, options)


def test_a_range_may_be_given_by_time(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "times")
    produce(running.bootstrap, "times", (b"x" for _ in range(50)), timestamp=lambda i: 1000 + i)
    reader = BatchReader(
        options_of(running, subscribe="times", startingTimestamp="1010", endingTimestamp="1020")
    )
    assert offsets(reader) == list(range(10, 20))
    late = {"subscribe": "times", "startingTimestamp": "9999"}
    with pytest.raises(OptionInvalid, match="no record at or after 9999"):
        BatchReader(options_of(running, **late)).partitions()
    at_end = options_of(running, startingOffsetsByTimestampStrategy="latest", **late)
    assert BatchReader(at_end).partitions() == []


def test_filters_make_the_ranges_smaller(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "filters", 2)
    for partition in range(2):
        produce(
            running.bootstrap,
            "filters",
            (b"x" for _ in range(50)),
            partition=partition,
            timestamp=lambda i: 1000 + i,
        )
    reader = FilteringReader(options_of(running, subscribe="filters", pushFilters="true"))
    moment = datetime.fromtimestamp(1.030, UTC)
    reader.pushFilters(
        [
            EqualTo(("partition",), 1),
            LessThan(("offset",), 45),
            GreaterThanOrEqual(("timestamp",), moment),
        ]
    )
    place = TopicPartition("filters", 1)
    with ClusterClient(running.bootstrap) as client:
        client.partitions(["filters"])
        topic_id = client.topic_id("filters")
    expected = OffsetRange(place=place, first_offset=30, until_offset=45, topic_id=topic_id)
    assert reader.partitions() == [RangePartition(expected)]


def test_progress_is_committed_to_the_group(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "progress")
    produce(running.bootstrap, "progress", (b"x" for _ in range(10)))
    options = options_of(
        running,
        streaming=True,
        subscribe="progress",
        startingOffsets="earliest",
        groupId="shown",
        maxOffsetsPerTrigger="4",
    )
    reader = StreamReader(options)
    position = reader.initialOffset()
    seen = []
    with ClusterClient(running.bootstrap) as client:
        for _ in range(4):
            position = reader.latestOffset(position, reader.getDefaultReadLimit())
            seen.append(client.committed_offsets("shown")[TopicPartition("progress", 0)])
    assert seen == [0, 4, 8, 10]
    assert from_json(position) == {TopicPartition("progress", 0): 10}


def test_bytes_limit_a_trigger(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "bytes")
    produce(running.bootstrap, "bytes", (bytes(1000) for _ in range(1000)))
    options = options_of(
        running,
        streaming=True,
        subscribe="bytes",
        startingOffsets="earliest",
        maxBytesPerTrigger="100000",
    )
    reader = StreamReader(options)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert 80 <= end["bytes"]["0"] <= 120


def test_a_trigger_waits_for_enough_rows_but_not_for_ever(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "few")
    produce(running.bootstrap, "few", (b"x" for _ in range(5)))
    given = {"subscribe": "few", "startingOffsets": "earliest", "minOffsetsPerTrigger": "6"}
    patient = StreamReader(options_of(running, streaming=True, **given))
    start = patient.initialOffset()
    assert patient.latestOffset(start, patient.getDefaultReadLimit()) == start
    hasty = StreamReader(options_of(running, streaming=True, maxTriggerDelay="0", **given))
    few = {TopicPartition("few", 0): 5}
    assert from_json(hasty.latestOffset(start, hasty.getDefaultReadLimit())) == few
    patient.prepareForTriggerAvailableNow()  # Such a run would otherwise wait forever.
    assert from_json(patient.latestOffset(start, patient.getDefaultReadLimit())) == few


def test_an_available_now_run_ends_where_it_was_when_it_began(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "now")
    produce(running.bootstrap, "now", (b"x" for _ in range(5)))
    reader = StreamReader(
        options_of(running, streaming=True, subscribe="now", startingOffsets="earliest")
    )
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    produce(running.bootstrap, "now", (b"x" for _ in range(5)))
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert from_json(end) == {TopicPartition("now", 0): 5}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_a_partition_that_is_added_is_read_from_its_start(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "grows")
    reader = StreamReader(options_of(running, streaming=True, subscribe="grows"))
    start = reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_partitions([NewPartitions("grows", 2)])["grows"].result(30)
    produce(running.bootstrap, "grows", [b"x", b"y"], partition=1)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert from_json(end) == {TopicPartition("grows", 0): 0, TopicPartition("grows", 1): 2}
    (partition,) = reader.partitions(start, end)
    (batch,) = reader.read(partition)
    assert batch.column("value").to_pylist() == [b"x", b"y"]


def test_a_partition_that_is_added_and_has_lost_records_already(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "late", 2)
    produce(running.bootstrap, "late", (b"x" for _ in range(5)))
    cut_before(running, "late", 2)
    start, end = {"late": {"1": 0}}, {"late": {"0": 5, "1": 0}}
    strict = StreamReader(options_of(running, streaming=True, subscribe="late"))
    with pytest.raises(DataLost, match="late-0 is new to the query and begins at 2, not at 0"):
        strict.partitions(start, end)
    forgiving = StreamReader(
        options_of(running, streaming=True, subscribe="late", failOnDataLoss="false")
    )
    (partition,) = forgiving.partitions(start, end)
    assert isinstance(partition, RangePartition)
    assert (partition.range.first_offset, partition.range.until_offset) == (2, 5)


def test_a_topic_that_is_deleted_under_a_stream(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "vanishes")
    given = {"subscribe": "vanishes", "startingOffsets": "earliest"}
    start = {"vanishes": {"0": 0}}
    delete_topic(running.bootstrap, "vanishes")
    strict = StreamReader(options_of(running, streaming=True, **given))
    with pytest.raises(DataLost, match="vanishes-0 is gone"):
        strict.latestOffset(start, strict.getDefaultReadLimit())
    forgiving = StreamReader(options_of(running, streaming=True, failOnDataLoss="false", **given))
    assert forgiving.latestOffset(start, forgiving.getDefaultReadLimit()) == {}


@pytest.mark.parametrize("available_now", [False, True])
def test_a_topic_that_was_made_anew_under_a_stream(
    running: RunningBroker, available_now: bool
) -> None:
    topic = f"anew-{available_now}"
    create_topic(running.bootstrap, topic)
    produce(running.bootstrap, topic, [b"x", b"y"])
    start = {topic: {"0": 100}}  # the progress in the deleted topic

    def reader(**options: str) -> StreamReader:
        made = StreamReader(options_of(running, streaming=True, subscribe=topic, **options))
        if available_now:
            made.prepareForTriggerAvailableNow()
        return made

    strict = reader()
    with pytest.raises(DataLost, match="ends at 2, before the offset 100"):
        strict.latestOffset(start, strict.getDefaultReadLimit())
    forgiving = reader(failOnDataLoss="false")
    end = forgiving.latestOffset(start, forgiving.getDefaultReadLimit())
    assert from_json(end) == {TopicPartition(topic, 0): 2}
    (partition,) = forgiving.partitions(start, end)
    (batch,) = forgiving.read(partition)
    assert batch.column("value").to_pylist() == [b"x", b"y"]
    assert forgiving.latestOffset(end, forgiving.getDefaultReadLimit()) == end


def test_a_log_with_gaps_is_read_alike_however_it_is_cut(tmp_path: Path) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "16384",
        "min.cleanable.dirty.ratio": "0.01",
    }
    chance = random.Random(1)
    with broker(data_dir=tmp_path) as first:
        create_topic(first.bootstrap, "gaps", 1, config)
        values = (chance.randbytes(500) for _ in range(400))
        produce(first.bootstrap, "gaps", values, batch_rows=20, keys=20, compression="lz4")
    # After a clean stop all of it is below the recovery point, so compaction can clean it.
    with broker(data_dir=tmp_path, settings={"log.cleaner.backoff.ms": "50"}) as second:
        files = tmp_path / "gaps-0"

        def is_compacted() -> bool:
            try:
                return sum(each.stat().st_size for each in files.glob("*.log")) < 100_000
            except FileNotFoundError:  # It was compacted away since the folder was listed.
                return False

        wait_until(is_compacted, "the topic is compacted")
        given = {"subscribe": "gaps", "startingOffsets": "earliest"}
        whole = offsets(BatchReader(options_of(second, columns="offset", subscribe="gaps")))
        assert whole == sorted(set(whole))
        assert len(whole) < 200
        # Most ranges begin or end in a gap, and some hold no records.
        for rows_max in ("1", "7", "64"):
            reader = StreamReader(
                options_of(second, streaming=True, maxOffsetsPerTrigger=rows_max, **given)
            )
            found: list[int] = []
            position, end = {}, reader.initialOffset()
            while position != end:
                position, end = end, reader.latestOffset(end, reader.getDefaultReadLimit())
                for partition in reader.partitions(position, end):
                    for batch in reader.read(partition):
                        found += batch.column("offset").to_pylist()
            assert found == whole
            assert from_json(end) == {TopicPartition("gaps", 0): 400}


def test_no_broker_is_one_clear_error() -> None:
    with (
        ClusterClient("127.0.0.1:1", retry_seconds_max=0.1) as client,
        pytest.raises(ClusterFailed, match=r"cannot ask for topics at 127.0.0.1:1: .*refused"),
    ):
        client.partitions(["t"])


def test_a_read_goes_on_after_the_broker_was_away(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, "t")
        produce(process.bootstrap, "t", (bytes(10_000) for _ in range(3000)))
        given = {"kafka.bootstrap.servers": process.bootstrap, "subscribe": "t"}
        reader = BatchReader(read_options({**given, "columns": "offset"}, streaming=False))
        (partition,) = reader.partitions()
        batches = reader.read(partition)
        seen = [next(batches)]
        # The broker stops with its connections, and starts on the same port while the reader retries.
        process.stop()
        reading = threading.Thread(target=lambda: seen.extend(batches))
        reading.start()
        process.start()
        reading.join(60)
        assert not reading.is_alive()
    found = [offset for batch in seen for offset in batch.column("offset").to_pylist()]
    assert found == list(range(3000))


def test_segment_folders_are_read_without_a_broker(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path, settings={"log.segment.bytes": "16384"}) as running:
        for name in ("logs", "other"):
            create_topic(running.bootstrap, name, 2)
            for partition in range(2):
                values = (b"%d" % i + bytes(200) for i in range(500))
                produce(running.bootstrap, name, values, partition=partition, batch_rows=50)
    options = read_options({"path": str(tmp_path), "subscribe": "logs"}, streaming=False)
    found = rows(BatchReader(options))
    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
        ("logs", partition, offset) for partition in range(2) for offset in range(500)
    ]
    assert len(list((tmp_path / "logs-0").glob("*.log"))) > 2
    one_folder = {
        "path": str(tmp_path / "other-1"),
        "startingOffsets": '{"other": {"1": 120}}',
        "endingOffsets": '{"other": {"1": 130}}',
    }
    assert offsets(BatchReader(read_options(one_folder, streaming=False))) == [*range(120, 130)]
    by_time = read_options({"path": str(tmp_path), "startingTimestamp": "5"}, streaming=False)
    with pytest.raises(OptionInvalid, match="startingTimestamp needs a broker"):
        BatchReader(by_time).partitions()
    for bad in (tmp_path / "missing", tmp_path / "logs-0" / "deeper"):
        with pytest.raises(FolderUnusable):
            BatchReader(read_options({"path": str(bad)}, streaming=False)).partitions()


def test_a_torn_tail_is_skipped_and_a_damaged_middle_is_an_error(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path, settings={"log.segment.bytes": "16384"}) as running:
        create_topic(running.bootstrap, "t")
        produce(running.bootstrap, "t", (bytes(200) for _ in range(200)), batch_rows=10)
    files = sorted((tmp_path / "t-0").glob("*.log"))
    last = files[-1].read_bytes()
    files[-1].write_bytes(last + last[:100])
    options = {"path": str(tmp_path), "columns": "offset"}
    assert offsets(BatchReader(read_options(options, streaming=False))) == list(range(200))
    damaged = bytearray(files[0].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    files[0].write_bytes(damaged)
    with pytest.raises(CorruptMessage, match=r"\.log, at byte \d+: .*failOnDataLoss"):
        rows(BatchReader(read_options(options, streaming=False)))
    forgiving = read_options({**options, "failOnDataLoss": "false"}, streaming=False)
    left = offsets(BatchReader(forgiving))
    assert 0 < len(left) < 200
    assert left[-1] == 199


def test_the_latest_offset_is_asked_of_the_leader(running: RunningBroker) -> None:
    create_topic(running.bootstrap, "leader")
    produce(running.bootstrap, "leader", [b"x"])
    place = TopicPartition("leader", 0)
    with ClusterClient(running.bootstrap) as client:
        assert client.list_offsets({place: LATEST}) == {place: 1}
        with pytest.raises(TopicMissing):
            client.list_offsets({TopicPartition("unknown", 0): LATEST})
