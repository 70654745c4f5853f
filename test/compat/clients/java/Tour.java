import static java.nio.charset.StandardCharsets.UTF_8;

import io.nats.client.*;
import io.nats.client.api.*;
import io.nats.client.impl.Headers;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

/**
 * What applications rely on, through jnats: Tour nats://127.0.0.1:4222 [nats://second:4222]
 *
 * Prints one line per story; the exit status is 0 only if all hold. With a second URL of the same
 * cluster, the stories run between the two nodes.
 */
public class Tour {
  static final Duration PATIENCE = Duration.ofSeconds(10);

  interface Story {
    void tell(Connection a, Connection b) throws Exception;
  }

  static boolean cluster;
  static final int REPLICAS = Integer.parseInt(System.getenv().getOrDefault("REPLICAS", "1"));

  public static void main(String[] urls) throws Exception {
    if (urls.length < 1 || urls.length > 2) {
      System.err.println("usage: Tour URL [URL of another node]");
      System.exit(2);
    }
    cluster = urls.length == 2;
    Map<String, Story> stories = new LinkedHashMap<>();
    stories.put("publishAndSubscribe", Tour::publishAndSubscribe);
    stories.put("requestAndReply", Tour::requestAndReply);
    stories.put("queueGroup", Tour::queueGroup);
    stories.put("drain", Tour::drain);
    stories.put("streams", Tour::streams);
    stories.put("expectations", Tour::expectations);
    stories.put("pullConsumers", Tour::pullConsumers);
    stories.put("pushConsumers", Tour::pushConsumers);
    stories.put("orderedConsumers", Tour::orderedConsumers);
    stories.put("keysAndValues", Tour::keysAndValues);
    stories.put("watchedKeys", Tour::watchedKeys);
    stories.put("objectStore", Tour::objectStore);
    stories.put("watchedObjects", Tour::watchedObjects);
    stories.put("sealedObjectStore", Tour::sealedObjectStore);
    ExecutorService teller = Executors.newCachedThreadPool();
    int failed = 0;
    for (Map.Entry<String, Story> story : stories.entrySet()) {
      Future<Void> told = teller.submit(() -> {
        try (Connection a = connect(urls[0]); Connection b = connect(urls[urls.length - 1])) {
          story.getValue().tell(a, b);
        }
        return null;
      });
      try {
        told.get(60, TimeUnit.SECONDS);
        System.out.println("ok   " + story.getKey());
      } catch (Exception e) {
        failed++;
        System.out.println("FAIL " + story.getKey());
        (e.getCause() == null ? e : e.getCause()).printStackTrace(System.out);
      }
    }
    System.out.println((stories.size() - failed) + " of " + stories.size() + " hold");
    System.exit(failed > 0 ? 1 : 0);
  }

  static Connection connect(String url) throws Exception {
    return Nats.connect(Options.builder().server(url).connectionTimeout(PATIENCE).errorListener(new ErrorListener() {}).build());
  }

  // Interest reaches the other node after the PONG of this one.
  static void settle(Connection nc) throws Exception {
    nc.flush(PATIENCE);
    if (cluster) {
      Thread.sleep(200);
    }
  }

  static void equal(Object got, Object want) {
    if (!Objects.equals(got, want)) {
      throw new AssertionError("got " + got + ", want " + want);
    }
  }

  static void refused(int code, Callable<?> call) throws Exception {
    try {
      call.call();
    } catch (JetStreamApiException e) {
      equal(e.getApiErrorCode(), code);
      return;
    }
    throw new AssertionError("no error " + code);
  }

  static byte[] bytes(Object o) {
    return o.toString().getBytes(UTF_8);
  }

  static String text(Message m) {
    return m == null ? null : new String(m.getData(), UTF_8);
  }

  // stream makes an empty stream with as many replicas as there are nodes, and n messages.
  static JetStreamManagement stream(Connection nc, StreamConfiguration.Builder config, String name, int n)
      throws Exception {
    JetStreamManagement manager = nc.jetStreamManagement();
    if (manager.getStreamNames().contains(name)) { // one of a run that was ended
      manager.deleteStream(name);
    }
    manager.addStream(config.name(name).subjects(name + ".>").replicas(REPLICAS).build());
    for (int i = 0; i < n; i++) {
      nc.jetStream().publish(name + "." + i % 2, bytes(i));
    }
    return manager;
  }

  static void publishAndSubscribe(Connection a, Connection b) throws Exception {
    Subscription sub = b.subscribe("java.*.x");
    settle(b);
    for (int i = 0; i < 100; i++) {
      a.publish("java." + i + ".x", new Headers().add("Key", "one", "two"), bytes(i));
    }
    for (int i = 0; i < 100; i++) {
      Message m = sub.nextMessage(PATIENCE);
      equal(m.getSubject(), "java." + i + ".x");
      equal(text(m), "" + i);
      equal(m.getHeaders().get("Key"), List.of("one", "two"));
    }
  }

