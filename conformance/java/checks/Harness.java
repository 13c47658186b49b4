package checks;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A named list of checks, run one after another; each prints PASS or FAIL and its name. */
final class Harness {
    static final String BOOTSTRAP = System.getenv("BOOTSTRAP");
    static final Duration POLL = Duration.ofMillis(100);
    static final long WAIT_MS = 30_000;

    interface Body {
        void run() throws Exception;
    }

    private static final Map<String, Body> CHECKS = new LinkedHashMap<>();

    private Harness() {}

    static void check(String name, Body body) {
        CHECKS.put(name, body);
    }

    public static void main(String[] arguments) {
        ProducerChecks.register();
        ConsumerChecks.register();
        AdminChecks.register();
        ShareChecks.register();
        String only = System.getenv().getOrDefault("ONLY", "");
        int failed = 0;
        for (Map.Entry<String, Body> each : CHECKS.entrySet()) {
            if (!each.getKey().contains(only)) {
                continue;
            }
            try {
                each.getValue().run();
                System.out.println("PASS\t" + each.getKey());
            } catch (Exception | AssertionError error) {
                failed++;
                System.out.println("FAIL\t" + each.getKey());
                System.err.println(each.getKey());
                error.printStackTrace();
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    static void equal(Object expected, Object actual) {
        if (expected == null ? actual != null : !expected.equals(actual)) {
            throw new AssertionError("expected " + expected + ", not " + actual);
        }
    }

    static void holds(boolean fact, String what) {
        if (!fact) {
            throw new AssertionError(what);
        }
    }

    /** The call must fail with this exception, bare or as the cause of an ExecutionException. */
    static void fails(Class<? extends Throwable> expected, Callable<?> call) {
        Object answer;
        try {
            answer = call.call();
        } catch (Exception error) {
            Throwable found = error instanceof ExecutionException ? error.getCause() : error;
            if (expected.isInstance(found)) {
                return;
            }
            throw new AssertionError("expected " + expected.getSimpleName() + ", not " + found, found);
        }
        throw new AssertionError("expected " + expected.getSimpleName() + ", but it answered " + answer);
    }

    /** Wait for a fact, with a deadline. */
    static void until(String what, Callable<Boolean> fact) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!fact.call()) {
            holds(System.currentTimeMillis() < deadline, "timed out waiting until " + what);
            Thread.sleep(20);
        }
    }

    static String fresh(String word) {
        return "java-" + word + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", BOOTSTRAP));
    }

    static String newTopic(String word, int partitions, Map<String, String> configs) throws Exception {
        String topic = fresh(word);
        try (Admin admin = admin()) {
            admin.createTopics(Set.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
            until(topic + " is known", () -> admin.listTopics().names().get().contains(topic));
        }
        return topic;
    }

    static String newTopic(String word, int partitions) throws Exception {
        return newTopic(word, partitions, Map.of());
    }

    static KafkaProducer<String, String> producer(Map<String, Object> extra) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", BOOTSTRAP));
        settings.putAll(extra);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Map<String, Object> extra) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", BOOTSTRAP, "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        settings.putAll(extra);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** Write value-0 ... value-(count-1) to one partition. */
    static void fill(String topic, int partition, int count) throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, partition, "key-" + i, "value-" + i));
            }
            producer.flush();
        }
    }

    static List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        until(count + " records are read", () -> {
            consumer.poll(POLL).forEach(records::add);
            return records.size() >= count;
        });
        equal(count, records.size());
        return records;
    }

    static List<ConsumerRecord<String, String>> readAll(String topic, int count) throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(each -> new TopicPartition(topic, each.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            return poll(consumer, count);
        }
    }
}
