package checks;

import static checks.Harness.BOOTSTRAP;
import static checks.Harness.POLL;
import static checks.Harness.admin;
import static checks.Harness.check;
import static checks.Harness.equal;
import static checks.Harness.fails;
import static checks.Harness.fill;
import static checks.Harness.fresh;
import static checks.Harness.holds;
import static checks.Harness.newTopic;
import static checks.Harness.until;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** What the Java share consumer (KIP-932) and the tools for share groups need of a broker. */
final class ShareChecks {
    private ShareChecks() {}

    static void register() {
        check("share: a consumer reads everything once", ShareChecks::readsOnce);
        check("share: a group without a setting begins at the end", ShareChecks::beginsAtTheEnd);
        check("share: two consumers work on one partition", ShareChecks::twoOnOnePartition);
        check("share: what is released comes again with its count, what is rejected does not", ShareChecks::releaseAndReject);
        check("share: a group goes on where it was", ShareChecks::goesOn);
        check("share: past the most deliveries a record comes no more", ShareChecks::deliveryLimit);
        check("share: a consumer that closes leaves what it held to others", ShareChecks::closeReleases);
        check("share: no more records than asked for in record_limit mode", ShareChecks::recordLimit);
        check("share: a lock can be renewed", ShareChecks::renew);
        check("share: partitions of several topics, one added later", ShareChecks::severalTopics);
        check("share: a filter of the group lets only matching records pass", ShareChecks::filter);
        check("admin: share groups are listed, described and deleted", ShareChecks::describe);
        check("admin: offsets of a share group are listed, altered and deleted", ShareChecks::offsets);
        check("admin: a setting of a group that makes no sense is refused", ShareChecks::badSetting);
    }

    private static KafkaShareConsumer<String, String> share(String group, Map<String, Object> extra) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", BOOTSTRAP, "group.id", group));
        settings.putAll(extra);
        return new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static KafkaShareConsumer<String, String> explicit(String group) {
        return share(group, Map.of("share.acknowledgement.mode", "explicit"));
    }

    private static void set(String group, String name, String value) throws Exception {
        try (Admin admin = admin()) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    private static String earliestGroup(String word) throws Exception {
        String group = fresh(word);
        set(group, "share.auto.offset.reset", "earliest");
        return group;
    }

    private static List<ConsumerRecord<String, String>> take(KafkaShareConsumer<String, String> consumer, int count)
            throws Exception {
        List<ConsumerRecord<String, String>> taken = new ArrayList<>();
        until("there are " + count + " records", () -> {
            consumer.poll(POLL).forEach(taken::add);
            return taken.size() >= count;
        });
        return taken;
    }

    /** Nothing comes, for so many polls as would have brought something. */
    private static void nothing(KafkaShareConsumer<String, String> consumer) {
        for (int i = 0; i < 15; i++) {
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                throw new AssertionError("unexpected: " + record);
            }
        }
    }

    private static void readsOnce() throws Exception {
        String topic = newTopic("share", 2);
        fill(topic, 0, 300);
        fill(topic, 1, 200);
        try (KafkaShareConsumer<String, String> consumer = share(earliestGroup("share"), Map.of())) {
            consumer.subscribe(List.of(topic));
            Set<String> seen = new HashSet<>();
            for (ConsumerRecord<String, String> record : take(consumer, 500)) {
                holds(seen.add(record.partition() + "/" + record.offset()), "twice: " + record);
                equal((short) 1, record.deliveryCount().get());
            }
            equal(500, seen.size());
            nothing(consumer);
        }
    }