  static void requestAndReply(Connection a, Connection b) throws Exception {
    b.createDispatcher(m -> b.publish(m.getReplyTo(), bytes("re: " + text(m)))).subscribe("java.help");
    settle(b);
    for (int i = 0; i < 20; i++) {
      equal(text(a.request("java.help", bytes(i), PATIENCE)), "re: " + i);
    }
    try {
      a.request("java.nobody", null).get(10, TimeUnit.SECONDS);
      throw new AssertionError("somebody answered");
    } catch (CancellationException e) { // nobody answers
    }
  }

  static void queueGroup(Connection a, Connection b) throws Exception {
    BlockingQueue<String> got = new LinkedBlockingQueue<>();
    for (Connection member : List.of(a, b, b)) {
      member.createDispatcher(m -> got.add(text(m))).subscribe("java.queue", "q");
      settle(member);
    }
    Set<String> all = new HashSet<>();
    for (int i = 0; i < 300; i++) {
      a.publish("java.queue", bytes(i));
    }
    for (int i = 0; i < 300; i++) {
      all.add(got.poll(10, TimeUnit.SECONDS));
    }
    equal(all.size(), 300);
  }

  static void drain(Connection a, Connection b) throws Exception {
    List<String> got = Collections.synchronizedList(new ArrayList<>());
    b.createDispatcher(m -> got.add(text(m))).subscribe("java.drain");
    settle(b);
    for (int i = 0; i < 200; i++) {
      a.publish("java.drain", bytes(i));
    }
    settle(a);
    equal(b.drain(PATIENCE).get(10, TimeUnit.SECONDS), true);
    equal(got.size(), 200);
  }

  static void streams(Connection a, Connection b) throws Exception {
    var manager = stream(a, StreamConfiguration.builder().maxMessagesPerSubject(4), "java", 10);
    JetStreamManagement other = b.jetStreamManagement();
    StreamState state = other.getStreamInfo("java").getStreamState();
    equal(List.of(state.getMsgCount(), state.getFirstSequence(), state.getLastSequence()), List.of(8L, 3L, 10L));
    equal(new String(other.getMessage("java", 5).getData(), UTF_8), "4");
    equal(other.getLastMessage("java", "java.0").getSeq(), 9L);
    equal(other.getNextMessage("java", 4, "java.0").getSeq(), 5L);
    equal(other.deleteMessage("java", 5), true);
    refused(10037, () -> manager.getMessage("java", 5));
    equal(manager.purgeStream("java", PurgeOptions.subject("java.0")).getPurged(), 3L);
    StreamConfiguration config = other.getStreamInfo("java").getConfiguration();
    config = StreamConfiguration.builder(config).maxMessages(2).build();
    equal(other.updateStream(config).getConfiguration().getMaxMsgs(), 2L);
    equal(manager.deleteStream("java"), true);
    refused(10059, () -> other.getStreamInfo("java"));
  }

  static void expectations(Connection a, Connection b) throws Exception {
    var manager = stream(a, StreamConfiguration.builder(), "javaexpect", 0);
    JetStream js = a.jetStream();
    JetStream other = b.jetStream();
    PublishOptions id = PublishOptions.builder().messageId("one").build();
    equal(js.publish("javaexpect.a", null, id).getSeqno(), 1L);
    equal(other.publish("javaexpect.a", null, id).isDuplicate(), true);
    PublishOptions last = PublishOptions.builder().expectedLastSequence(1).build();
    equal(js.publish("javaexpect.a", null, last).getSeqno(), 2L);
    refused(10071, () -> other.publish("javaexpect.a", null, last));
    PublishOptions first = PublishOptions.builder().expectedLastSubjectSequence(0).build();
    equal(other.publish("javaexpect.b", null, first).getSeqno(), 3L);
    refused(10071, () -> js.publish("javaexpect.b", null, first));
    PublishOptions lastId = PublishOptions.builder().expectedLastMsgId("one").build();
    refused(10070, () -> js.publish("javaexpect.a", null, lastId));
    PublishOptions wrong = PublishOptions.builder().expectedStream("other").build();
    refused(10060, () -> js.publish("javaexpect.a", null, wrong));
    List<CompletableFuture<PublishAck>> acks = new ArrayList<>();
    for (int i = 0; i < 200; i++) {
      acks.add(js.publishAsync("javaexpect.async", bytes(i)));
    }
    for (int i = 0; i < 200; i++) {
      equal(acks.get(i).get(10, TimeUnit.SECONDS).getSeqno(), i + 4L);
    }
    equal(manager.deleteStream("javaexpect"), true);
  }

