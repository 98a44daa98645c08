import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group on Kafka's own client. Prints what it is told and what it reads, until a line comes in. */
public class Member implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], group = args[1], topic = args[2], assignor = args[3];
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "heartbeat.interval.ms", 300,
            "session.timeout.ms", 6000,
            "partition.assignment.strategy", ASSIGNORS.get(assignor),
            "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic), new Member());
            while (System.in.available() == 0) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                records.forEach(record -> System.out.println("r " + record.partition() + " " + record.offset()));
                if (!records.isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (RuntimeException e) {
                        System.out.println("# " + e);
                    }
                }
            }
        }
        System.exit(0);
    }

    private static void say(String what, Collection<TopicPartition> partitions) {
        String numbers = partitions.stream().map(tp -> " " + tp.partition()).collect(Collectors.joining());
        System.out.println(what + " " + System.nanoTime() + numbers);
    }

    @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) { say("+", partitions); }
    @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) { say("-", partitions); }
    @Override public void onPartitionsLost(Collection<TopicPartition> partitions) { say("-", partitions); }
}
