package compat

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// withTTL publishes a message with a Nats-TTL, and returns its sequence.
func withTTL(t *testing.T, js jetstream.JetStream, subject, ttl, data string) (sequence uint64) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Header.Set("Nats-TTL", ttl)
	m.Data = []byte(data)
	ack, err := js.PublishMsg(within(t), m)
	testutil.Must(t, err)
	return ack.Sequence
}

// refusesTTL publishes a message with a Nats-TTL that is refused.
func refusesTTL(t *testing.T, js jetstream.JetStream, subject, ttl string, want jetstream.ErrorCode) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Header.Set("Nats-TTL", ttl)
	_, err := js.PublishMsg(within(t), m)
	equal(t, "a TTL of "+ttl, number(err), want)
}

// marks is the life of markers, longer than a busy machine takes to look at them all. Stories that
// wait for it run beside each other.
const marks = 5 * time.Second

// expire waits until a stream has no message at some sequences.
func expire(t *testing.T, js jetstream.JetStream, name string, sequences ...uint64) {
	t.Helper()
	stream, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	for _, seq := range sequences {
		testutil.Eventually(t, fmt.Sprint("the end of message ", seq), func() error {
			_, err := stream.GetMsg(within(t), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			return fmt.Errorf("reading it: %v", err)
		})
	}
}

// marked waits until the last message of a subject is a marker, and returns it.
func marked(t *testing.T, js jetstream.JetStream, name, subject string) (m *jetstream.RawStreamMsg) {
	t.Helper()
	stream, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	testutil.Eventually(t, "a marker of "+subject, func() (err error) {
		if m, err = stream.GetLastMsgForSubject(within(t), subject); err == nil && m.Header.Get("Nats-Marker-Reason") == "" {
			err = fmt.Errorf("%s has message %d", subject, m.Sequence)
		}
		return err
	})
	equal(t, "reason", m.Header.Get("Nats-Marker-Reason"), "MaxAge")
	equal(t, "rollup", m.Header.Get("Nats-Rollup"), "sub")
	equal(t, "data", string(m.Data), "")
	return m
}

var expiryStories = []story{
	{"a message expires when its publisher says so", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true })
		equal(t, "a second", withTTL(t, js, name+".a", "1", "1"), uint64(1))
		fill(t, js, name+".a", 1)
		withTTL(t, other, name+".a", "1s", "3")
		withTTL(t, js, name+".b", "never", "4")
		withTTL(t, js, name+".b", "1h", "5")
		withTTL(t, js, name+".b", "1500ms", "6")
		for _, ttl := range []string{"0", "0s", "999ms", "-1", "-1h", "soon", "+5"} {
			refusesTTL(t, other, name+".a", ttl, 10165)
		}
		stream, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		_, err = stream.GetMsg(within(t), 5)
		testutil.Must(t, err)
		expire(t, other, name, 1, 3, 6)
		last, err := stream.GetLastMsgForSubject(within(t), name+".a")
		testutil.Must(t, err)
		equal(t, "the last of a", last.Sequence, uint64(2))
		is, err := stream.Info(within(t), jetstream.WithSubjectFilter(">"), jetstream.WithDeletedDetails(true))
		testutil.Must(t, err)
		equal(t, "messages", is.State.Msgs, uint64(3))
		equal(t, "first", is.State.FirstSeq, uint64(2))
		equal(t, "last", is.State.LastSeq, uint64(6))
		equal(t, "of b", is.State.Subjects[name+".b"], uint64(2))
		reader, err := stream.CreateConsumer(within(t), jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
		testutil.Must(t, err)
		batch, err := reader.Fetch(3)
		equalTexts(t, "delivered", texts(take(t, batch, err)), []string{"1", "4", "5"})
	}},
	{"a stream says whether its messages may expire", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		for _, ttl := range []string{"1", "1h", "never"} {
			refusesTTL(t, js, name+".a", ttl, 10166)
		}
		refusesTTL(t, js, name+".a", "soon", 10165)
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowMsgTTL: true}
		_, err := js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		equal(t, "sequence", withTTL(t, js, name+".a", "1", "1"), uint64(1))
		expire(t, js, name, 1)
		config.AllowMsgTTL = false
		_, err = js.UpdateStream(within(t), config)
		equal(t, "an update without", number(err), jetstream.ErrorCode(10052))
	}},
	{"max_age spares messages that never expire", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowMsgTTL, c.MaxAge = true, time.Second })
		fill(t, js, name+".a", 2)
		withTTL(t, js, name+".a", "never", "3")
		withTTL(t, js, name+".b", "1h", "4")
		fill(t, js, name+".b", 1)
		expire(t, js, name, 1, 2, 4, 5)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		is, err := stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "messages", is.State.Msgs, uint64(1))
		equal(t, "first", is.State.FirstSeq, uint64(3))
	}},
	{"a marker replaces the last message of a subject", func(t *testing.T, s *site) {
		t.Parallel()
		js, other := s.client(t), s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Hour })
		stream, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		config := stream.CachedInfo().Config
		equal(t, "TTLs are allowed", config.AllowMsgTTL, true)
		equal(t, "rollups are allowed", config.AllowRollup, true)
		config.SubjectDeleteMarkerTTL = marks
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		fill(t, js, name+".kept", 1)
		withTTL(t, js, name+".kept", "1", "2")   // an older one stays
		withTTL(t, js, name+".a", "3", "3")      // together with the next one
		withTTL(t, js, name+".a", "3", "4")      // the last one
		withTTL(t, other, name+".b", "3", "5")   // the only one
		withTTL(t, other, name+".new", "3", "6") // a newer one stays
		fill(t, js, name+".new", 1)
		expire(t, js, name, 2, 3, 4, 5, 6)
		a, b := marked(t, other, name, name+".a"), marked(t, other, name, name+".b")
		equal(t, "the TTL of a marker", a.Header.Get("Nats-TTL"), "5s")
		equal(t, "markers at the end", max(a.Sequence, b.Sequence), uint64(9))
		expire(t, js, name, 8, 9)
		holds(t, js, name, "after all", 2, map[string]uint64{".kept": 1, ".new": 1})
		is, err := stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "the end of a marker leaves none", is.State.LastSeq, uint64(9))
	}},
	{"max_age leaves markers", func(t *testing.T, s *site) {
		t.Parallel()
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL, c.MaxAge = marks, 3*time.Second })
		fill(t, js, name+".a", 3)
		fill(t, js, name+".b", 1)
		equal(t, "the TTL of a marker", marked(t, js, name, name+".a").Header.Get("Nats-TTL"), "5s")
		marked(t, js, name, name+".b")
		expire(t, js, name, 1, 2, 3, 4)
		expire(t, js, name, 5, 6)
		holds(t, js, name, "after all", 0, nil)
	}},
	{"what markers need is checked", func(t *testing.T, s *site) {
		js := s.client(t)
		create := func(what, settings string, want any) {
			t.Helper()
			name := s.name("s")
			answer := ask(t, js, "$JS.API.STREAM.CREATE."+name, fmt.Sprintf(`{"name":%q,%s}`, name, settings))
			equal(t, what, at(answer, "error", "err_code"), want)
		}
		create("less than a second", `"subject_delete_marker_ttl":999999999`, 10052.0)
		create("a negative one", `"subject_delete_marker_ttl":-1`, 10052.0)
		create("no purges", `"subject_delete_marker_ttl":1000000000,"deny_purge":true`, nil)
		create("pedantic, no TTLs", `"pedantic":true,"subject_delete_marker_ttl":1000000000,"allow_rollup_hdrs":true`, 10052.0)
		create("pedantic, no rollups", `"pedantic":true,"subject_delete_marker_ttl":1000000000,"allow_msg_ttl":true`, 10052.0)
		create("pedantic, both", `"pedantic":true,"subject_delete_marker_ttl":1000000000,"allow_msg_ttl":true,"allow_rollup_hdrs":true`, nil)
	}},
	{"the keys of a bucket expire, and who watches them sees that", func(t *testing.T, s *site) {
		t.Parallel()
		js := s.client(t)
		kv, bucket := s.bucket(t, func(c *jetstream.KeyValueConfig) { c.LimitMarkerTTL, c.History = marks, 5 })
		is, err := kv.Status(within(t))
		testutil.Must(t, err)
		equal(t, "the life of markers", is.LimitMarkerTTL(), marks)
		w, err := kv.WatchAll(within(t))
		testutil.Must(t, err)
		defer func() { testutil.Must(t, w.Stop()) }()
		sees(t, w, "all")
		_, err = kv.Create(within(t), "session", []byte("1"), jetstream.KeyTTL(3*time.Second))
		testutil.Must(t, err)
		put(t, kv, "user", "1")
		sees(t, w, "session=1", "user=1", "session KeyValuePurgeOp")
		_, err = kv.Get(within(t), "session")
		equal(t, "it is gone", errors.Is(err, jetstream.ErrKeyNotFound), true)
		_, err = kv.Create(within(t), "session", []byte("2"), jetstream.KeyTTL(3*time.Second))
		testutil.Must(t, err)
		sees(t, w, "session=2", "session KeyValuePurgeOp")
		testutil.Must(t, kv.Purge(within(t), "user", jetstream.PurgeTTL(time.Second)))
		sees(t, w, "user KeyValuePurgeOp")
		testutil.Eventually(t, "an empty bucket", func() error {
			if n := values(t, kv); n > 0 {
				return fmt.Errorf("%d messages", n)
			}
			return nil
		})
		stream, err := js.Stream(within(t), "KV_"+bucket)
		testutil.Must(t, err)
		last, err := stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "the end of a purge leaves no marker", last.State.LastSeq, uint64(6))
	}},
	{"what expires was deleted or purged before", func(t *testing.T, s *site) {
		t.Parallel()
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = marks })
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		withTTL(t, js, name+".a", "3", "1")
		withTTL(t, js, name+".b", "3", "2")
		withTTL(t, js, name+".c", "3", "3")
		testutil.Must(t, stream.DeleteMsg(within(t), 1))
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSubject(name+".b")))
		marked(t, js, name, name+".c")
		expire(t, js, name, 4)
		is, err := stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "messages", is.State.Msgs, uint64(0))
		equal(t, "one marker", is.State.LastSeq, uint64(4))
	}},
}
