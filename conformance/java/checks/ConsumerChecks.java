package checks;

import static checks.Harness.POLL;
import static checks.Harness.admin;
import static checks.Harness.check;
import static checks.Harness.consumer;
import static checks.Harness.equal;
import static checks.Harness.fails;
import static checks.Harness.fill;
import static checks.Harness.fresh;
import static checks.Harness.holds;
import static checks.Harness.newTopic;
import static checks.Harness.poll;
import static checks.Harness.producer;
import static checks.Harness.until;

import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What the Java consumer needs of a broker: positions, offsets by time, and classic groups. */
final class ConsumerChecks {
    private ConsumerChecks() {}

    static void register() {
        check("consumer: positions, seek, beginning and end offsets", ConsumerChecks::positions);
        check("consumer: offsets for times", ConsumerChecks::offsetsForTimes);
        check("consumer: pause and resume", ConsumerChecks::pauseAndResume);
        check("consumer: an offset out of range without a reset policy", ConsumerChecks::outOfRange);
        check("consumer: no committed offset without a reset policy", ConsumerChecks::noOffset);
        check("consumer: reset to latest sees only what is new", ConsumerChecks::latest);
        check("consumer: a record larger than max.partition.fetch.bytes is read", ConsumerChecks::largerThanFetch);
        check("consumer: read_committed reads plain records", ConsumerChecks::readCommitted);
        check("consumer: max.poll.records and fetch.min.bytes", ConsumerChecks::smallPolls);
        String[] topics = System.getenv().getOrDefault("COMPACTED_TOPICS", "").split(",");
        String[] records = System.getenv().getOrDefault("COMPACTED_RECORDS", "").split(";");
        for (int i = 0; i < records.length && !topics[i].isEmpty(); i++) {
            String topic = topics[i];
            String expected = records[i];
            check("consumer: " + topic + " is read to its end", () -> compacted(topic, expected));
        }
        check("group: commit, committed metadata, and resume", ConsumerChecks::commit);
        check("group: auto commit on close", ConsumerChecks::autoCommit);
        for (String assignor : List.of("Range", "RoundRobin", "Sticky", "CooperativeSticky")) {
            check("group: two members, " + assignor + "Assignor", () -> twoMembers(assignor));
        }
        check("group: a static member comes back without a rebalance", ConsumerChecks::staticMember);
        check("group: a pattern finds a new topic", ConsumerChecks::pattern);
        check("group: new partitions are assigned", ConsumerChecks::newPartitions);
        check("group: a member that stops polling is replaced", ConsumerChecks::stalled);
    }

    private static KafkaConsumer<String, String> member(String group, Map<String, Object> extra) {
        Map<String, Object> settings = new java.util.HashMap<>(Map.of(
            "group.id", group, "session.timeout.ms", "10000", "heartbeat.interval.ms", "500", "metadata.max.age.ms", "1000"));
        settings.putAll(extra);
        return consumer(settings);
    }

