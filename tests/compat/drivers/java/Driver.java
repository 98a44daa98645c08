import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Java's client behind lines of JSON: one request a line on stdin, one answer a line on stdout (drivers/client.py). */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PREFIX = "org.apache.kafka.clients.consumer.";

    private final String bootstrap;
    private final Map<String, Member> members = new HashMap<>();
    private Admin admin;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", driver.handle(JSON.readTree(line)));
            } catch (ExecutionException error) {
                answer.put("error", error.getCause().toString());
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        for (Member member : driver.members.values()) {
            member.close();
        }
        System.exit(0);
    }

    private JsonNode handle(JsonNode r) throws Exception {
        switch (r.get("op").asText()) {
            case "produce": return produce(r);
            case "fetch": return fetch(r);
            case "txn_init": initTransactions(r); return null;
            case "txn_send": sendInTransaction(r); return null;
            case "txn_offset": sendOffset(r); return null;
            case "txn_end": endTransaction(r); return null;
            case "join": members.put(text(r, "member"), new Member(r)); return null;
            case "state": return members.get(text(r, "member")).state();
            case "commit": members.get(text(r, "member")).commit(); return null;
            case "leave": members.remove(text(r, "member")).close(); return null;
            default: return administer(r);
        }
    }

    private static String text(JsonNode r, String name) {
        JsonNode found = r.get(name);
        return found == null || found.isNull() ? null : found.asText();
    }

    private JsonNode produce(JsonNode r) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("compression.type", text(r, "codec"));
        p.put("acks", text(r, "acks"));
        p.put("enable.idempotence", r.get("idempotent").asText());
        p.put("linger.ms", "20");
        p.put("delivery.timeout.ms", "20000");
        p.put("request.timeout.ms", "10000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ArrayNode answer = JSON.createArrayNode();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            for (JsonNode one : r.get("records")) {
                Integer partition = one.hasNonNull("partition") ? one.get("partition").asInt() : null;
                Long timestamp = one.hasNonNull("timestamp") ? one.get("timestamp").asLong() : null;
                ProducerRecord<String, String> record = new ProducerRecord<>(
                        text(r, "topic"), partition, timestamp, text(one, "key"), text(one, "value"));
                for (JsonNode header : one.get("headers")) {
                    JsonNode value = header.get(1);
                    record.headers().add(header.get(0).asText(),
                            value.isNull() ? null : value.asText().getBytes(StandardCharsets.UTF_8));
                }
                sent.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata metadata = future.get();
                answer.add(JSON.createArrayNode().add(metadata.partition())
                        .add(metadata.hasOffset() ? metadata.offset() : -1));
            }
        }
        return answer;
    }

    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private final Set<String> begun = new HashSet<>();

    private void initTransactions(JsonNode r) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("transactional.id", text(r, "id"));
        p.put("delivery.timeout.ms", "20000");
        p.put("request.timeout.ms", "10000");
        KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producers.put(text(r, "producer"), producer);
    }

    private KafkaProducer<String, String> inTransaction(JsonNode r) {
        KafkaProducer<String, String> producer = producers.get(text(r, "producer"));
        if (begun.add(text(r, "producer"))) {
            producer.beginTransaction();
        }
        return producer;
    }

    private void sendInTransaction(JsonNode r) throws Exception {
        KafkaProducer<String, String> producer = inTransaction(r);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : r.get("values")) {
            sent.add(producer.send(new ProducerRecord<>(
                    text(r, "topic"), r.get("partition").asInt(), null, value.asText())));
        }
        producer.flush();
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
    }

    private void sendOffset(JsonNode r) {
        inTransaction(r).sendOffsetsToTransaction(
                Map.of(new TopicPartition(text(r, "topic"), 0), new OffsetAndMetadata(r.get("offset").asLong())),
                new ConsumerGroupMetadata(text(r, "group")));
    }

    private void endTransaction(JsonNode r) {
        KafkaProducer<String, String> producer = producers.get(text(r, "producer"));
        begun.remove(text(r, "producer"));
        if (r.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private Properties consumerProperties() {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        return p;
    }

    private static ObjectNode describe(ConsumerRecord<String, String> record) {
        ObjectNode one = JSON.createObjectNode();
        one.put("partition", record.partition()).put("offset", record.offset()).put("timestamp", record.timestamp());
        one.put("key", record.key()).put("value", record.value());
        ArrayNode headers = one.putArray("headers");
        for (Header header : record.headers()) {
            headers.add(JSON.createArrayNode().add(header.key())
                    .add(header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8)));
        }
        return one;
    }

    private JsonNode fetch(JsonNode r) {
        ArrayNode answer = JSON.createArrayNode();
        int count = r.get("count").asInt();
        TopicPartition partition = new TopicPartition(text(r, "topic"), r.get("partition").asInt());
        Properties properties = consumerProperties();
        properties.put("isolation.level", r.path("committed").asBoolean() ? "read_committed" : "read_uncommitted");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            if (r.hasNonNull("offset")) {
                consumer.seek(partition, r.get("offset").asLong());
            } else if (r.hasNonNull("timestamp")) {
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(Map.of(partition, r.get("timestamp").asLong())).get(partition);
                consumer.seek(partition, found.offset());
            } else {
                consumer.seekToBeginning(List.of(partition));
            }
            long deadline = System.currentTimeMillis() + 15_000;
            while (answer.size() < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    answer.add(describe(record));
                }
            }
        }
        return answer;
    }

    /** A member of a group: polled by a thread of its own, which also does what it is asked between two polls. */
    private final class Member implements ConsumerRebalanceListener {
        private final List<ObjectNode> records = new ArrayList<>();
        private final ConcurrentLinkedQueue<CompletableFuture<Void>> commits = new ConcurrentLinkedQueue<>();
        private final KafkaConsumer<String, String> consumer;
        private final Thread thread;
        private Set<TopicPartition> assignment = Set.of();
        private int rebalances;
        private volatile boolean closing;

        Member(JsonNode r) {
            Properties p = consumerProperties();
            p.put("group.id", text(r, "group"));
            p.put("session.timeout.ms", "10000");
            p.put("heartbeat.interval.ms", "500");
            p.put("partition.assignment.strategy", assignor(text(r, "assignor")));
            if (r.hasNonNull("instance")) {
                p.put("group.instance.id", text(r, "instance"));
            }
            consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(text(r, "topic")), this);
            thread = new Thread(this::run);
            thread.start();
        }

        private String assignor(String name) {
            switch (name) {
                case "range": return PREFIX + "RangeAssignor";
                case "roundrobin": return PREFIX + "RoundRobinAssignor";
                case "sticky": return PREFIX + "StickyAssignor";
                default: return PREFIX + "CooperativeStickyAssignor";
            }
        }

        private void run() {
            while (!closing) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    synchronized (records) {
                        records.add(describe(record));
                    }
                }
                synchronized (records) {
                    assignment = Set.copyOf(consumer.assignment());
                }
                for (CompletableFuture<Void> done = commits.poll(); done != null; done = commits.poll()) {
                    try {
                        consumer.commitSync();
                        done.complete(null);
                    } catch (Exception error) {
                        done.completeExceptionally(error);
                    }
                }
            }
            consumer.close();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            rebalances++;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        }

        ObjectNode state() {
            ObjectNode answer = JSON.createObjectNode();
            synchronized (records) {
                ArrayNode owned = answer.putArray("assignment");
                assignment.stream().map(TopicPartition::partition).sorted().forEach(owned::add);
                answer.putArray("records").addAll(records);
            }
            return answer.put("rebalances", rebalances);
        }

        void commit() throws Exception {
            CompletableFuture<Void> done = new CompletableFuture<>();
            commits.add(done);
            done.get();
        }

        void close() throws InterruptedException {
            closing = true;
            thread.join();
        }
    }

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        }
        return admin;
    }

    private JsonNode administer(JsonNode r) throws Exception {
        String topic = text(r, "topic");
        String group = text(r, "group");
        ObjectNode answer = JSON.createObjectNode();
        switch (r.get("op").asText()) {
            case "create_topic":
                NewTopic created = new NewTopic(topic, Optional.of(r.get("partitions").asInt()), Optional.empty());
                admin().createTopics(List.of(created.configs(strings(r.get("configs"))))).all().get();
                return null;
            case "list_topics":
                return JSON.valueToTree(admin().listTopics().names().get());
            case "describe_topic":
                TopicDescription described =
                        admin().describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                answer.put("partitions", described.partitions().size());
                return answer.put("leader", described.partitions().get(0).leader().id());
            case "create_partitions":
                admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(r.get("total").asInt()))).all().get();
                return null;
            case "delete_topic":
                admin().deleteTopics(List.of(topic)).all().get();
                return null;
            case "alter_topic_config":
                List<AlterConfigOp> changes = new ArrayList<>();
                strings(r.get("configs")).forEach((name, value) ->
                        changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
                admin().incrementalAlterConfigs(Map.of(resource(topic), changes)).all().get();
                return null;
            case "describe_topic_config":
                admin().describeConfigs(List.of(resource(topic))).all().get().get(resource(topic)).entries()
                        .forEach(entry -> answer.put(entry.name(), entry.value()));
                return answer;
            case "list_groups":
                List<String> names = new ArrayList<>();
                admin().listConsumerGroups().all().get().forEach(listed -> names.add(listed.groupId()));
                return JSON.valueToTree(names);
            case "describe_group":
                ConsumerGroupDescription found =
                        admin().describeConsumerGroups(List.of(group)).all().get().get(group);
                answer.put("state", found.state().toString());
                return answer.put("members", found.members().size());
            case "group_offsets":
                Map<TopicPartition, OffsetAndMetadata> offsets =
                        admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                offsets.forEach((at, committed) ->
                        answer.put(String.valueOf(at.partition()), committed.offset()));
                return answer;
            case "delete_group":
                admin().deleteConsumerGroups(List.of(group)).all().get();
                return null;
            case "delete_records":
                TopicPartition partition = new TopicPartition(topic, r.get("partition").asInt());
                return JSON.valueToTree(admin().deleteRecords(
                        Map.of(partition, RecordsToDelete.beforeOffset(r.get("before").asLong())))
                        .lowWatermarks().get(partition).get().lowWatermark());
            case "offsets":
                TopicPartition asked = new TopicPartition(topic, r.get("partition").asInt());
                answer.put("earliest", admin().listOffsets(Map.of(asked, OffsetSpec.earliest()))
                        .partitionResult(asked).get().offset());
                return answer.put("latest", admin().listOffsets(Map.of(asked, OffsetSpec.latest()))
                        .partitionResult(asked).get().offset());
            default:
                throw new IllegalArgumentException("unknown op " + r.get("op"));
        }
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> found = new HashMap<>();
        node.properties().forEach(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }
}
