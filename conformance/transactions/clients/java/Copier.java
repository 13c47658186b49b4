package transactions;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Copies a topic to another, partition by partition, in transactions with the offsets inside; until it is killed. Kafka's system
 * tests have such a program, TransactionalMessageCopier. Each tenth transaction is aborted and made again.
 */
final class Copier {
    public static void main(String[] arguments) {
        Map<String, String> given = Clients.arguments(arguments);
        Clients clients = new Clients(given.get("bootstrap"));
        KafkaConsumer<String, String> consumer = clients.consumer(given.get("group"), true);
        KafkaProducer<String, String> producer = clients.transactional(given.get("id"));
        producer.initTransactions();
        consumer.subscribe(List.of(given.get("first")));
        for (long turn = 1; ; turn++) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            for (ConsumerRecord<String, String> each : records) {
                producer.send(new ProducerRecord<>(given.get("second"), each.partition(), each.key(), each.value()));
                next.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
            }
            producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
            if (turn % 10 == 0) {
                producer.abortTransaction();
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                for (TopicPartition each : consumer.assignment()) {
                    OffsetAndMetadata place = committed.get(each);
                    consumer.seek(each, place == null ? 0 : place.offset());
                }
            } else {
                producer.commitTransaction();
                System.out.println(records.count());
            }
        }
    }
}