  static void pullConsumers(Connection a, Connection b) throws Exception {
    var manager = stream(a, StreamConfiguration.builder(), "javapull", 10);
    manager.createConsumer("javapull", ConsumerConfiguration.builder().durable("d").maxDeliver(3).build());
    ConsumerContext consumer = b.getConsumerContext("javapull", "d");
    try (FetchConsumer batch = consumer.fetchMessages(4)) {
      for (int i = 0; i < 4; i++) {
        Message m = batch.nextMessage();
        equal(text(m), "" + i);
        switch (i) {
          case 2 -> m.term();
          case 3 -> m.nakWithDelay(Duration.ofMillis(300));
          default -> m.ackSync(PATIENCE);
        }
      }
    }
    Map<String, Long> got = new TreeMap<>();
    try (IterableConsumer messages = consumer.iterate()) {
      while (got.size() < 7) {
        Message m = messages.nextMessage(PATIENCE);
        got.put(text(m), m.metaData().deliveredCount());
        m.ackSync(PATIENCE);
      }
    }
    equal(got.toString(), "{3=2, 4=1, 5=1, 6=1, 7=1, 8=1, 9=1}");
    equal(consumer.getConsumerInfo().getAckFloor().getStreamSequence(), 10L);
    equal(consumer.next(1000), null);
    equal(manager.deleteConsumer("javapull", "d"), true);
    refused(10014, () -> b.jetStreamManagement().getConsumerInfo("javapull", "d"));
    equal(manager.deleteStream("javapull"), true);
  }

  static void pushConsumers(Connection a, Connection b) throws Exception {
    var manager = stream(a, StreamConfiguration.builder(), "javapush", 100);
    ConsumerConfiguration config =
        ConsumerConfiguration.builder().flowControl(Duration.ofSeconds(1)).build();
    PushSubscribeOptions options =
        PushSubscribeOptions.builder().durable("pushed").configuration(config).build();
    JetStreamSubscription sub = b.jetStream().subscribe("javapush.1", options);
    for (int i = 1; i < 100; i += 2) {
      Message m = sub.nextMessage(PATIENCE);
      equal(text(m), "" + i);
      m.ackSync(PATIENCE);
    }
    equal(manager.getConsumerInfo("javapush", "pushed").getAckFloor().getStreamSequence(), 100L);
    equal(manager.deleteStream("javapush"), true);
  }

  static void orderedConsumers(Connection a, Connection b) throws Exception {
    var manager = stream(a, StreamConfiguration.builder(), "javaordered", 300);
    PushSubscribeOptions options = PushSubscribeOptions.builder().ordered(true).build();
    JetStreamSubscription pushed = b.jetStream().subscribe("javaordered.1", options);
    OrderedConsumerContext ordered = b.getStreamContext("javaordered")
        .createOrderedConsumer(new OrderedConsumerConfiguration().filterSubject("javaordered.1"));
    try (IterableConsumer pulled = ordered.iterate()) {
      for (int i = 1; i < 300; i += 2) {
        equal(text(pushed.nextMessage(PATIENCE)), "" + i);
        equal(text(pulled.nextMessage(PATIENCE)), "" + i);
      }
    }
    equal(manager.deleteStream("javaordered"), true);
  }

  // bucket makes an empty bucket.
  static KeyValue bucket(Connection nc, String name, int history) throws Exception {
    KeyValueManagement manager = nc.keyValueManagement();
    if (manager.getBucketNames().contains(name)) { // one of a run that was ended
      manager.delete(name);
    }
    manager.create(
        KeyValueConfiguration.builder(name).maxHistoryPerKey(history).replicas(REPLICAS).build());
    return nc.keyValue(name);
  }

  static void keysAndValues(Connection a, Connection b) throws Exception {
    KeyValue kv = bucket(a, "javakv", 5);
    KeyValue other = b.keyValue("javakv");
    equal(kv.put("key", "first"), 1L);
    equal(other.get("key").getValueAsString(), "first");
    refused(10071, () -> other.create("key", bytes("again")));
    equal(other.create("other", bytes("second")), 2L);
    refused(10071, () -> kv.update("key", "third", 9));
    equal(kv.update("key", "third", 1), 3L);
    equal(other.get("key", 1).getValueAsString(), "first");
    equal(kv.get("nothing"), null);
    equal(new TreeSet<>(other.keys()), new TreeSet<>(List.of("key", "other")));
    kv.delete("key");
    equal(other.get("key"), null);
    equal(other.keys(), List.of("other"));
    equal(other.create("key", bytes("fourth")), 5L);
    for (int i = 0; i < 10; i++) {
      kv.put("key", "" + i);
    }
    equal(other.history("key").stream().map(KeyValueEntry::getValueAsString).toList(),
        List.of("5", "6", "7", "8", "9"));
    kv.purge("key");
    equal(other.history("key").stream().map(KeyValueEntry::getOperation).toList(),
        List.of(KeyValueOperation.PURGE));
    equal(other.getStatus().getEntryCount(), 2L);
    kv.purgeDeletes(KeyValuePurgeOptions.builder().deleteMarkersNoThreshold().build());
    equal(other.getStatus().getEntryCount(), 1L);
    a.keyValueManagement().delete("javakv");
    refused(10059, other::getStatus);
  }

