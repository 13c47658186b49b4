"""`zhumq transaction` as an operator runs it: open, prepared and hanging transactions."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from cli_support import Cli
from tests.integration.written_transactions import (
    FORGOTTEN_PRODUCER,
    append_forgotten_transaction,
    prepare_two_phase,
)

import zhumq
from zhumq.testing.broker import broker

SECONDS_MAX = 30.0
HANGING = "hanging"


class Producer:
    """A transactional producer with a message in an open transaction."""

    def __init__(self, bootstrap: str, name: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
        )
        self._producer.init_transactions(SECONDS_MAX)
        self._producer.begin_transaction()
        self._producer.produce(topic, name.encode(), partition=0)
        assert self._producer.flush(SECONDS_MAX) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS_MAX)


@pytest.fixture(scope="module")
def start_offset() -> list[int]:
    return []


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory, start_offset: list[int]) -> Iterator[Cli]:
    data_dir: Path = tmp_path_factory.mktemp("transactions")
    settings = {"transaction.two.phase.commit.enable": "true"}
    with broker(data_dir=data_dir) as running, zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic(HANGING, partitions=1)
    start_offset.append(append_forgotten_transaction(data_dir, HANGING))
    with broker(data_dir=data_dir, settings=settings) as running:
        yield Cli(running.bootstrap)


def read_committed(cli: Cli, topic: str) -> list[bytes]:
    """The values that a consumer of partition 0 sees up to the last stable offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cli.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            if message.error():
                return values
            values.append(message.value() or b"")
    finally:
        consumer.close()


def described(cli: Cli, name: str) -> dict[str, object]:
    document: dict[str, object] = cli.must("transaction", "describe", name, "--json").document
    return document


@pytest.mark.thorough
def test_transactions_are_listed_with_their_age_and_filtered(operator: Cli, topic: str) -> None:
    Producer(operator.bootstrap, "listed-done", topic).commit()
    still_open = Producer(operator.bootstrap, "listed-open", topic)

    def listed(*options: str) -> list[tuple[str, str]]:
        rows = operator.must("transaction", "list", "--json", *options).document
        return [
            (each["transactional_id"], each["state"])
            for each in rows
            if each["transactional_id"].startswith("listed")
        ]

    done, begun = ("listed-done", "CompleteCommit"), ("listed-open", "Ongoing")
    assert listed() == [done, begun]
    assert listed("--state", "Ongoing") == [begun]
    assert listed("--older-than", "0") == [begun]
    assert listed("--older-than", "3600") == []
    assert listed("--pattern", ".*-done") == [done]
    producer_id = str(described(operator, "listed-open")["producer_id"])
    assert listed("--producer-id", producer_id) == [begun]
    heading, row = operator.must("transaction", "list", "--pattern", "listed-open").lines
    assert heading.startswith("TRANSACTIONAL ID  STATE    AGE")
    assert "0:00:" in row
    still_open.commit()


def test_a_transaction_is_described_and_aborted_by_its_id(operator: Cli, topic: str) -> None:
    producer = Producer(operator.bootstrap, "described", topic)
    facts = described(operator, "described")
    assert facts["state"] == "Ongoing"
    assert facts["timeout_ms"] == 60_000
    assert facts["partitions"] == [{"topic": topic, "partition": 0}]
    assert isinstance(facts["age_ms"], int)
    text = operator.must("transaction", "describe", "described").lines
    assert text[0].split() == ["transactional", "id", "described"]
    assert text[-1].split() == [topic, "0"]

    operator.must("transaction", "abort", "described")

    assert read_committed(operator, topic) == []
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit()
    assert described(operator, "described")["partitions"] == []
    assert "has no open transaction" in operator.fails("transaction", "abort", "described")


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_prepared_transaction_is_ended_by_an_operator(
    operator: Cli, topic: str, is_commit: bool
) -> None:
    with zhumq.Admin(operator.bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
    name = f"prepared-{is_commit}"
    pair = prepare_two_phase(operator.bootstrap, name, topic, b"prepared")
    facts = described(operator, name)
    assert facts["timeout_ms"] is None
    assert (facts["producer_id"], facts["producer_epoch"]) == (
        pair.producer_id,
        pair.producer_epoch,
    )
    (row,) = operator.must("transaction", "list", "--pattern", name, "--json").document
    assert row["is_two_phase"] is True

    operator.must("transaction", "commit" if is_commit else "abort", name)

    assert read_committed(operator, topic) == ([b"prepared"] if is_commit else [])
    state = "CompleteCommit" if is_commit else "CompleteAbort"
    assert described(operator, name)["state"] == state


def test_only_a_prepared_transaction_is_committed_by_an_operator(operator: Cli, topic: str) -> None:
    producer = Producer(operator.bootstrap, "ordinary", topic)
    assert "no two-phase producer" in operator.fails("transaction", "commit", "ordinary")
    producer.commit()
    assert read_committed(operator, topic) == [b"ordinary"]


@pytest.mark.thorough
def test_a_hanging_transaction_is_found_and_aborted(
    operator: Cli, topic: str, start_offset: list[int]
) -> None:
    # Open in a partition, and known to its coordinator.
    known = Producer(operator.bootstrap, "known", topic)
    found = operator.must("transaction", "find-hanging", "--older-than", "0", "--json").document
    assert [(each["topic"], each["partition"], each["start_offset"]) for each in found] == [
        (HANGING, 0, start_offset[0])
    ]
    assert found[0]["producer_id"] == FORGOTTEN_PRODUCER
    for options in (("--topic", HANGING), ("--broker", "0")):
        heading, row = operator.must("transaction", "find-hanging", *options).lines
        assert heading.startswith("TOPIC")
        assert row.startswith(HANGING)
    operator.must("produce", HANGING, lines=["behind it"])
    assert read_committed(operator, HANGING) == []  # It holds the consumers back.

    place = ("--topic", HANGING, "--partition", "0", "--start-offset", str(start_offset[0]))
    operator.must("transaction", "abort", *place)

    assert read_committed(operator, HANGING) == [b"behind it"]
    assert operator.must("transaction", "find-hanging", "--json").document == []
    assert "no open transaction starts at" in operator.fails("transaction", "abort", *place)
    known.commit()


def test_a_marker_alone_ends_no_transaction_of_a_coordinator(operator: Cli, topic: str) -> None:
    producer = Producer(operator.bootstrap, "whole", topic)
    place = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    assert "zhumq transaction abort whole" in operator.fails("transaction", "abort", *place)
    producer.commit()
    assert read_committed(operator, topic) == [b"whole"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("describe", "missing-id"), "there is no transactional id 'missing-id'"),
        (("abort", "missing-id"), "there is no transactional id 'missing-id'"),
        (("commit", "missing-id"), "there is no transactional id 'missing-id'"),
        (("abort",), "give an ID, or --topic, --partition and --start-offset"),
        (("abort", "an-id", "--topic", "t"), "give an ID, or"),
        (("list", "--state", "Sleeping"), "there is no state Sleeping"),
        (("list", "--pattern", "(unclosed"), "is not an expression of RE2"),
        (("find-hanging", "--partition", "0"), "--partition needs --topic"),
        (("find-hanging", "--topic", "missing"), "there is no topic 'missing'"),
        (("find-hanging", "--topic", HANGING, "--partition", "5"), "has no partition 5"),
        (("find-hanging", "--broker", "9"), "there is no broker 9"),
    ],
)
def test_what_cannot_be_is_one_clear_line(
    operator: Cli, arguments: tuple[str, ...], message: str
) -> None:
    assert message in operator.fails("transaction", *arguments)
