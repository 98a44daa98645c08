import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.compress.*;
import org.apache.kafka.common.header.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.*;

/**
 * Writes batches with Kafka's own classes, one "name hex" a line, for golden_batches.txt; with the argument "read", reads
 * hex from its input instead and prints what Kafka sees in it.
 *
 *     java -cp 'kafka-4.3.1/libs/*' GoldenBatches.java > golden_batches.txt
 */
public class GoldenBatches {
    static final HexFormat HEX = HexFormat.of();

    static byte[] b(String s) { return s == null ? null : s.getBytes(StandardCharsets.UTF_8); }

    static void print(String name, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        System.out.println(name + " " + HEX.formatHex(bytes));
    }

    static MemoryRecordsBuilder builder(Compression codec, TimestampType type, long baseOffset, long logAppendTime,
            long producerId, short epoch, int sequence, boolean transactional, boolean control, int leaderEpoch) {
        return new MemoryRecordsBuilder(ByteBuffer.allocate(1 << 20), (byte) 2, codec, type, baseOffset, logAppendTime,
            producerId, epoch, sequence, transactional, control, leaderEpoch, 1 << 20);
    }

    static void fill(MemoryRecordsBuilder m) {
        m.append(1700000000000L, b("k1"), b("v1"));
        m.append(1700000000007L, null, b("no key"));
        m.append(1699999999990L, b("k2"), null);
        m.append(1700000000100L, b(""), b(""), new Header[] {
            new RecordHeader("trace", b("abc")), new RecordHeader("", null), new RecordHeader("größe", b("")) });
        m.append(1700000000100L, b("long"), b("x".repeat(300)));
    }

    static MemoryRecords standard(Compression codec) {
        MemoryRecordsBuilder m = builder(codec, TimestampType.CREATE_TIME, 0, -1, 4711, (short) 3, 17, true, false, -1);
        fill(m);
        return m.build();
    }

    static class Keep extends MemoryRecords.RecordFilter {
        final Set<Long> offsets; final boolean marker; final BatchRetention retention;
        Keep(long now, long retentionMs, BatchRetention retention, boolean marker, Long... offsets) {
            super(now, retentionMs);
            this.offsets = Set.of(offsets); this.marker = marker; this.retention = retention;
        }
        protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
            return new BatchRetentionResult(retention, marker);
        }
        protected boolean shouldRetainRecord(RecordBatch batch, org.apache.kafka.common.record.internal.Record r) {
            return offsets.contains(r.offset());
        }
    }

    static ByteBuffer filter(MemoryRecords records, Keep keep) {
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        MemoryRecords.FilterResult result = records.filterTo(keep, out, BufferSupplier.NO_CACHING);
        ByteBuffer done = result.outputBuffer().duplicate();
        done.flip();
        return done;
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0) { read(); return; }
        print("plain", standard(Compression.NONE).buffer());
        print("gzip", standard(Compression.gzip().build()).buffer());
        print("snappy", standard(Compression.snappy().build()).buffer());
        print("lz4", standard(Compression.lz4().build()).buffer());
        print("zstd", standard(Compression.zstd().build()).buffer());
        MemoryRecordsBuilder m = builder(Compression.NONE, TimestampType.CREATE_TIME, 0, -1, -1, (short) -1, -1, false, false, -1);
        m.append(0L, (byte[]) null, (byte[]) null);
        print("smallest", m.build().buffer());
        m = builder(Compression.NONE, TimestampType.CREATE_TIME, 0, -1, -1, (short) -1, -1, false, false, -1);
        m.append(Long.MAX_VALUE, b("a"), b("b"));
        m.append(0L, b("a"), b("b"));
        m.append(-1L, b("a"), b("b"));
        print("timestamps", m.build().buffer());
        m = builder(Compression.NONE, TimestampType.LOG_APPEND_TIME, 500, 1800000000000L, -1, (short) -1, -1, false, false, 9);
        fill(m);
        MemoryRecords appended = m.build();
        print("log-append-time", appended.buffer());
        m = builder(Compression.NONE, TimestampType.CREATE_TIME, 100, -1, 4711, (short) 3, 17, true, false, 5);
        fill(m);
        MemoryRecords five = m.build();
        Keep.BatchRetention check = Keep.BatchRetention.DELETE_EMPTY, empty = Keep.BatchRetention.RETAIN_EMPTY;
        print("cleaned-some", filter(five, new Keep(0, 0, check, false, 101L, 103L)));
        print("cleaned-horizon", filter(five, new Keep(1700000900000L, 100, check, false, 101L, 102L)));
        ByteBuffer horizon = filter(five, new Keep(1700000900000L, 100, check, false, 101L, 102L, 103L));
        print("cleaned-twice", filter(MemoryRecords.readableRecords(horizon), new Keep(1900000000000L, 100, check, false, 101L, 103L)));
        print("cleaned-empty", filter(five, new Keep(0, 0, empty, false)));
        print("cleaned-log-append-time", filter(appended, new Keep(0, 0, check, false, 501L, 503L)));
        print("cleaned-log-append-time-horizon", filter(appended, new Keep(1900000000000L, 7, check, false, 502L)));
        print("commit", MemoryRecords.withEndTransactionMarker(42L, 1700000000000L, 5, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 12)).buffer());
        print("abort", MemoryRecords.withEndTransactionMarker(42L, 1700000000000L, 5, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 12)).buffer());
    }

    static void read() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            try {
                for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(line))).batches()) {
                    batch.ensureValid();
                    StringBuilder out = new StringBuilder();
                    out.append(batch.baseOffset() + " " + batch.lastOffset() + " " + batch.countOrNull() + " " + batch.producerId()
                        + " " + batch.producerEpoch() + " " + batch.baseSequence() + " " + batch.maxTimestamp());
                    for (org.apache.kafka.common.record.internal.Record r : batch) {
                        out.append(" " + r.offset() + "," + r.timestamp() + "," + hex(r.key()) + "," + hex(r.value()));
                        for (Header h : r.headers()) out.append("," + HEX.formatHex(b(h.key())) + "=" + (h.value() == null ? "-" : HEX.formatHex(h.value())));
                    }
                    System.out.println(out);
                }
            } catch (Exception e) { System.out.println("error " + e); }
        }
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "-";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
