"""kafka-transactions, Kafka's own command: list, describe, describe-producers, find-hanging and abort."""

from confluent_kafka import Producer

from conformance.transactions.killed import Topics
from conformance.transactions.programs import Programs, wait_until

TOOL = "org.apache.kafka.tools.TransactionsCommand"
WAIT_S = 60.0


class Commands:
    """The command, with a transaction that is left open."""

    def __init__(self, programs: Programs, topics: Topics) -> None:
        self._programs = programs
        self._topics = topics
        self._topic = "hanging"
        self._producer: Producer | None = None

    def run(self) -> None:
        self._topics.create(self._topic)
        producer = Producer(
            {
                "bootstrap.servers": self._programs.bootstrap,
                "transactional.id": "left-open",
                "transaction.timeout.ms": 600_000,
            }
        )
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce(self._topic, b"open")
        assert producer.flush(WAIT_S) == 0
        listed = self._programs.command(TOOL, "list")
        assert any("left-open" in line and "Ongoing" in line for line in listed.splitlines()), (
            listed
        )
        described = self._programs.command(TOOL, "describe", "--transactional-id", "left-open")
        assert f"{self._topic}-0" in described, described
        assert "Ongoing" in described, described
        producers = self._producers()
        assert len(producers) == 1, producers
        start_offset = producers[0]["CurrentTransactionStartOffset"]
        assert start_offset == "0", producers
        # It is not hanging: the coordinator knows of it.
        found = self._programs.command(
            TOOL, "find-hanging", "--broker-id", "0", "--max-transaction-timeout", "0"
        )
        assert self._topic not in found, found
        self._programs.command(
            TOOL,
            "abort",
            "--topic",
            self._topic,
            "--partition",
            "0",
            "--start-offset",
            start_offset,
        )
        wait_until(
            lambda: self._producers()[0]["CurrentTransactionStartOffset"] == "None",
            "the transaction is aborted",
            WAIT_S,
        )
        assert self._topics.read(self._topic, 1) == [[]]

    def _producers(self) -> list[dict[str, str]]:
        printed = self._programs.command(
            TOOL, "describe-producers", "--topic", self._topic, "--partition", "0"
        )
        header, *rows = [line.split() for line in printed.splitlines() if line.strip()]
        return [dict(zip(header, row, strict=True)) for row in rows]