    /** Whole segments of the topic hold no records any more. */
    private static void compacted(String topic, String expected) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            List<String> found = poll(consumer, expected.split(",").length).stream()
                .map(record -> record.offset() + ":" + record.key()).toList();
            equal(expected, String.join(",", found));
            equal(consumer.endOffsets(List.of(partition)).get(partition), consumer.position(partition));
        }
    }

    private static void positions() throws Exception {
        String topic = newTopic("positions", 1);
        fill(topic, 0, 100);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            equal(0L, consumer.beginningOffsets(List.of(partition)).get(partition));
            equal(100L, consumer.endOffsets(List.of(partition)).get(partition));
            consumer.seek(partition, 42);
            equal("value-42", poll(consumer, 58).get(0).value());
            equal(100L, consumer.position(partition));
            equal(0L, consumer.currentLag(partition).getAsLong());
            consumer.seekToEnd(List.of(partition));
            equal(100L, consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
            equal(0L, consumer.position(partition));
        }
    }

    private static void offsetsForTimes() throws Exception {
        String topic = newTopic("times", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (long time = 1; time <= 5; time++) {
                producer.send(new ProducerRecord<>(topic, 0, time * 1000, "key", "at " + time)).get();
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, 2500L)).get(partition);
            equal(2L, found.offset());
            equal(3000L, found.timestamp());
            equal(null, consumer.offsetsForTimes(Map.of(partition, 9000L)).get(partition));
        }
    }

    private static void pauseAndResume() throws Exception {
        String topic = newTopic("pause", 2);
        fill(topic, 0, 10);
        fill(topic, 1, 10);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(List.of(first, second));
            consumer.pause(List.of(first));
            poll(consumer, 10).forEach(each -> equal(1, each.partition()));
            consumer.resume(List.of(first));
            poll(consumer, 10).forEach(each -> equal(0, each.partition()));
        }
    }

    private static void outOfRange() throws Exception {
        String topic = newTopic("range", 1);
        fill(topic, 0, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin(); KafkaConsumer<String, String> consumer = consumer(Map.of("auto.offset.reset", "none"))) {
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5))).all().get();
            consumer.assign(List.of(partition));
            consumer.seek(partition, 2);
            fails(OffsetOutOfRangeException.class, () -> {
                for (int i = 0; i < 100; i++) {
                    consumer.poll(POLL);
                }
                return "no error";
            });
        }
    }

    private static void noOffset() throws Exception {
        String topic = newTopic("none", 1);
        try (KafkaConsumer<String, String> consumer = member(fresh("group"), Map.of("auto.offset.reset", "none"))) {
            consumer.subscribe(List.of(topic));
            fails(NoOffsetForPartitionException.class, () -> {
                for (int i = 0; i < 100; i++) {
                    consumer.poll(POLL);
                }
                return "no error";
            });
        }
    }

    private static void latest() throws Exception {
        String topic = newTopic("latest", 1);
        fill(topic, 0, 5);
        try (KafkaConsumer<String, String> consumer = member(fresh("group"), Map.of("auto.offset.reset", "latest"))) {
            consumer.subscribe(List.of(topic));
            TopicPartition partition = new TopicPartition(topic, 0);
            until("it is assigned", () -> {
                consumer.poll(POLL);
                return consumer.assignment().contains(partition);
            });
            equal(5L, consumer.position(partition));
            fill(topic, 0, 1);
            equal(5L, poll(consumer, 1).get(0).offset());
        }
    }

    private static void largerThanFetch() throws Exception {
        String topic = newTopic("fetch", 1, Map.of("max.message.bytes", "3000000"));
        try (KafkaProducer<String, String> producer = producer(Map.of("max.request.size", "3000000"));
             KafkaConsumer<String, String> consumer = consumer(Map.of("max.partition.fetch.bytes", "1000", "fetch.max.bytes", "1000"))) {
            for (int i = 0; i < 3; i++) {
                producer.send(new ProducerRecord<>(topic, "x".repeat(2_000_000))).get();
            }
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            poll(consumer, 3).forEach(each -> equal(2_000_000, each.value().length()));
        }
    }

    private static void readCommitted() throws Exception {
        String topic = newTopic("committed", 1);
        fill(topic, 0, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("isolation.level", "read_committed"))) {
            consumer.assign(List.of(partition));
            poll(consumer, 10);
            equal(10L, consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    private static void smallPolls() throws Exception {
        String topic = newTopic("polls", 1);
        fill(topic, 0, 50);
        try (KafkaConsumer<String, String> consumer =
                 consumer(Map.of("max.poll.records", "7", "fetch.min.bytes", "100000", "fetch.max.wait.ms", "300"))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            int seen = 0;
            for (int i = 0; i < 200 && seen < 50; i++) {
                int count = consumer.poll(POLL).count();
                holds(count <= 7, "at most seven at once");
                seen += count;
            }
            equal(50, seen);
        }
    }

    private static void commit() throws Exception {
        String topic = newTopic("commit", 1);
        String group = fresh("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        fill(topic, 0, 10);
        try (KafkaConsumer<String, String> consumer = member(group, Map.of())) {
            consumer.subscribe(List.of(topic));
            poll(consumer, 10);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(6, "half way")));
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            equal(6L, committed.offset());
            equal("half way", committed.metadata());
        }
        try (KafkaConsumer<String, String> consumer = member(group, Map.of())) {
            consumer.subscribe(List.of(topic));
            equal(6L, poll(consumer, 4).get(0).offset());
        }
    }

    private static void autoCommit() throws Exception {
        String topic = newTopic("auto-commit", 1);
        String group = fresh("group");
        fill(topic, 0, 10);
        try (KafkaConsumer<String, String> consumer = member(group, Map.of("enable.auto.commit", "true"))) {
            consumer.subscribe(List.of(topic));
            poll(consumer, 10);
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = member(group, Map.of())) {
            equal(10L, consumer.committed(Set.of(partition)).get(partition).offset());
        }
    }

    private static void twoMembers(String assignor) throws Exception {
        String topic = newTopic("members", 4);
        String group = fresh("group");
        Map<String, Object> settings = Map.of(
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor + "Assignor");
        try (KafkaConsumer<String, String> first = member(group, settings)) {
            first.subscribe(List.of(topic));
            until("the first has all", () -> {
                first.poll(POLL);
                return first.assignment().size() == 4;
            });
            try (KafkaConsumer<String, String> second = member(group, settings)) {
                second.subscribe(List.of(topic));
                until("each has two", () -> {
                    first.poll(POLL);
                    second.poll(POLL);
                    return first.assignment().size() == 2 && second.assignment().size() == 2;
                });
                Set<TopicPartition> all = new HashSet<>(first.assignment());
                all.addAll(second.assignment());
                equal(4, all.size());
                second.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(Duration.ofSeconds(5)));
                until("the first has all again", () -> {
                    first.poll(POLL);
                    return first.assignment().size() == 4;
                });
            }
        }
    }

    private static void staticMember() throws Exception {
        String topic = newTopic("static", 2);
        String group = fresh("group");
        AtomicInteger rebalances = new AtomicInteger();
        ConsumerRebalanceListener counting = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                rebalances.incrementAndGet();
            }
        };
        try (KafkaConsumer<String, String> first = member(group, Map.of("group.instance.id", "one"))) {
            first.subscribe(List.of(topic), counting);
            KafkaConsumer<String, String> second = member(group, Map.of("group.instance.id", "two"));
            second.subscribe(List.of(topic));
            until("each has one", () -> {
                first.poll(POLL);
                second.poll(POLL);
                return first.assignment().size() == 1 && second.assignment().size() == 1;
            });
            int before = rebalances.get();
            Set<TopicPartition> held = second.assignment();
            second.close();
            try (KafkaConsumer<String, String> returned = member(group, Map.of("group.instance.id", "two"))) {
                returned.subscribe(List.of(topic));
                until("it has its partition again", () -> {
                    first.poll(POLL);
                    returned.poll(POLL);
                    return returned.assignment().equals(held);
                });
            }
            equal(before, rebalances.get());
        }
    }

    private static void pattern() throws Exception {
        String prefix = fresh("pattern");
        try (KafkaConsumer<String, String> consumer = member(fresh("group"), Map.of()); Admin admin = admin()) {
            consumer.subscribe(Pattern.compile(prefix + ".*"));
            consumer.poll(POLL);
            admin.createTopics(Set.of(new org.apache.kafka.clients.admin.NewTopic(prefix + "-new", 1, (short) 1))).all().get();
            fill(prefix + "-new", 0, 3);
            poll(consumer, 3);
        }
    }

    private static void newPartitions() throws Exception {
        String topic = newTopic("grows", 1);
        try (KafkaConsumer<String, String> consumer = member(fresh("group"), Map.of()); Admin admin = admin()) {
            consumer.subscribe(List.of(topic));
            until("it has one", () -> {
                consumer.poll(POLL);
                return consumer.assignment().size() == 1;
            });
            admin.createPartitions(Map.of(topic, org.apache.kafka.clients.admin.NewPartitions.increaseTo(3))).all().get();
            until("it has three", () -> {
                consumer.poll(POLL);
                return consumer.assignment().size() == 3;
            });
        }
    }

    private static void stalled() throws Exception {
        String topic = newTopic("stalled", 2);
        String group = fresh("group");
        try (KafkaConsumer<String, String> stalled = member(group, Map.of("max.poll.interval.ms", "2000"));
             KafkaConsumer<String, String> alive = member(group, Map.of())) {
            stalled.subscribe(List.of(topic));
            until("the first has both", () -> {
                stalled.poll(POLL);
                return stalled.assignment().size() == 2;
            });
            alive.subscribe(List.of(topic));
            until("the other has both", () -> {
                alive.poll(POLL);
                return alive.assignment().size() == 2;
            });
        }
    }
}