  static void watchedKeys(Connection a, Connection b) throws Exception {
    KeyValue kv = bucket(a, "javawatch", 3);
    kv.put("a.x", "1");
    BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    try (var watch = b.keyValue("javawatch").watchAll(new KeyValueWatcher() {
      public void watch(KeyValueEntry e) {
        seen.add(e.getKey() + " " + e.getOperation() + " " + e.getValueAsString());
      }

      public void endOfData() {
        seen.add("end of data");
      }
    })) {
      equal(seen.poll(10, TimeUnit.SECONDS), "a.x PUT 1");
      equal(seen.poll(10, TimeUnit.SECONDS), "end of data");
      kv.put("b.x", "2");
      equal(seen.poll(10, TimeUnit.SECONDS), "b.x PUT 2");
      kv.delete("a.x");
      equal(seen.poll(10, TimeUnit.SECONDS), "a.x DELETE null");
      kv.purge("b.x");
      equal(seen.poll(10, TimeUnit.SECONDS), "b.x PURGE null");
    }
    a.keyValueManagement().delete("javawatch");
  }

  // store makes an empty object store.
  static ObjectStore store(Connection nc, String name) throws Exception {
    ObjectStoreManagement manager = nc.objectStoreManagement();
    if (manager.getBucketNames().contains(name)) { // one of a run that was ended
      manager.delete(name);
    }
    manager.create(ObjectStoreConfiguration.builder(name).replicas(REPLICAS).build());
    return nc.objectStore(name);
  }

  static byte[] read(ObjectStore store, String name) throws Exception {
    ByteArrayOutputStream data = new ByteArrayOutputStream();
    store.get(name, data);
    return data.toByteArray();
  }

  static void objectStore(Connection a, Connection b) throws Exception {
    ObjectStore store = store(a, "javaobj");
    ObjectStore other = b.objectStore("javaobj");
    byte[] data = new byte[5_000_000];
    new Random(1).nextBytes(data);
    ObjectInfo info = store.put("large", new ByteArrayInputStream(data));
    equal(List.of(info.getSize(), info.getChunks()), List.of(5_000_000L, 39L));
    ObjectInfo small = other.put("small", bytes("a few bytes"));
    equal(Arrays.equals(read(other, "large"), data), true);
    equal(new String(read(store, "small"), UTF_8), "a few bytes");
    equal(new TreeSet<>(other.getList().stream().map(ObjectInfo::getObjectName).toList()),
        new TreeSet<>(List.of("large", "small")));
    equal(store.put("small", bytes("other bytes of it")).getNuid().equals(small.getNuid()), false);
    equal(new String(read(other, "small"), UTF_8), "other bytes of it");
    store.updateMeta("small", ObjectMeta.builder("small").description("changed").build());
    equal(other.getInfo("small").getDescription(), "changed");
    equal(store.delete("large").isDeleted(), true);
    equal(other.getInfo("large"), null);
    equal(other.getInfo("large", true).isDeleted(), true);
    equal(other.getStatus().getBackingStreamInfo().getStreamState().getMsgCount(), 3L);
    a.objectStoreManagement().delete("javaobj");
    refused(10059, other::getStatus);
  }

  static void watchedObjects(Connection a, Connection b) throws Exception {
    ObjectStore store = store(a, "javaobjwatch");
    BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    try (var watch = b.objectStore("javaobjwatch").watch(new ObjectStoreWatcher() {
      public void watch(ObjectInfo o) {
        seen.add(o.getObjectName() + " " + o.isDeleted());
      }

      public void endOfData() {
        seen.add("end of data");
      }
    })) {
      equal(seen.poll(10, TimeUnit.SECONDS), "end of data");
      store.put("one", bytes("1"));
      equal(seen.poll(10, TimeUnit.SECONDS), "one false");
      store.delete("one");
      equal(seen.poll(10, TimeUnit.SECONDS), "one true");
    }
    a.objectStoreManagement().delete("javaobjwatch");
  }

  static void sealedObjectStore(Connection a, Connection b) throws Exception {
    ObjectStore store = store(a, "javaseal");
    store.put("kept", bytes("1"));
    equal(store.seal().isSealed(), true);
    ObjectStore other = b.objectStore("javaseal");
    refused(10109, () -> other.put("more", bytes("2")));
    equal(new String(read(other, "kept"), UTF_8), "1");
    a.objectStoreManagement().delete("javaseal");
  }
}
