package transactions;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;

/** The Java client with transactions: one line for each step. */
final class Steps {
    private static final int VALUES = 3;
    private static final String END = "end";

    interface Body {
        void run() throws Exception;
    }

    private final Clients clients;
    private final Map<String, String> given;
    private final List<String> topics;
    private KafkaProducer<String, String> producer;

    private Steps(Map<String, String> given) {
        this.given = given;
        clients = new Clients(given.get("bootstrap"));
        topics = List.of(given.get("first"), given.get("second"));
        producer = clients.transactional(given.get("id"));
        producer.initTransactions();
    }

    public static void main(String[] arguments) {
        Steps steps = new Steps(Clients.arguments(arguments));
        step("commit", () -> steps.transact("committed", true));
        step("abort", steps::abort);
        step("committed", () -> steps.checkRead(true));
        step("uncommitted", () -> steps.checkRead(false));
        step("offsets", steps::checkOffsets);
        step("fenced", steps::checkFenced);
        step("misuse", steps::checkMisuse);
    }

    private static void step(String name, Body body) {
        String verdict = "PASS";
        try {
            body.run();
        } catch (Throwable error) {
            error.printStackTrace();
            verdict = "FAIL";
        }
        System.out.println(verdict + "\t" + name);
    }

    private static List<String> values(String... words) {
        return Arrays.stream(words)
                .flatMap(word -> IntStream.range(0, VALUES).mapToObj(number -> word + "-" + number))
                .toList();
    }

    private void transact(String word, boolean isCommit) {
        producer.beginTransaction();
        for (String value : values(word)) {
            for (String topic : topics) {
                producer.send(new ProducerRecord<>(topic, value));
            }
        }
        producer.flush();
        end(isCommit);
    }

    private void end(boolean isCommit) {
        if (isCommit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private void abort() throws Exception {
        transact("aborted", false);
        transact("again", true);
        try (KafkaProducer<String, String> plain = clients.plain()) {
            for (String topic : topics) {
                plain.send(new ProducerRecord<>(topic, END)).get();
            }
        }
    }

    private void checkRead(boolean isCommitted) {
        List<String> expected = isCommitted ? values("committed", "again") : values("committed", "aborted", "again");
        for (String topic : topics) {
            try (KafkaConsumer<String, String> consumer = clients.consumer(given.get("group"), isCommitted)) {
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                List<String> found = new ArrayList<>();
                long deadline = System.currentTimeMillis() + Clients.WAIT_MS;
                while (!found.contains(END)) {
                    check(System.currentTimeMillis() < deadline, "no end: " + found);
                    for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                        found.add(each.value());
                    }
                }
                check(found.subList(0, found.size() - 1).equals(expected), topic + ": " + found);
            }
        }
    }

    private void sendOffsets(long offset, boolean isCommit) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(given.get("second"), "with offsets"));
        try (KafkaConsumer<String, String> consumer = clients.consumer(given.get("group"), true)) {
            producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(given.get("first"), 0), new OffsetAndMetadata(offset)), consumer.groupMetadata());
        }
        end(isCommit);
    }

    private long committedOffset() {
        TopicPartition partition = new TopicPartition(given.get("first"), 0);
        try (KafkaConsumer<String, String> consumer = clients.consumer(given.get("group"), true)) {
            OffsetAndMetadata found = consumer.committed(java.util.Set.of(partition)).get(partition);
            return found == null ? -1 : found.offset();
        }
    }

    private void checkOffsets() {
        sendOffsets(2, true);
        check(committedOffset() == 2, "the offset was not committed");
        sendOffsets(5, false);
        check(committedOffset() == 2, "the offset of an aborted transaction was committed");
        sendOffsets(3, true);
        check(committedOffset() == 3, "the second offset was not committed");
    }

    private void checkFenced() throws Exception {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(given.get("second"), "fenced")).get();
        KafkaProducer<String, String> second = clients.transactional(given.get("id"));
        second.initTransactions();
        try (KafkaProducer<String, String> first = producer) {
            producer = second;
            first.commitTransaction();
            throw new AssertionError("the first instance could commit");
        } catch (ProducerFencedException expected) {
            transact("of the second", true);
        }
    }

    private void checkMisuse() {
        int refused = 0;
        for (Body each : List.<Body>of(
                () -> producer.send(new ProducerRecord<>(given.get("first"), "outside")), producer::commitTransaction)) {
            try {
                each.run();
            } catch (Exception expected) {
                refused++;
            }
        }
        transact("after misuse", true);
        check(refused == 2, "it was not refused");
    }

    private static void check(boolean fact, String words) {
        if (!fact) {
            throw new AssertionError(words);
        }
    }
}
