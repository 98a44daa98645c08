import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Copies a topic exactly once with Java's client; `copier.py` says what is expected of it. */
public final class Copier {
    public static void main(String[] args) {
        String bootstrap = args[0], source = args[1], target = args[2], id = args[3];
        Properties c = new Properties();
        c.put("bootstrap.servers", bootstrap);
        c.put("group.id", id + "-group");
        c.put("group.instance.id", "only");
        c.put("isolation.level", "read_committed");
        c.put("enable.auto.commit", "false");
        c.put("auto.offset.reset", "earliest");
        c.put("session.timeout.ms", "6000");
        c.put("max.poll.records", "200");
        c.put("reconnect.backoff.ms", "20");
        c.put("reconnect.backoff.max.ms", "200");
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("transactional.id", id);
        p.put("transaction.timeout.ms", "10000");
        p.put("linger.ms", "2");
        p.put("reconnect.backoff.ms", "20");
        p.put("reconnect.backoff.max.ms", "200");
        try (KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(c, new StringDeserializer(), new StringDeserializer());
                KafkaProducer<String, String> producer =
                        new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    copy(records, target, producer, consumer);
                } catch (ProducerFencedException | AuthorizationException | UnsupportedVersionException fatal) {
                    throw fatal;
                } catch (KafkaException error) {
                    producer.abortTransaction();
                    rewind(consumer);
                }
            }
        }
    }

    private static void copy(ConsumerRecords<String, String> records, String target,
            KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition(), null, "<" + record.value() + ">"));
            ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata at = committed.get(partition);
            consumer.seek(partition, at == null ? 0 : at.offset());
        }
    }
}
