import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's side of the scenario "log": producers, then consumers, of one partition. Each is a thread
 * with a client of its own, all in one process that is warm when it is measured, which is kinder to
 * Kafka than a process for each on few cores. A consumer touches every record.
 *
 * <p>LogBench BOOTSTRAP CLIENTS,... SECONDS REPEATS RECORDS
 */
final class LogBench {
    static final int RECORD_BYTES = 64;
    /** Holds 16,384 records of 64 bytes with what Kafka adds to each; a MiB and a quarter. */
    static final int BATCH_BYTES = 16_384 * 80;
    static final String RETAINED = Long.toString(2L << 30);

    final String bootstrap;
    final double seconds;

    LogBench(String bootstrap, double seconds) {
        this.bootstrap = bootstrap;
        this.seconds = seconds;
    }

    public static void main(String[] arguments) throws Exception {
        LogBench bench = new LogBench(arguments[0], Double.parseDouble(arguments[2]));
        int repeats = Integer.parseInt(arguments[3]);
        long records = Long.parseLong(arguments[4]);
        int[] clients = Arrays.stream(arguments[1].split(",")).mapToInt(Integer::parseInt).toArray();
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bench.bootstrap))) {
            for (int n : clients) {
                double[] rates = new double[repeats];
                for (int i = 0; i < repeats; i++) {
                    String topic = "produced-" + n + "-" + i;
                    bench.create(admin, topic, Map.of("retention.bytes", RETAINED, "segment.bytes", Integer.toString(256 << 20)));
                    rates[i] = bench.measure(n, bench.producers(topic));
                    admin.deleteTopics(List.of(topic)).all().get();
                }
                print("producers", n, rates);
            }
            bench.create(admin, "consumed", Map.of("retention.ms", "-1"));
            bench.fill("consumed", records);
            for (int n : clients) {
                double[] rates = new double[repeats];
                for (int i = 0; i < repeats; i++) {
                    rates[i] = bench.measure(n, bench.consumers("consumed", records));
                }
                print("consumers", n, rates);
            }
        }
    }

    static void print(String what, int clients, double[] rates) {
        double[] sorted = rates.clone();
        Arrays.sort(sorted);
        double median = (sorted[(sorted.length - 1) / 2] + sorted[sorted.length / 2]) / 2;
        System.out.printf(Locale.ROOT, "kafka %-9s %3d  %,14.0f records/s (median of %d, from %,.0f to %,.0f)%n",
            what, clients, median, rates.length, sorted[0], sorted[sorted.length - 1]);
    }

    void create(Admin admin, String topic, Map<String, String> configs) throws ExecutionException, InterruptedException {
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(configs))).all().get();
    }

    /** What one client does until it is told to stop; it adds what it has done to the count. */
    interface Client {
        void run(AtomicLong done, AtomicBoolean stop) throws Exception;
    }

    /** Records per second of that many clients together, once they have run for a while. */
    double measure(int clients, Client client) throws Exception {
        AtomicBoolean stop = new AtomicBoolean();
        AtomicReference<Exception> failed = new AtomicReference<>();
        List<AtomicLong> counts = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            AtomicLong done = new AtomicLong();
            counts.add(done);
            Thread thread = new Thread(() -> {
                try {
                    client.run(done, stop);
                } catch (Exception e) {
                    failed.compareAndSet(null, e);
                    stop.set(true);
                }
            });
            thread.start();
            threads.add(thread);
        }
        TimeUnit.MILLISECONDS.sleep((long) (seconds * 1000)); // warm-up
        long before = sum(counts);
        long began = System.nanoTime();
        TimeUnit.MILLISECONDS.sleep((long) (seconds * 1000));
        long after = sum(counts);
        double took = (System.nanoTime() - began) / 1e9;
        stop.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        if (failed.get() != null) {
            throw failed.get();
        }
        return (after - before) / took;
    }

    static long sum(List<AtomicLong> counts) {
        return counts.stream().mapToLong(AtomicLong::get).sum();
    }

    KafkaProducer<byte[], byte[]> producer() {
        Properties p = new Properties();
        p.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        p.put(ProducerConfig.ACKS_CONFIG, "1");
        p.put(ProducerConfig.BATCH_SIZE_CONFIG, BATCH_BYTES);
        p.put(ProducerConfig.LINGER_MS_CONFIG, 5);
        p.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "none");
        p.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, 2 * BATCH_BYTES);
        p.put(ProducerConfig.SEND_BUFFER_CONFIG, 1 << 20);
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Counts what was acknowledged. */
    Client producers(String topic) {
        return (done, stop) -> {
            AtomicReference<Exception> failed = new AtomicReference<>();
            // Only the client's own thread calls it.
            Callback acknowledged = (metadata, e) -> {
                if (e != null) {
                    failed.set(e);
                } else {
                    done.lazySet(done.getPlain() + 1);
                }
            };
            byte[] value = new byte[RECORD_BYTES];
            try (KafkaProducer<byte[], byte[]> producer = producer()) {
                while (!stop.get()) {
                    producer.send(new ProducerRecord<>(topic, 0, null, value), acknowledged);
                }
            }
            if (failed.get() != null) {
                throw failed.get();
            }
        };
    }

    void fill(String topic, long records) throws Exception {
        AtomicLong left = new AtomicLong(records);
        AtomicReference<Exception> failed = new AtomicReference<>();
        byte[] value = new byte[RECORD_BYTES];
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            while (left.getAndDecrement() > 0) {
                producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, e) -> failed.compareAndSet(null, e));
            }
        }
        if (failed.get() != null) {
            throw failed.get();
        }
    }

    /** Each reads the whole partition, from its beginning, again and again. */
    Client consumers(String topic, long records) {
        return (done, stop) -> {
            Properties p = new Properties();
            p.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            p.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
            p.put(ConsumerConfig.FETCH_MAX_BYTES_CONFIG, 64 << 20);
            p.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 8 << 20);
            p.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 200_000);
            p.put(ConsumerConfig.RECEIVE_BUFFER_CONFIG, 1 << 20);
            TopicPartition partition = new TopicPartition(topic, 0);
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long position = 0;
                while (!stop.get()) {
                    long n = 0;
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        if (record.value().length != RECORD_BYTES || record.value()[RECORD_BYTES - 1] != 0 || record.offset() != position) {
                            throw new IllegalStateException("record " + record.offset() + " instead of " + position);
                        }
                        position++;
                        n++;
                    }
                    done.lazySet(done.getPlain() + n);
                    if (position >= records) {
                        consumer.seekToBeginning(List.of(partition));
                        position = 0;
                    }
                }
            }
        };
    }
}
