"""Options: valid ones are parsed, and invalid ones are refused by name."""

import pickle

import pytest

pytest.importorskip("pyarrow")

from zhumq.model.ids import TopicPartition
from zhumq.spark.cluster_client import EARLIEST, LATEST
from zhumq.spark.options import OptionInvalid, ReadOptions, read_options, write_options


def read(streaming: bool = False, **options: str) -> ReadOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return read_options({"subscribe": "t", **named}, streaming=streaming)


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.start.everywhere, batch.end.everywhere) == (EARLIEST, LATEST)
    assert stream.start.everywhere == LATEST
    assert "headers" not in batch.columns
    assert "headers" in read(includeHeaders="true").columns


def test_names_are_case_insensitive() -> None:
    options = read_options(
        {"SUBSCRIBE": "a, b", "failondataloss": "FALSE", "Kafka.Bootstrap.Servers": "h:1,i:2"},
        streaming=False,
    )
    assert options.subscription.topics == ("a", "b")
    assert not options.fail_on_data_loss
    assert options.bootstrap == "h:1,i:2"


def test_offsets_and_partitions_are_read_from_json() -> None:
    options = read_options(
        {"assign": '{"t": [0, 2]}', "startingOffsets": '{"t": {"0": 5, "2": -2}}'}, streaming=False
    )
    places = (TopicPartition("t", 0), TopicPartition("t", 2))
    assert options.subscription.partitions == places
    assert options.start.offsets == dict(zip(places, (5, -2), strict=True))


def test_a_timestamp_takes_precedence_over_offsets() -> None:
    options = read(startingTimestamp="17", startingOffsets="earliest")
    assert (options.start.timestamp_ms, options.start.everywhere) == (17, None)
    by_partition = read(endingOffsetsByTimestamp='{"t": {"0": 9}}')
    assert by_partition.end.timestamps_ms == {TopicPartition("t", 0): 9}


def test_a_pattern_picks_names_as_sparks_connector_does() -> None:
    def picked(pattern: str) -> list[str]:
        subscription = read_options({"subscribePattern": pattern}, streaming=False).subscription
        names = ("log-a", "my-log-a", "LOG-a", "__consumer_offsets", "__zhumq_spark_sink")
        return [name for name in names if subscription.names(name)]

    assert picked("log-.*") == ["log-a", "my-log-a"]  # found anywhere in the name
    assert picked("^log-") == ["log-a"]
    assert picked("^log$") == []
    assert picked(".*") == ["log-a", "my-log-a", "LOG-a"]  # no internal topics


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_what_sparks_connector_refuses_is_refused_here(name: str) -> None:
    for streaming in (False, True):
        with pytest.raises(OptionInvalid, match=f"Kafka option '{name}' is not supported"):
            read_options({"subscribe": "t", f"Kafka.{name}": "x"}, streaming=streaming)


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
def test_serializers_are_refused_as_sparks_connector_does(name: str) -> None:
    with pytest.raises(OptionInvalid, match=f"Kafka option '{name}' is not supported"):
        write_options({"topic": "t", f"kafka.{name}": "x"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "one of subscribe, subscribePattern, assign"),
        ({"subscribe": "a", "assign": "{}"}, "exclude each other"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"subscribePattern": "[a-z&&[^b]]"}, "a regular expression of Python"),
        ({"subscribePattern": r"\p{Alpha}"}, "a regular expression of Python"),
        ({"assign": "t"}, "assign is not JSON"),
        ({"assign": '{"t": 0}'}, "assign is a topic's partitions"),
        ({"assign": '{"t": [-1]}'}, "assign is a topic's partitions"),
        ({"assign": '{"t": [true]}'}, "assign is a topic's partitions"),
        ({"assign": "{}"}, "assign names no partition"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "nothing is read"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "nothing is read"),
        ({"subscribe": "t", "endingOffsets": '{"t": {"0": -2}}'}, "cannot be -2"),
        ({"subscribe": "t", "startingOffsets": "newest"}, "startingOffsets is not JSON"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": "1"}}'}, "a number for each"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"x": 1}}'}, "a number for each"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": -3}}'}, "cannot be -3"),
        ({"subscribe": "t", "startingTimestamp": "today"}, "milliseconds since 1970"),
        ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "x"}, "error or latest"),
        ({"subscribe": "t", "failOnDataLoss": "yes"}, "true or false"),
        ({"subscribe": "t", "minPartitions": "0"}, "above 0"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "many"}, "above 0"),
        ({"subscribe": "t", "maxTriggerDelay": "soon"}, "a time such as"),
        ({"subscribe": "t", "columns": "key,colour"}, "no column 'colour'"),
        ({"subscribe": "t", "columns": "key,key"}, "named twice"),
        ({"subscribe": "t", "kafka.bootstrap.servers": "here"}, "'here' is not HOST:PORT"),
        ({"subscribe": "t", "kafka.security.protocol": "TLS"}, "security.protocol is one of"),
        (
            {"subscribe": "t", "kafka.security.protocol": "SASL_SSL"},
            r"kafka\.\*: sasl.mechanism is one of .* is not set",
        ),
        ({"subscribe": "t", "kafka.isolation.level": "x"}, "read_committed or"),
        ({"subscribe": "t", "isolationLevel": "serializable"}, "read_committed or"),
        (
            {
                "subscribe": "t",
                "isolationLevel": "read_committed",
                "kafka.isolation.level": "read_uncommitted",
            },
            "differ",
        ),
        ({"path": "/data", "isolationLevel": "read_committed"}, "read from a broker"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "no option 'startingoffset'"),
        (
            {"subscribe": "t", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "larger than",
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionInvalid, match=words):
        read_options(options, streaming=False)


@pytest.mark.parametrize("name", ["path", "endingOffsets", "endingTimestamp"])
def test_what_is_for_batches_is_refused_for_streams(name: str) -> None:
    with pytest.raises(OptionInvalid, match=f"{name} is for batch reads"):
        read(streaming=True, **{name: "1"})


def test_a_time_may_have_a_unit() -> None:
    assert read(maxTriggerDelay="15m").trigger_delay_ms_max == 900_000
    assert read(maxTriggerDelay="40").trigger_delay_ms_max == 40


def test_kafka_settings_of_a_sink_go_to_its_producer() -> None:
    options = write_options(
        {"kafka.bootstrap.servers": "h:1", "kafka.linger.ms": "5", "topic": "t"}
    )
    assert options.producer_settings == {"linger.ms": "5"}
    assert (options.bootstrap, options.topic) == ("h:1", "t")


def test_a_source_option_on_a_sink_is_refused() -> None:
    with pytest.raises(OptionInvalid, match="no option 'subscribe'"):
        write_options({"subscribe": "t"})


SECURED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="alice" password="${env:ALICE_7}";',
}


