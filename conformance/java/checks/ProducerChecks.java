package checks;

import static checks.Harness.check;
import static checks.Harness.equal;
import static checks.Harness.fails;
import static checks.Harness.fresh;
import static checks.Harness.holds;
import static checks.Harness.newTopic;
import static checks.Harness.producer;
import static checks.Harness.readAll;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;

/** What the Java producer needs of a broker. */
final class ProducerChecks {
    private ProducerChecks() {}

    static void register() {
        for (String acks : List.of("0", "1", "all")) {
            check("producer: acks=" + acks, () -> acknowledged(acks));
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            check("producer: " + codec + " batches, headers, null keys and values", () -> roundTrip(codec));
        }
        check("producer: idempotent, five in flight, in order and once", ProducerChecks::idempotent);
        check("producer: without idempotence", ProducerChecks::withoutIdempotence);
        check("producer: an unknown topic is created by its first record", ProducerChecks::autoCreate);
        check("producer: an invalid topic name is refused", ProducerChecks::invalidName);
        check("producer: a record over max.message.bytes is refused", ProducerChecks::tooLarge);
        check("producer: a record without a key is refused by a compacted topic", ProducerChecks::keyless);
        check("producer: LogAppendTime stamps at the broker", ProducerChecks::logAppendTime);
        check("producer: a partition that does not exist is refused", ProducerChecks::noSuchPartition);
        check("producer: batches of 1 MB", ProducerChecks::largeBatches);
    }

    private static void acknowledged(String acks) throws Exception {
        String topic = newTopic("acks", 1);
        try (KafkaProducer<String, String> producer =
                 producer(Map.of("acks", acks, "enable.idempotence", String.valueOf(acks.equals("all"))))) {
            for (int i = 0; i < 10; i++) {
                RecordMetadata answer = producer.send(new ProducerRecord<>(topic, "value-" + i)).get();
                equal(acks.equals("0") ? -1L : (long) i, answer.offset());
            }
        }
        List<ConsumerRecord<String, String>> read = readAll(topic, 10);
        for (int i = 0; i < 10; i++) {
            equal("value-" + i, read.get(i).value());
        }
    }

    private static void roundTrip(String codec) throws Exception {
        String topic = newTopic("codec", 1);
        RecordHeaders headers = new RecordHeaders();
        headers.add("one", "1".getBytes()).add("twice", "a".getBytes()).add("twice", "b".getBytes()).add("null", null);
        try (KafkaProducer<String, String> producer = producer(Map.of("compression.type", codec, "linger.ms", "50"))) {
            producer.send(new ProducerRecord<>(topic, null, 1234L, "key", "x".repeat(20_000), headers));
            producer.send(new ProducerRecord<>(topic, null, "no key"));
            producer.send(new ProducerRecord<>(topic, "tombstone", null));
            producer.send(new ProducerRecord<>(topic, "", ""));
        }
        List<ConsumerRecord<String, String>> read = readAll(topic, 4);
        equal(20_000, read.get(0).value().length());
        equal(1234L, read.get(0).timestamp());
        equal(TimestampType.CREATE_TIME, read.get(0).timestampType());
        equal(headers, read.get(0).headers());
        equal(null, read.get(1).key());
        equal(null, read.get(2).value());
        equal("", read.get(3).value());
    }

    private static void idempotent() throws Exception {
        String topic = newTopic("idempotent", 1);
        int count = 5_000;
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(Map.of(
                "enable.idempotence", "true", "max.in.flight.requests.per.connection", "5", "batch.size", "200"))) {
            for (int i = 0; i < count; i++) {
                answers.add(producer.send(new ProducerRecord<>(topic, "" + i)));
            }
        }
        for (int i = 0; i < count; i++) {
            equal((long) i, answers.get(i).get().offset());
        }
        List<ConsumerRecord<String, String>> read = readAll(topic, count);
        for (int i = 0; i < count; i++) {
            equal("" + i, read.get(i).value());
        }
    }

    private static void withoutIdempotence() throws Exception {
        String topic = newTopic("plain", 3);
        try (KafkaProducer<String, String> producer = producer(Map.of("enable.idempotence", "false", "acks", "1"))) {
            for (int i = 0; i < 300; i++) {
                producer.send(new ProducerRecord<>(topic, "key-" + i, "value-" + i));
            }
        }
        holds(readAll(topic, 300).stream().map(ConsumerRecord::partition).distinct().count() == 3,
            "keys spread over the partitions");
    }

    private static void autoCreate() throws Exception {
        String topic = fresh("auto");
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>(topic, "first")).get();
        }
        equal("first", readAll(topic, 1).get(0).value());
    }

    private static void invalidName() {
        try (KafkaProducer<String, String> producer = producer(Map.of("max.block.ms", "5000"))) {
            fails(InvalidTopicException.class, () -> producer.send(new ProducerRecord<>("not/a/topic", "x")).get());
        }
    }

    private static void tooLarge() throws Exception {
        String topic = newTopic("large", 1, Map.of("max.message.bytes", "1000"));
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            fails(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, "x".repeat(5_000))).get());
            equal(0L, producer.send(new ProducerRecord<>(topic, "small")).get().offset());
        }
    }

    private static void keyless() throws Exception {
        String topic = newTopic("compacted", 1, Map.of("cleanup.policy", "compact"));
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            fails(InvalidRecordException.class, () -> producer.send(new ProducerRecord<>(topic, "no key")).get());
            equal(0L, producer.send(new ProducerRecord<>(topic, "key", "value")).get().offset());
        }
    }

    private static void logAppendTime() throws Exception {
        String topic = newTopic("append-time", 1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            long stamped = producer.send(new ProducerRecord<>(topic, null, 1L, "key", "value")).get().timestamp();
            holds(stamped >= before, "the answer carries the broker's time");
            ConsumerRecord<String, String> read = readAll(topic, 1).get(0);
            equal(TimestampType.LOG_APPEND_TIME, read.timestampType());
            equal(stamped, read.timestamp());
        }
    }

    private static void noSuchPartition() throws Exception {
        String topic = newTopic("partitions", 2);
        try (KafkaProducer<String, String> producer = producer(Map.of("max.block.ms", "2000"))) {
            fails(TimeoutException.class, () -> producer.send(new ProducerRecord<>(topic, 7, "key", "value")).get());
        }
    }

    private static void largeBatches() throws Exception {
        String topic = newTopic("batches", 1);
        String value = "v".repeat(900);
        try (KafkaProducer<String, String> producer = producer(Map.of("batch.size", "1000000", "linger.ms", "100"))) {
            for (int i = 0; i < 20_000; i++) {
                producer.send(new ProducerRecord<>(topic, value));
            }
        }
        equal(19_999L, readAll(topic, 20_000).get(19_999).offset());
    }
}
