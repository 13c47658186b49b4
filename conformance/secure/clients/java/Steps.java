package secure;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client over a secured listener: one line for each step. */
final class Steps {
    private static final int PARTITIONS = 2;
    private static final int RECORDS = 100;
    private static final long WAIT_MS = 60_000;
    private static final String LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule";

    interface Body {
        void run() throws Exception;
    }

    private final Map<String, String> given;
    private final String topic;
    private final boolean usesSasl;
    private boolean failed = false;

    private Steps(Map<String, String> given) {
        this.given = given;
        topic = given.get("topic");
        usesSasl = given.get("protocol").equals("SASL_SSL");
    }

    public static void main(String[] arguments) {
        Map<String, String> given = new HashMap<>();
        for (int place = 0; place + 1 < arguments.length; place += 2) {
            given.put(arguments[place].substring(2), arguments[place + 1]);
        }
        Steps steps = new Steps(given);
        steps.step("create", steps::create);
        steps.step("describe", steps::describe);
        steps.step("produce", () -> steps.send(0, RECORDS));
        steps.step("consume", steps::consume);
        steps.step("group", steps::group);
        steps.step("delete", steps::delete);
        steps.step("refused", steps::refused);
        System.exit(steps.failed ? 1 : 0);
    }

    private void step(String name, Body body) {
        long began = System.nanoTime();
        try {
            body.run();
            System.out.println("PASS\t" + name);
        } catch (Exception | AssertionError error) {
            failed = true;
            System.out.println("FAIL\t" + name);
            System.err.println(name);
            error.printStackTrace();
        }
        System.err.printf("%5.1f s  %s%n", (System.nanoTime() - began) / 1e9, name);
    }

    private void create() throws Exception {
        try (Admin admin = Admin.create(settings(true))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        }
    }

    private void describe() throws Exception {
        try (Admin admin = Admin.create(settings(true))) {
            equal(PARTITIONS, admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        }
    }

    private void send(int first, int count) throws Exception {
        Map<String, Object> settings = settings(true);
        settings.put("acks", "all");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String value : numbers(first, count)) {
                sent.add(producer.send(new ProducerRecord<>(topic, value, value)));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get(WAIT_MS, TimeUnit.MILLISECONDS);
            }
        }
    }

    private void consume() throws Exception {
        try (var reader = consumer(Map.of())) {
            List<TopicPartition> partitions =
                IntStream.range(0, PARTITIONS).mapToObj(each -> new TopicPartition(topic, each)).toList();
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            equal(numbers(0, RECORDS), read(reader, RECORDS));
        }
    }

    /** With both protocols of groups: the classic one, and that of KIP-848. */
    private void group() throws Exception {
        int written = RECORDS;
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, Object> own =
                Map.of("group.id", topic + "-" + protocol, "group.protocol", protocol, "enable.auto.commit", false);
            member(own, 0, written);
            send(written, 1);
            member(own, written, 1);
            written++;
            try (Admin admin = Admin.create(settings(true))) {
                Collection<OffsetAndMetadata> found =
                    admin.listConsumerGroupOffsets(topic + "-" + protocol).partitionsToOffsetAndMetadata().get().values();
                equal((long) written, found.stream().mapToLong(OffsetAndMetadata::offset).sum());
            }
        }
    }

    private void member(Map<String, Object> own, int first, int count) throws Exception {
        try (var member = consumer(own)) {
            member.subscribe(List.of(topic));
            equal(numbers(first, count), read(member, count));
            member.commitSync();
        }
    }

    private KafkaConsumer<String, String> consumer(Map<String, Object> own) throws Exception {
        Map<String, Object> settings = settings(true);
        settings.put("auto.offset.reset", "earliest");
        settings.putAll(own);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static TreeSet<String> read(KafkaConsumer<String, String> consumer, int count) {
        List<String> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (found.size() < count && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                found.add(record.value());
            }
        }
        equal(count, found.size());
        return new TreeSet<>(found);
    }

    private void delete() throws Exception {
        try (Admin admin = Admin.create(settings(true))) {
            admin.deleteTopics(List.of(topic)).all().get();
            long deadline = System.currentTimeMillis() + WAIT_MS;
            while (admin.listTopics().names().get().contains(topic)) {
                equal(true, System.currentTimeMillis() < deadline);
                Thread.sleep(100);
            }
        }
    }

    private void refused() throws Exception {
        Throwable refusal = null;
        try (Admin admin = Admin.create(settings(false))) {
            admin.describeCluster().nodes().get();
        } catch (ExecutionException error) {
            refusal = error.getCause();
        }
        equal(usesSasl ? SaslAuthenticationException.class : SslAuthenticationException.class,
            refusal == null ? null : refusal.getClass());
    }

    private Map<String, Object> settings(boolean isKnown) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given.get("bootstrap"));
        settings.put("security.protocol", given.get("protocol"));
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", given.get("ca"));
        if (usesSasl) {
            settings.put("sasl.mechanism", "SCRAM-SHA-512");
            settings.put("sasl.jaas.config", String.format("%s required username=\"%s\" password=\"%s%s\";",
                LOGIN, given.get("user"), isKnown ? "" : "not ", given.get("password")));
        } else if (isKnown) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.certificate.chain", Files.readString(Path.of(given.get("certificate"))));
            settings.put("ssl.keystore.key", Files.readString(Path.of(given.get("key"))));
        }
        return settings;
    }

    private static TreeSet<String> numbers(int first, int count) {
        return new TreeSet<>(IntStream.range(first, first + count).mapToObj(Integer::toString).toList());
    }

    private static void equal(Object expected, Object found) {
        if (expected == null ? found != null : !expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", got " + found);
        }
    }
}
