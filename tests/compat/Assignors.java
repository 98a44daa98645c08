import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;

/**
 * What Kafka's own assignors give. A line is a case: assignor, topic:count …, and then for each member
 * id;instance;topics;owned;generation;user data, fields by tabs, lists by commas. The answer: id;partitions for each.
 */
public class Assignors {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            Map<String, Integer> counts = new TreeMap<>();
            for (String each : list(fields[1])) {
                counts.put(each.split(":")[0], Integer.parseInt(each.split(":")[1]));
            }
            Map<String, Subscription> members = new TreeMap<>();
            for (int at = 2; at < fields.length; at++) {
                String[] member = fields[at].split(";", -1);
                ByteBuffer data = member[5].isEmpty() ? null : ByteBuffer.wrap(HexFormat.of().parseHex(member[5]));
                Subscription subscription = new Subscription(
                    list(member[2]), data, partitions(member[3]), Integer.parseInt(member[4]), Optional.empty());
                subscription.setGroupInstanceId(member[1].isEmpty() ? Optional.empty() : Optional.of(member[1]));
                members.put(member[0], subscription);
            }
            Map<String, List<TopicPartition>> assigned = new TreeMap<>(make(fields[0]).assign(counts, members));
            List<String> parts = new ArrayList<>();
            assigned.forEach((member, partitions) -> {
                List<String> names = new ArrayList<>();
                partitions.forEach(tp -> names.add(tp.topic() + "/" + tp.partition()));
                parts.add(member + ";" + String.join(",", names));
            });
            System.out.println(String.join("\t", parts));
        }
    }

    private static AbstractPartitionAssignor make(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static List<String> list(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }

    private static List<TopicPartition> partitions(String text) {
        List<TopicPartition> found = new ArrayList<>();
        for (String each : list(text)) {
            found.add(new TopicPartition(each.split("/")[0], Integer.parseInt(each.split("/")[1])));
        }
        return found;
    }
}