    /** zhumq's own group setting: the client knows nothing of it. */
    private static void filter() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 1_000);
        String group = earliestGroup("share");
        set(group, "zhumq.filter", "key LIKE 'key-9__' AND offset % 10 = 0");
        try (KafkaShareConsumer<String, String> consumer = share(group, Map.of())) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> first = take(consumer, 10);
            equal(10, first.size());
            for (int i = 0; i < 10; i++) {
                equal("value-" + (900 + 10 * i), first.get(i).value());
            }
            nothing(consumer);
            set(group, "zhumq.filter", "key = 'key-7' OR key = 'key-8'");
            fill(topic, 0, 100);
            equal(List.of("value-7", "value-8"), take(consumer, 2).stream().map(ConsumerRecord::value).toList());
            nothing(consumer);
        }
        fails(InvalidConfigurationException.class, () -> {
            set(group, "zhumq.filter", "key = = 'x'");
            return null;
        });
    }

    private static void beginsAtTheEnd() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 10);
        try (KafkaShareConsumer<String, String> consumer = share(fresh("share"), Map.of())) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> taken = new ArrayList<>();
            // Its position is fixed with its first fetch, and nobody can see when that was.
            until("something new is read", () -> {
                fill(topic, 0, 1);
                consumer.poll(POLL).forEach(taken::add);
                return !taken.isEmpty();
            });
            holds(taken.get(0).offset() >= 10, "what was there before is not read: " + taken.get(0));
        }
    }

    private static void twoOnOnePartition() throws Exception {
        String topic = newTopic("share", 1);
        String group = earliestGroup("share");
        Map<String, Object> few = Map.of("max.poll.records", "10");
        try (KafkaShareConsumer<String, String> first = share(group, few);
                KafkaShareConsumer<String, String> second = share(group, few)) {
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            Map<Long, Integer> seen = new TreeMap<>();
            int[] counts = new int[2];
            int[] written = new int[1];
            until("both have read", () -> {
                if (written[0] < 2000) {
                    fill(topic, 0, 100);
                    written[0] += 100;
                }
                for (ConsumerRecord<String, String> record : first.poll(POLL)) {
                    seen.merge(record.offset(), 1, Integer::sum);
                    counts[0]++;
                }
                for (ConsumerRecord<String, String> record : second.poll(POLL)) {
                    seen.merge(record.offset(), 1, Integer::sum);
                    counts[1]++;
                }
                return counts[0] > 0 && counts[1] > 0 && seen.size() == written[0];
            });
            for (Map.Entry<Long, Integer> each : seen.entrySet()) {
                equal(1, each.getValue());
            }
        }
    }

    private static void releaseAndReject() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 3);
        String group = earliestGroup("share");
        try (KafkaShareConsumer<String, String> consumer = explicit(group)) {
            consumer.subscribe(List.of(topic));
            for (ConsumerRecord<String, String> record : take(consumer, 3)) {
                AcknowledgeType type = record.offset() == 0 ? AcknowledgeType.ACCEPT
                    : record.offset() == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.REJECT;
                consumer.acknowledge(record, type);
            }
            consumer.commitSync().values().forEach(error -> equal(true, error.isEmpty()));
            List<ConsumerRecord<String, String>> again = take(consumer, 1);
            equal(1, again.size());
            equal(1L, again.get(0).offset());
            equal((short) 2, again.get(0).deliveryCount().get());
            consumer.acknowledge(again.get(0), AcknowledgeType.ACCEPT);
            consumer.commitSync().values().forEach(error -> equal(true, error.isEmpty()));
            nothing(consumer);
        }
    }

    private static void goesOn() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 20);
        String group = earliestGroup("share");
        try (KafkaShareConsumer<String, String> consumer = share(group, Map.of())) {
            consumer.subscribe(List.of(topic));
            take(consumer, 20);
            consumer.commitSync().values().forEach(error -> equal(true, error.isEmpty()));
        }
        fill(topic, 0, 5);
        try (KafkaShareConsumer<String, String> consumer = share(group, Map.of())) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> taken = take(consumer, 5);
            equal(5, taken.size());
            equal(20L, taken.get(0).offset());
        }
    }

    private static void deliveryLimit() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 1);
        String group = earliestGroup("share");
        try (KafkaShareConsumer<String, String> consumer = explicit(group)) {
            consumer.subscribe(List.of(topic));
            for (short delivery = 1; delivery <= 5; delivery++) {
                ConsumerRecord<String, String> record = take(consumer, 1).get(0);
                equal(delivery, record.deliveryCount().get());
                consumer.acknowledge(record, AcknowledgeType.RELEASE);
                consumer.commitSync();
            }
            nothing(consumer);
        }
    }

    private static void closeReleases() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 4);
        String group = earliestGroup("share");
        try (KafkaShareConsumer<String, String> first = explicit(group)) {
            first.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> taken = take(first, 4);
            first.acknowledge(taken.get(0), AcknowledgeType.ACCEPT);
        }
        try (KafkaShareConsumer<String, String> second = share(group, Map.of())) {
            second.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> taken = take(second, 3);
            equal(3, taken.size());
            equal(1L, taken.get(0).offset());
        }
    }

    private static void recordLimit() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 200);
        Map<String, Object> limited = Map.of("max.poll.records", "7", "share.acquire.mode", "record_limit");
        try (KafkaShareConsumer<String, String> consumer = share(earliestGroup("share"), limited)) {
            consumer.subscribe(List.of(topic));
            int[] read = new int[1];
            until("all is read", () -> {
                int count = consumer.poll(POLL).count();
                holds(count <= 7, count + " records in one poll");
                read[0] += count;
                return read[0] == 200;
            });
        }
    }

    private static void renew() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 2);
        try (KafkaShareConsumer<String, String> consumer = explicit(earliestGroup("share"))) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> taken = take(consumer, 2);
            consumer.acknowledge(taken.get(0), AcknowledgeType.RENEW);
            consumer.acknowledge(taken.get(1), AcknowledgeType.ACCEPT);
            consumer.commitSync().values().forEach(error -> equal(true, error.isEmpty()));
            List<ConsumerRecord<String, String>> renewed = take(consumer, 1);
            equal(0L, renewed.get(0).offset());
            equal((short) 1, renewed.get(0).deliveryCount().get());
            consumer.acknowledge(renewed.get(0), AcknowledgeType.ACCEPT);
            consumer.commitSync().values().forEach(error -> equal(true, error.isEmpty()));
        }
    }

    private static void severalTopics() throws Exception {
        String first = newTopic("share", 3);
        String second = newTopic("share", 1);
        fill(first, 2, 10);
        try (KafkaShareConsumer<String, String> consumer = share(earliestGroup("share"), Map.of())) {
            consumer.subscribe(List.of(first));
            equal(10, take(consumer, 10).size());
            consumer.subscribe(List.of(first, second));
            fill(second, 0, 7);
            fill(first, 0, 3);
            Set<String> topics = new HashSet<>();
            take(consumer, 10).forEach(record -> topics.add(record.topic()));
            equal(Set.of(first, second), topics);
        }
    }

    private static void describe() throws Exception {
        String topic = newTopic("share", 1);
        fill(topic, 0, 1);
        String group = earliestGroup("share");
        try (Admin admin = admin()) {
            fails(GroupIdNotFoundException.class,
                () -> admin.describeShareGroups(List.of(fresh("nobody"))).all().get());
            try (KafkaShareConsumer<String, String> consumer = share(group, Map.of())) {
                consumer.subscribe(List.of(topic));
                take(consumer, 1);
                ShareGroupDescription described = admin.describeShareGroups(List.of(group)).all().get().get(group);
                equal(GroupState.STABLE, described.groupState());
                equal(1, described.members().size());
                equal(Set.of(new TopicPartition(topic, 0)),
                    described.members().iterator().next().assignment().topicPartitions());
                holds(admin.listGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group)
                    && each.type().orElseThrow().toString().equals("Share")), "listed as a share group");
                fails(GroupNotEmptyException.class, () -> admin.deleteShareGroups(List.of(group)).all().get());
            }
            until("it is empty", () -> admin.describeShareGroups(List.of(group)).all().get().get(group)
                .groupState() == GroupState.EMPTY);
            admin.deleteShareGroups(List.of(group)).all().get();
            fails(GroupIdNotFoundException.class, () -> admin.describeShareGroups(List.of(group)).all().get());
        }
    }

    private static void offsets() throws Exception {
        String topic = newTopic("share", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        fill(topic, 0, 10);
        String group = earliestGroup("share");
        Map<String, ListShareGroupOffsetsSpec> all = Map.of(group, new ListShareGroupOffsetsSpec());
        try (Admin admin = admin()) {
            try (KafkaShareConsumer<String, String> consumer = share(group, Map.of())) {
                consumer.subscribe(List.of(topic));
                take(consumer, 10);
                consumer.commitSync();
                // Kafka 4.3 writes the start down later than the acknowledgements that move it.
                until("its start is listed",
                    () -> admin.listShareGroupOffsets(all).partitionsToOffsetInfo(group).get().get(partition) != null);
                fails(GroupNotEmptyException.class,
                    () -> admin.alterShareGroupOffsets(group, Map.of(partition, 4L)).all().get());
            }
            until("it is empty", () -> admin.describeShareGroups(List.of(group)).all().get().get(group)
                .groupState() == GroupState.EMPTY);
            admin.alterShareGroupOffsets(group, Map.of(partition, 4L)).all().get();
            equal(4L, admin.listShareGroupOffsets(all).partitionsToOffsetInfo(group).get().get(partition).startOffset());
            try (KafkaShareConsumer<String, String> consumer = share(group, Map.of())) {
                consumer.subscribe(List.of(topic));
                List<ConsumerRecord<String, String>> taken = take(consumer, 6);
                equal(4L, taken.get(0).offset());
                consumer.commitSync();
            }
            until("it is empty", () -> admin.describeShareGroups(List.of(group)).all().get().get(group)
                .groupState() == GroupState.EMPTY);
            admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
            equal(null, admin.listShareGroupOffsets(all).partitionsToOffsetInfo(group).get().get(partition));
        }
    }

    private static void badSetting() throws Exception {
        fails(InvalidConfigurationException.class, () -> {
            set(fresh("share"), "share.auto.offset.reset", "nowhere");
            return null;
        });
        fails(InvalidConfigurationException.class, () -> {
            set(fresh("share"), "share.no.such.setting", "1");
            return null;
        });
    }
}
