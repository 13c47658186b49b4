package transactions;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source for Kafka Connect: the numbers from 0 on, each once, if the offsets are part of the transactions. */
public final class NumberSource extends SourceConnector {
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Numbers.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int count) {
        return List.of(settings);
    }

    @Override
    public void stop() {}

    @Override
    public ConfigDef config() {
        return new ConfigDef().define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "where the numbers go");
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public String version() {
        return "1";
    }

    /** Its task. */
    public static final class Numbers extends SourceTask {
        private static final int BATCH = 20;
        private static final Map<String, String> PARTITION = Map.of("numbers", "all");

        private String topic;
        private long next;

        @Override
        public void start(Map<String, String> given) {
            topic = given.get("topic");
            Map<String, Object> offset = context.offsetStorageReader().offset(PARTITION);
            next = offset == null ? 0 : (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(10);
            List<SourceRecord> records = new java.util.ArrayList<>();
            for (int number = 0; number < BATCH; number++) {
                String value = String.valueOf(next++);
                records.add(new SourceRecord(PARTITION, Map.of("next", next), topic, 0, Schema.STRING_SCHEMA, value));
            }
            return records;
        }

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }
    }
}
