package checks;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.SchemaMetadata;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.SchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.io.BinaryEncoder;
import org.apache.flink.avro.shaded.org.apache.avro.io.DecoderFactory;
import org.apache.flink.avro.shaded.org.apache.avro.io.EncoderFactory;

/** Confluent's Java client against a registry: each check prints PASS or FAIL and its name. */
final class RegistryChecks {
    private static final String URL = System.getenv("REGISTRY");
    private static final String ONE =
            "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"string\"}]}";
    private static final String TWO =
            "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"string\"},"
                    + "{\"name\":\"total\",\"type\":\"int\",\"default\":7}]}";
    private static final String BROKEN =
            "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"number\",\"type\":\"int\"}]}";

    interface Body {
        void run(SchemaRegistryClient client, String subject) throws Exception;
    }

    private RegistryChecks() {}

    public static void main(String[] arguments) {
        Map<String, Body> checks = new LinkedHashMap<>();
        checks.put("registers, and finds by id, version and schema", RegistryChecks::registers);
        checks.put("a message with the id of its schema is read with a newer schema", RegistryChecks::travels);
        checks.put("an incompatible schema is refused with 409", RegistryChecks::refuses);
        checks.put("references are resolved by the client", RegistryChecks::refers);
        checks.put("levels and modes are set and read", RegistryChecks::configures);
        checks.put("versions and subjects are deleted", RegistryChecks::deletes);
        String only = System.getenv().getOrDefault("ONLY", "");
        int failed = 0;
        for (Map.Entry<String, Body> each : checks.entrySet()) {
            if (!each.getKey().contains(only)) {
                continue;
            }
            try {
                each.getValue().run(client(), "java-" + UUID.randomUUID());
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

    private static SchemaRegistryClient client() {
        return new CachedSchemaRegistryClient(URL, 100);
    }

    private static void registers(SchemaRegistryClient client, String subject) throws Exception {
        int id = client.register(subject, new AvroSchema(ONE));
        expect(id, client.register(subject, new AvroSchema(ONE)));
        expect(true, client.register(subject, new AvroSchema(TWO)) > id);
        SchemaRegistryClient fresh = client();
        expect(new AvroSchema(ONE), fresh.getSchemaById(id));
        expect(id, fresh.getId(subject, new AvroSchema(ONE)));
        expect(1, fresh.getVersion(subject, new AvroSchema(ONE)));
        SchemaMetadata latest = fresh.getLatestSchemaMetadata(subject);
        expect(2, latest.getVersion());
        expect(List.of(1, 2), fresh.getAllVersions(subject));
        expect(true, fresh.getAllSubjects().contains(subject));
        expect(id, fresh.getSchemaMetadata(subject, 1).getId());
    }

    /** What Confluent's serializer writes: a zero, the id in four bytes, and the record. */
    private static void travels(SchemaRegistryClient client, String subject) throws Exception {
        Schema old = new Schema.Parser().parse(ONE);
        GenericRecord record = new GenericData.Record(old);
        record.put("id", "o-1");
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        written.write(0);
        written.write(ByteBuffer.allocate(4).putInt(client.register(subject, new AvroSchema(ONE))).array());
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(written, null);
        new GenericDatumWriter<GenericRecord>(old).write(record, encoder);
        encoder.flush();
        ByteBuffer message = ByteBuffer.wrap(written.toByteArray());
        expect((byte) 0, message.get());
        Schema writer = ((AvroSchema) client().getSchemaById(message.getInt())).rawSchema();
        byte[] rest = new byte[message.remaining()];
        message.get(rest);
        GenericRecord read = new GenericDatumReader<GenericRecord>(writer, new Schema.Parser().parse(TWO))
                .read(null, DecoderFactory.get().binaryDecoder(rest, null));
        expect("o-1", read.get("id").toString());
        expect(7, read.get("total"));
    }

    private static void refuses(SchemaRegistryClient client, String subject) throws Exception {
        client.register(subject, new AvroSchema(ONE));
        expect(true, client.testCompatibility(subject, new AvroSchema(TWO)));
        expect(false, client.testCompatibility(subject, new AvroSchema(BROKEN)));
        expect(false, client.testCompatibilityVerbose(subject, new AvroSchema(BROKEN)).isEmpty());
        expect(409, status(() -> client.register(subject, new AvroSchema(BROKEN))));
        expect(404, status(() -> client().getSchemaById(999_999)));
        expect(404, status(() -> client().getLatestSchemaMetadata(subject + "-missing")));
    }

    private static void refers(SchemaRegistryClient client, String subject) throws Exception {
        String customer = "{\"type\":\"record\",\"name\":\"Customer\",\"fields\":[{\"name\":\"name\",\"type\":\"string\"}]}";
        client.register(subject + "-customer", new AvroSchema(customer));
        String order = "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"by\",\"type\":\"Customer\"}]}";
        List<SchemaReference> references = List.of(new SchemaReference("Customer", subject + "-customer", 1));
        int id = client.register(subject, new AvroSchema(order, references, Map.of("Customer", customer), null));
        AvroSchema found = (AvroSchema) client().getSchemaById(id);
        expect("Customer", found.rawSchema().getField("by").schema().getName());
    }

    private static void configures(SchemaRegistryClient client, String subject) throws Exception {
        expect("BACKWARD", client.getCompatibility(null));
        expect("FULL", client.updateCompatibility(subject, "FULL"));
        expect("FULL", client.getCompatibility(subject));
        expect("READONLY", client.setMode("READONLY", subject));
        expect("READONLY", client.getMode(subject));
        expect(422, status(() -> client.register(subject, new AvroSchema(ONE))));
        expect("READWRITE", client.setMode("READWRITE", subject));
        client.register(subject, new AvroSchema(ONE));
    }

    private static void deletes(SchemaRegistryClient client, String subject) throws Exception {
        client.register(subject, new AvroSchema(ONE));
        client.register(subject, new AvroSchema(TWO));
        expect(1, client.deleteSchemaVersion(subject, "1"));
        expect(List.of(2), client.deleteSubject(subject));
        expect(List.of(1, 2), client.deleteSubject(subject, true));
        expect(404, status(() -> client().getAllVersions(subject)));
    }

    interface Call {
        void run() throws Exception;
    }

    private static int status(Call call) throws Exception {
        try {
            call.run();
        } catch (RestClientException error) {
            return error.getStatus();
        }
        return 200;
    }

    private static void expect(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