def test_security_options_travel_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALICE_7", "wonderland")
    read = read_options({"subscribe": "t", **SECURED}, streaming=True)
    write = write_options({"topic": "t", "kafka.acks": "1", **SECURED})
    for options in (read, write):
        assert b"wonderland" not in pickle.dumps(options)
        arrived = pickle.loads(pickle.dumps(options)).security.security()
        assert (arrived.username, arrived.password.reveal()) == ("alice", "wonderland")
    assert write.producer_settings == {"acks": "1"}


def test_security_options_are_not_printed() -> None:
    literal = {
        "kafka.sasl.jaas.config": SECURED["kafka.sasl.jaas.config"].replace(
            "${env:ALICE_7}", "geheim"
        )
    }
    options = read_options({"subscribe": "t", **SECURED, **literal}, streaming=False)
    assert "geheim" not in repr(options)
    assert "sasl.jaas.config" in repr(options)


def test_a_secret_that_is_not_there_fails_before_any_task() -> None:
    absent = {"kafka.sasl.jaas.config": "${env:ABSENT_7}"}
    with pytest.raises(OptionInvalid, match="the environment variable ABSENT_7 is not set"):
        write_options({"topic": "t", **SECURED, **absent})


def test_a_batch_write_is_named_by_both_options_or_by_none() -> None:
    named = write_options({"topic": "t", "txnAppId": "orders", "txnVersion": "7"}).repeatable
    assert named is not None
    assert (named.app_id, named.version) == ("orders", 7)
    assert write_options({"topic": "t"}).repeatable is None
    for given in ({"txnAppId": "orders"}, {"txnVersion": "7"}, {"txnAppId": "", "txnVersion": "7"}):
        with pytest.raises(OptionInvalid, match="give both"):
            write_options({"topic": "t", **given})
    for version in ("-1", "x", "1.5", "\u0661", str(2**63)):
        with pytest.raises(OptionInvalid, match="txnVersion is the number of a batch"):
            write_options({"topic": "t", "txnAppId": "orders", "txnVersion": version})
