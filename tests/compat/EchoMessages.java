import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with Kafka's own classes and writes them again: "class version hex" a line comes in, and a line with the
 * number of bytes left unread and the hex of what Kafka writes goes out; or "error" and what Kafka said.
 */
public class EchoMessages {
    static String echo(String className, short version, byte[] bytes) throws Exception {
        Message message = (Message) Class.forName(className).getDeclaredConstructor().newInstance();
        ByteBuffer input = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(input), version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(output), cache, version);
        return input.remaining() + " " + HexFormat.of().formatHex(output.array());
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        String line;
        while ((line = lines.readLine()) != null) {
            String[] parts = line.split(" ", -1);
            try {
                out.println(echo(parts[0], Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2])));
            } catch (Throwable error) {
                out.println("error " + error.toString().replace('\n', ' '));
            }
        }
        out.flush();
    }
}
