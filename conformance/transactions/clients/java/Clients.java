package transactions;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Producers and consumers of a broker. */
record Clients(String bootstrap) {
    static final long WAIT_MS = 60_000;

    /** Names and values of a command line: --name value. */
    static Map<String, String> arguments(String[] words) {
        Map<String, String> given = new HashMap<>();
        for (int place = 0; place + 1 < words.length; place += 2) {
            given.put(words[place].substring(2), words[place + 1]);
        }
        return given;
    }

    KafkaProducer<String, String> plain() {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
    }

    KafkaProducer<String, String> transactional(String id) {
        return new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap, "transactional.id", id, "transaction.timeout.ms", 20_000),
                new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(String group, boolean isCommitted) {
        return new KafkaConsumer<>(
                Map.of(
                        "bootstrap.servers", bootstrap, "group.id", group, "enable.auto.commit", false,
                        "auto.offset.reset", "earliest", "session.timeout.ms", 6_000, "heartbeat.interval.ms", 500,
                        "isolation.level", isCommitted ? "read_committed" : "read_uncommitted"),
                new StringDeserializer(), new StringDeserializer());
    }
}
