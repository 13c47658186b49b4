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

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What the Java AdminClient asks of a broker. */
final class AdminChecks {
    private AdminChecks() {}

    static void register() {
        check("admin: topics are created with configs, described by name and id, listed, deleted", AdminChecks::topics);
        check("admin: a topic is deleted by id, and its name can be used again", AdminChecks::deleteById);
        check("admin: validateOnly creates nothing", AdminChecks::validateOnly);
        check("admin: what cannot be created says why", AdminChecks::refusals);
        check("admin: partitions grow and never shrink", AdminChecks::partitions);
        check("admin: the cluster, its features and its log folders", AdminChecks::cluster);
        check("admin: topic configs set, append, subtract, delete", AdminChecks::topicConfigs);
        check("admin: broker configs are described", AdminChecks::brokerConfigs);
        check("admin: a config that is wrong is refused", AdminChecks::wrongConfig);
        check("admin: records are deleted", AdminChecks::deleteRecords);
        check("admin: offsets of every kind", AdminChecks::offsets);
        check("admin: groups are listed and described", AdminChecks::describeGroups);
        check("admin: a group's offsets are altered, listed and deleted", AdminChecks::groupOffsets);
        check("admin: groups are deleted only when empty", AdminChecks::deleteGroups);
        check("admin: members are removed from a group", AdminChecks::removeMembers);
        check("admin: producers of a partition are described", AdminChecks::producers);
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get();
    }

    private static TopicDescription describe(Admin admin, String topic) throws Exception {
        return get(admin.describeTopics(Set.of(topic)).allTopicNames()).get(topic);
    }

