import static java.nio.charset.StandardCharsets.UTF_8;

import io.nats.client.*;
import io.nats.client.api.*;
import java.io.*;
import java.nio.file.*;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.*;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import javax.net.ssl.*;

/**
 * Ways to connect, to servers with users and TLS, and what servers refuse. PLAIN, TLS, MTLS, WS and
 * WSS are URLs; CA and IDENTITIES are what ../identities.sh makes.
 */
public class Connecting {
  static final Duration PATIENCE = Duration.ofSeconds(10);
  static final Map<String, String> ENV = System.getenv();

  interface Story {
    void tell() throws Exception;
  }

  static final ExecutorService POOL = Executors.newCachedThreadPool();

  public static void main(String[] none) throws Exception {
    Map<String, Story> ways = new LinkedHashMap<>();
    ways.put("userAndPassword", () -> works(password("PLAIN", "secret")));
    ways.put("userAndPasswordOverTLS", () -> works(trusting(password("TLS", "secret"))));
    ways.put("nKey", () -> works(nkey("PLAIN", "service.nk")));
    ways.put("nKeyOverTLS", () -> works(trusting(nkey("TLS", "service.nk"))));
    ways.put("clientCertificate", () -> works(to("MTLS").sslContext(tls(ENV.get("CA"), "client"))));
    ways.put("webSocket", () -> works(password("WS", "secret")));
    ways.put("webSocketWithNKey", () -> works(nkey("WS", "service.nk")));
    ways.put("webSocketOverTLS", () -> works(trusting(password("WSS", "secret"))));
    Map<String, Story> refusals = new LinkedHashMap<>();
    refusals.put("wrongPassword", () -> unauthorized(url -> password(url, "wrong")));
    refusals.put("wrongNKey", () -> unauthorized(url -> nkey(url, "stranger.nk")));
    refusals.put("nobody", () -> unauthorized(Connecting::to));
    refusals.put("wrongCA", Connecting::wrongCA);
    refusals.put("wrongClientCertificate", Connecting::wrongClientCertificate);
    // jnats reports a refusal when its time to connect is over, so these are told at once.
    Map<String, Future<Void>> told = new LinkedHashMap<>();
    refusals.forEach((name, story) -> told.put(name, tell(story, POOL)));
    ExecutorService one = Executors.newSingleThreadExecutor();
    ways.forEach((name, story) -> told.put(name, tell(story, one)));
    int failed = 0;
    for (Map.Entry<String, Future<Void>> story : told.entrySet()) {
      try {
        story.getValue().get(60, TimeUnit.SECONDS);
        System.out.println("ok   " + story.getKey());
      } catch (Exception e) {
        failed++;
        System.out.println("FAIL " + story.getKey());
        (e.getCause() == null ? e : e.getCause()).printStackTrace(System.out);
      }
    }
    System.out.println((told.size() - failed) + " of " + told.size() + " hold");
    System.exit(failed > 0 ? 1 : 0);
  }

  static Future<Void> tell(Story story, ExecutorService by) {
    return by.submit(() -> {
      story.tell();
      return null;
    });
  }

  static Path identity(String name) {
    return Path.of(ENV.get("IDENTITIES"), name);
  }

  static Options.Builder to(String url) {
    return Options.builder().server(ENV.get(url)).connectionTimeout(PATIENCE).noReconnect()
        .errorListener(new ErrorListener() {});
  }

  static Options.Builder password(String url, String password) {
    return to(url).userInfo("ann", password);
  }

  static Options.Builder nkey(String url, String seed) throws IOException {
    return to(url).authHandler(Nats.staticCredentials(null, Files.readString(identity(seed)).toCharArray()));
  }

  static Options.Builder trusting(Options.Builder options) throws Exception {
    return options.sslContext(tls(ENV.get("CA"), null));
  }

