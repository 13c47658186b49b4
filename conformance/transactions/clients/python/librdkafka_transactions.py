"""librdkafka, by confluent-kafka: transactions."""

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from transaction_steps import END, WAIT_S, Arguments, Client, arguments, run, values


class Librdkafka(Client):
    def __init__(self, given: Arguments) -> None:
        super().__init__(given)
        self._producer = self._connect()

    def _connect(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.given.bootstrap,
                "transactional.id": self.given.id,
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(WAIT_S)
        return producer

    def _consumer(self, level: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.given.bootstrap,
                "group.id": self.given.group,
                "isolation.level": level,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def transact(self, word: str, *, is_commit: bool) -> None:
        self._producer.begin_transaction()
        for value in values(word):
            for topic in self.given.topics:
                self._producer.produce(topic, value)
        self._producer.flush(WAIT_S)  # so that the values of an aborted one are in the log, too
        self._end(is_commit=is_commit)

    def _end(self, *, is_commit: bool) -> None:
        if is_commit:
            self._producer.commit_transaction(WAIT_S)
        else:
            self._producer.abort_transaction(WAIT_S)

    def send_end(self) -> None:
        plain = Producer({"bootstrap.servers": self.given.bootstrap})
        for topic in self.given.topics:
            plain.produce(topic, END)
        assert plain.flush(WAIT_S) == 0

    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        consumer = self._consumer("read_committed" if committed else "read_uncommitted")
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while not found or found[-1] != END:
            message = consumer.poll(WAIT_S)
            assert message is not None, found
            assert message.error() is None, message.error()
            found.append(message.value())
        consumer.close()
        return found[:-1]

    def send_offsets(self, offset: int, *, is_commit: bool) -> None:
        consumer = self._consumer("read_committed")
        self._producer.begin_transaction()
        self._producer.produce(self.given.second, b"with offsets")
        self._producer.send_offsets_to_transaction(
            [TopicPartition(self.given.first, 0, offset)],
            consumer.consumer_group_metadata(),
            WAIT_S,
        )
        self._end(is_commit=is_commit)
        consumer.close()

    def committed_offset(self) -> int:
        consumer = self._consumer("read_committed")
        (found,) = consumer.committed([TopicPartition(self.given.first, 0)], WAIT_S)
        consumer.close()
        return found.offset

    def fenced(self) -> bool:
        self._producer.begin_transaction()
        self._producer.produce(self.given.second, b"fenced")
        self._producer.flush(WAIT_S)
        second = self._connect()
        try:
            self._producer.commit_transaction(WAIT_S)
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            self._producer = second
            return error.fatal() and error.code() == KafkaError._FENCED
        return False

    def misuse(self) -> bool:
        refused = 0
        for call in (
            lambda: self._producer.produce(self.given.first, b"outside"),
            lambda: self._producer.commit_transaction(WAIT_S),
        ):
            try:
                call()
            except KafkaException as exception:
                refused += exception.args[0].code() == KafkaError._STATE
        self.transact("after misuse", is_commit=True)
        return refused == 2


if __name__ == "__main__":
    run(Librdkafka(arguments()))
