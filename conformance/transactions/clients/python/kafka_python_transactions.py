"""kafka-python: transactions."""

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.group import ConsumerGroupMetadata
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata
from transaction_steps import END, WAIT_S, Arguments, Client, arguments, run, values


class KafkaPython(Client):
    def __init__(self, given: Arguments) -> None:
        super().__init__(given)
        self._producer = self._connect()

    def _connect(self) -> KafkaProducer:
        producer = KafkaProducer(
            bootstrap_servers=self.given.bootstrap,
            transactional_id=self.given.id,
            transaction_timeout_ms=60_000,
        )
        producer.init_transactions()
        return producer

    def transact(self, word: str, *, is_commit: bool) -> None:
        self._producer.begin_transaction()
        for value in values(word):
            for topic in self.given.topics:
                self._producer.send(topic, value)
        self._producer.flush(WAIT_S)
        self._end(is_commit=is_commit)

    def _end(self, *, is_commit: bool) -> None:
        if is_commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def send_end(self) -> None:
        plain = KafkaProducer(bootstrap_servers=self.given.bootstrap)
        for topic in self.given.topics:
            plain.send(topic, END).get(WAIT_S)
        plain.close()

    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.given.bootstrap,
            isolation_level="read_committed" if committed else "read_uncommitted",
            consumer_timeout_ms=WAIT_S * 1000,
        )
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found = []
        for record in consumer:
            if record.value == END:
                break
            found.append(record.value)
        consumer.close()
        return found

    def send_offsets(self, offset: int, *, is_commit: bool) -> None:
        self._producer.begin_transaction()
        self._producer.send(self.given.second, b"with offsets")
        offsets = {TopicPartition(self.given.first, 0): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(
            offsets, ConsumerGroupMetadata(self.given.group, -1, "", None)
        )
        self._end(is_commit=is_commit)

    def committed_offset(self) -> int:
        consumer = KafkaConsumer(
            bootstrap_servers=self.given.bootstrap,
            group_id=self.given.group,
            isolation_level="read_committed",
        )
        found = consumer.committed(TopicPartition(self.given.first, 0))
        consumer.close()
        return -1 if found is None else found

    def fenced(self) -> bool:
        self._producer.begin_transaction()
        self._producer.send(self.given.second, b"fenced").get(WAIT_S)
        second = self._connect()
        try:
            self._producer.commit_transaction()
        except ProducerFencedError:
            self._producer = second
            return True
        return False

    def misuse(self) -> bool:
        refused = 0
        for call in (
            lambda: self._producer.send(self.given.first, b"outside"),
            self._producer.commit_transaction,
        ):
            try:
                call()
            except (KafkaError, ValueError, RuntimeError):
                refused += 1
        self.transact("after misuse", is_commit=True)
        return refused == 2


if __name__ == "__main__":
    run(KafkaPython(arguments()))