  // tls trusts a CA, and has a certificate unless its name is null.
  static SSLContext tls(String ca, String certificate) throws Exception {
    KeyStore trusted = KeyStore.getInstance("PKCS12");
    trusted.load(null, null);
    trusted.setCertificateEntry("ca", x509(Path.of(ca)));
    TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
    trust.init(trusted);
    KeyManager[] keys = null;
    if (certificate != null) {
      String pem = Files.readString(identity(certificate + ".key")).replaceAll("-----[^-]*-----|\\s", "");
      KeyStore own = KeyStore.getInstance("PKCS12");
      own.load(null, null);
      own.setKeyEntry(
          "own",
          KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem))),
          new char[0],
          new java.security.cert.Certificate[] {x509(identity(certificate + ".crt"))});
      KeyManagerFactory factory = KeyManagerFactory.getInstance("PKIX");
      factory.init(own, new char[0]);
      keys = factory.getKeyManagers();
    }
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys, trust.getTrustManagers(), null);
    return context;
  }

  static X509Certificate x509(Path path) throws Exception {
    try (InputStream in = Files.newInputStream(path)) {
      return (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(in);
    }
  }

  static void equal(Object got, Object want) {
    if (!Objects.equals(got, want)) {
      throw new AssertionError("got " + got + ", want " + want);
    }
  }

  static String ask(Connection nc, String what) throws Exception {
    Message m = nc.request("javaconnect.help", what.getBytes(UTF_8), PATIENCE);
    return m == null ? null : new String(m.getData(), UTF_8);
  }

  // works asks, answers, stores, and is told what it may not publish.
  static void works(Options.Builder options) throws Exception {
    BlockingQueue<String> errors = new LinkedBlockingQueue<>();
    options.errorListener(new ErrorListener() {
      @Override
      public void errorOccurred(Connection nc, String error) {
        errors.add(error);
      }
    });
    try (Connection nc = Nats.connect(options.build())) {
      nc.createDispatcher(m -> nc.publish(m.getReplyTo(), ("re: " + new String(m.getData(), UTF_8)).getBytes(UTF_8)))
          .subscribe("javaconnect.help");
      equal(ask(nc, "me"), "re: me");
      JetStreamManagement manager = nc.jetStreamManagement();
      if (manager.getStreamNames().contains("javaconnect")) { // one of a run that was ended
        manager.deleteStream("javaconnect");
      }
      manager.addStream(StreamConfiguration.builder().name("javaconnect").subjects("javaconnect.stored").build());
      PublishAck ack = nc.jetStream().publish("javaconnect.stored", "data".getBytes(UTF_8));
      equal(new String(manager.getMessage("javaconnect", ack.getSeqno()).getData(), UTF_8), "data");
      nc.publish("denied.stored", null);
      equal(errors.poll(10, TimeUnit.SECONDS), "Permissions Violation for Publish to \"denied.stored\"");
      equal(ask(nc, "again"), "re: again");
      manager.deleteStream("javaconnect");
    }
  }

  interface As {
    Options.Builder at(String url) throws Exception;
  }

  // refused returns the error of connecting, and what its listener heard.
  static String refused(Options.Builder options) throws Exception {
    StringBuffer heard = new StringBuffer();
    options.errorListener(new ErrorListener() {
      @Override
      public void exceptionOccurred(Connection nc, Exception e) {
        heard.append(e).append("; caused by ").append(e.getCause());
      }
    });
    try (Connection nc = Nats.connect(options.connectionTimeout(Duration.ofSeconds(5)).build())) {
      throw new AssertionError("connected to " + nc.getConnectedUrl());
    } catch (IOException e) {
      return e + "; heard: " + heard;
    }
  }

  static void unauthorized(As who) throws Exception {
    List<Future<Void>> all = new ArrayList<>();
    for (String url : new String[] {"PLAIN", "TLS", "WS", "WSS"}) {
      all.add(tell(() -> {
        boolean secure = url.equals("TLS") || url.equals("WSS");
        String error = "";
        // It tries again if nats-server has closed the connection before the client wrote all: then
        // the client reads nothing.
        for (int i = 0; i < 3 && !error.contains("AuthenticationException"); i++) {
          error = refused(secure ? trusting(who.at(url)) : who.at(url));
        }
        if (!error.contains("AuthenticationException") || !error.contains("Authorization Violation")) {
          throw new AssertionError(url + ": " + error);
        }
      }, POOL));
    }
    for (Future<Void> each : all) {
      each.get();
    }
  }

  static void wrongCA() throws Exception {
    for (String url : new String[] {"TLS", "WSS"}) {
      String error = refused(password(url, "secret").sslContext(tls(identity("other-ca.crt").toString(), null)));
      if (!error.contains("PKIX path building failed")) {
        throw new AssertionError(url + ": " + error);
      }
    }
  }

  // jnats does not say why: with TLS 1.3, the server refuses behind the client's handshake.
  static void wrongClientCertificate() throws Exception {
    for (String certificate : new String[] {"stranger", null}) {
      refused(to("MTLS").sslContext(tls(ENV.get("CA"), certificate)));
    }
  }
}