    private static void topics() throws Exception {
        String topic = fresh("topics");
        try (Admin admin = admin()) {
            var created = admin.createTopics(Set.of(new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "3600000"))));
            get(created.all());
            Uuid id = get(created.topicId(topic));
            equal(3, get(created.numPartitions(topic)));
            equal("3600000", get(created.config(topic)).get("retention.ms").value());
            until("it is described", () -> get(admin.listTopics().names()).contains(topic));
            TopicDescription described = describe(admin, topic);
            equal(id, described.topicId());
            equal(3, described.partitions().size());
            described.partitions().forEach(each -> {
                holds(each.leader() != null, "there is a leader");
                equal(List.of(each.leader()), each.replicas());
                equal(List.of(each.leader()), each.isr());
            });
            TopicDescription byId = get(admin.describeTopics(TopicCollection.ofTopicIds(Set.of(id))).allTopicIds()).get(id);
            equal(topic, byId.name());
            get(admin.deleteTopics(Set.of(topic)).all());
            until("it is gone", () -> !get(admin.listTopics().names()).contains(topic));
            fails(UnknownTopicOrPartitionException.class, () -> get(admin.deleteTopics(Set.of(topic)).all()));
            fails(UnknownTopicOrPartitionException.class, () -> describe(admin, topic));
        }
    }

    private static void deleteById() throws Exception {
        String topic = newTopic("by-id", 1);
        fill(topic, 0, 3);
        try (Admin admin = admin()) {
            Uuid id = describe(admin, topic).topicId();
            get(admin.deleteTopics(TopicCollection.ofTopicIds(Set.of(id))).all());
            until("it is gone", () -> !get(admin.listTopics().names()).contains(topic));
            fails(UnknownTopicIdException.class, () -> get(admin.deleteTopics(TopicCollection.ofTopicIds(Set.of(id))).all()));
            get(admin.createTopics(Set.of(new NewTopic(topic, 1, (short) 1))).all());
            until("it is back", () -> get(admin.listTopics().names()).contains(topic));
            holds(!describe(admin, topic).topicId().equals(id), "the new topic has its own id");
            TopicPartition partition = new TopicPartition(topic, 0);
            equal(0L, get(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition)).offset());
        }
    }

    private static void validateOnly() throws Exception {
        String topic = fresh("validate");
        try (Admin admin = admin()) {
            get(admin.createTopics(Set.of(new NewTopic(topic, 2, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all());
            holds(!get(admin.listTopics().names()).contains(topic), "nothing was created");
        }
    }

    private static void refusals() throws Exception {
        String topic = newTopic("exists", 1);
        try (Admin admin = admin()) {
            fails(TopicExistsException.class, () -> get(admin.createTopics(Set.of(new NewTopic(topic, 1, (short) 1))).all()));
            fails(InvalidTopicException.class, () -> get(admin.createTopics(Set.of(new NewTopic("a/b", 1, (short) 1))).all()));
            fails(InvalidPartitionsException.class, () -> get(admin.createTopics(Set.of(new NewTopic(fresh("zero"), 0, (short) 1))).all()));
            fails(InvalidReplicationFactorException.class, () -> get(admin.createTopics(Set.of(new NewTopic(fresh("many"), 1, (short) 7))).all()));
            fails(InvalidConfigurationException.class, () -> get(admin.createTopics(
                Set.of(new NewTopic(fresh("config"), 1, (short) 1).configs(Map.of("no.such.config", "1")))).all()));
        }
    }

    private static void partitions() throws Exception {
        String topic = newTopic("partitions", 2);
        try (Admin admin = admin()) {
            get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
            until("there are five", () -> describe(admin, topic).partitions().size() == 5);
            fails(InvalidPartitionsException.class, () -> get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all()));
            fails(UnknownTopicOrPartitionException.class,
                () -> get(admin.createPartitions(Map.of(fresh("nowhere"), NewPartitions.increaseTo(3))).all()));
        }
    }

    private static void cluster() throws Exception {
        String topic = newTopic("log-folders", 1);
        fill(topic, 0, 10);
        try (Admin admin = admin()) {
            DescribeClusterResult cluster = admin.describeCluster();
            int node = get(cluster.nodes()).iterator().next().id();
            equal(node, get(cluster.controller()).id());
            holds(!get(cluster.clusterId()).isEmpty(), "the cluster has an id");
            get(admin.describeFeatures().featureMetadata());
            var folders = get(admin.describeLogDirs(List.of(node)).allDescriptions()).get(node);
            var replica = folders.values().iterator().next().replicaInfos().get(new TopicPartition(topic, 0));
            holds(replica.size() > 0, "the partition has a size");
        }
    }

    private static void topicConfigs() throws Exception {
        String topic = newTopic("configs", 1);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin()) {
            alter(admin, resource, "retention.ms", "1000000", AlterConfigOp.OpType.SET);
            until("it is set", () -> value(admin, resource, "retention.ms").equals("1000000"));
            equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, entry(admin, resource, "retention.ms").source());
            alter(admin, resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
            until("it is appended", () -> Set.of(value(admin, resource, "cleanup.policy").split(",")).equals(Set.of("delete", "compact")));
            alter(admin, resource, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
            until("it is subtracted", () -> value(admin, resource, "cleanup.policy").equals("compact"));
            alter(admin, resource, "retention.ms", null, AlterConfigOp.OpType.DELETE);
            until("it is the default", () -> entry(admin, resource, "retention.ms").isDefault());
            holds(describe(admin, resource).entries().size() > 15, "the defaults are listed");
        }
    }

    private static void alter(Admin admin, ConfigResource resource, String name, String value, AlterConfigOp.OpType kind) throws Exception {
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(new ConfigEntry(name, value), kind));
        get(admin.incrementalAlterConfigs(Map.of(resource, operations)).all());
    }

    private static Config describe(Admin admin, ConfigResource resource) throws Exception {
        return get(admin.describeConfigs(Set.of(resource)).all()).get(resource);
    }

    private static ConfigEntry entry(Admin admin, ConfigResource resource, String name) throws Exception {
        return describe(admin, resource).get(name);
    }

    private static String value(Admin admin, ConfigResource resource, String name) throws Exception {
        return entry(admin, resource, name).value();
    }

    private static void brokerConfigs() throws Exception {
        try (Admin admin = admin()) {
            int node = get(admin.describeCluster().nodes()).iterator().next().id();
            Config config = describe(admin, new ConfigResource(ConfigResource.Type.BROKER, "" + node));
            for (String name : List.of("num.partitions", "log.retention.ms", "auto.create.topics.enable", "message.max.bytes")) {
                holds(config.get(name) != null, name + " is listed");
            }
        }
    }

    private static void wrongConfig() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, newTopic("wrong", 1));
        try (Admin admin = admin()) {
            fails(InvalidConfigurationException.class,
                () -> { alter(admin, resource, "retention.ms", "soon", AlterConfigOp.OpType.SET); return "accepted"; });
            fails(InvalidConfigurationException.class,
                () -> { alter(admin, resource, "no.such.config", "1", AlterConfigOp.OpType.SET); return "accepted"; });
            fails(UnknownTopicOrPartitionException.class,
                () -> describe(admin, new ConfigResource(ConfigResource.Type.TOPIC, fresh("nowhere"))));
        }
    }

    private static void deleteRecords() throws Exception {
        String topic = newTopic("delete", 1);
        fill(topic, 0, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            equal(4L, get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(partition)).lowWatermark());
            equal(4L, get(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition)).offset());
            fails(OffsetOutOfRangeException.class, () -> get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(99))).all()));
            equal(10L, get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(partition)).lowWatermark());
        }
    }

    private static void offsets() throws Exception {
        String topic = newTopic("offsets", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(Map.of()); Admin admin = admin()) {
            for (long time : List.of(1000L, 5000L, 3000L)) {
                producer.send(new ProducerRecord<>(topic, 0, time, "key", "value")).get();
            }
            equal(0L, get(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition)).offset());
            equal(3L, get(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition)).offset());
            equal(1L, get(admin.listOffsets(Map.of(partition, OffsetSpec.forTimestamp(2000))).partitionResult(partition)).offset());
            var newest = get(admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition));
            equal(1L, newest.offset());
            equal(5000L, newest.timestamp());
        }
    }

    private static KafkaConsumer<String, String> joined(String topic, String group, int records) throws Exception {
        KafkaConsumer<String, String> consumer = consumer(Map.of("group.id", group));
        consumer.subscribe(List.of(topic));
        poll(consumer, records);
        consumer.commitSync();
        return consumer;
    }

    private static void describeGroups() throws Exception {
        String topic = newTopic("groups", 2);
        fill(topic, 0, 5);
        String group = fresh("group");
        try (Admin admin = admin()) {
            try (KafkaConsumer<String, String> consumer = joined(topic, group, 5)) {
                ConsumerGroupDescription described = get(admin.describeConsumerGroups(Set.of(group)).all()).get(group);
                equal(GroupState.STABLE, described.groupState());
                equal("range", described.partitionAssignor());
                equal(2, described.members().iterator().next().assignment().topicPartitions().size());
                equal(consumer.groupMetadata().memberId(), described.members().iterator().next().consumerId());
                holds(get(admin.listGroups(ListGroupsOptions.forConsumerGroups()).all()).stream()
                    .anyMatch(each -> each.groupId().equals(group)), "the group is listed");
            }
            until("it is empty", () -> get(admin.describeConsumerGroups(Set.of(group)).all()).get(group).groupState() == GroupState.EMPTY);
        }
    }

    private static void groupOffsets() throws Exception {
        String topic = newTopic("group-offsets", 1);
        String group = fresh("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            get(admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(7, "by hand"))).all());
            OffsetAndMetadata listed = get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition);
            equal(7L, listed.offset());
            equal("by hand", listed.metadata());
            get(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
            holds(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition) == null, "it is deleted");
        }
    }

    private static void deleteGroups() throws Exception {
        String topic = newTopic("delete-groups", 1);
        fill(topic, 0, 1);
        String group = fresh("group");
        try (Admin admin = admin()) {
            try (KafkaConsumer<String, String> consumer = joined(topic, group, 1)) {
                fails(GroupNotEmptyException.class, () -> get(admin.deleteConsumerGroups(Set.of(group)).all()));
                consumer.poll(POLL);
            }
            get(admin.deleteConsumerGroups(Set.of(group)).all());
            fails(GroupIdNotFoundException.class, () -> get(admin.deleteConsumerGroups(Set.of(group)).all()));
        }
    }

    private static void removeMembers() throws Exception {
        String topic = newTopic("remove", 1);
        String group = fresh("group");
        try (Admin admin = admin();
             KafkaConsumer<String, String> member = consumer(Map.of("group.id", group, "group.instance.id", "fixed"))) {
            member.subscribe(List.of(topic));
            until("it has joined", () -> {
                member.poll(POLL);
                return member.assignment().size() == 1;
            });
            get(admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("fixed")))).all());
            equal(0, get(admin.describeConsumerGroups(Set.of(group)).all()).get(group).members().size());
        }
    }

    private static void producers() throws Exception {
        String topic = newTopic("producers", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(Map.of()); Admin admin = admin()) {
            producer.send(new ProducerRecord<>(topic, "one")).get();
            producer.send(new ProducerRecord<>(topic, "two")).get();
            var active = get(admin.describeProducers(Set.of(partition)).partitionResult(partition)).activeProducers();
            equal(1, active.size());
            equal(1, active.get(0).lastSequence());
        }
    }
}
