package compat

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// hears subscribes to a subject, and waits until clients of all brokers reach the subscription.
func (s *site) hears(t *testing.T, subject string) *nats.Subscription {
	t.Helper()
	nc := s.client(t).Conn()
	sub, err := nc.SubscribeSync(subject)
	testutil.Must(t, err)
	settle(t, nc, s.client(t).Conn(), s.client(t).Conn(), s.client(t).Conn())
	return sub
}

// republished receives the next message, and returns it as "subject data: subject sequence last"
// with what its headers say.
func republished(t *testing.T, sub *nats.Subscription, stream string) string {
	t.Helper()
	m, err := sub.NextMsg(patience)
	testutil.Must(t, err)
	equal(t, "the stream of "+m.Subject, m.Header.Get("Nats-Stream"), stream)
	if at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")); err != nil || time.Since(at).Abs() > time.Minute || at.Location() != time.UTC {
		t.Errorf("the time of %s: %v, %v", m.Subject, at, err)
	}
	return fmt.Sprintf("%s %s: %s %s %s", m.Subject, m.Data, m.Header.Get("Nats-Subject"), m.Header.Get("Nats-Sequence"), m.Header.Get("Nats-Last-Sequence"))
}

var republishStories = []story{
	{"a stream publishes again what it stores", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.name("s")
		sub := s.hears(t, name+"-again.>")
		_, err := js.CreateStream(within(t), jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, RePublish: &jetstream.RePublish{Source: name + ".*.in", Destination: name + "-again.{{wildcard(1)}}.x"},
		})
		testutil.Must(t, err)
		fill(t, js, name+".a.in", 2)
		fill(t, js, name+".a.other", 1)
		fill(t, s.client(t), name+".b.in", 1)
		m := nats.NewMsg(name + ".a.in")
		m.Header.Set("Mine", "yes")
		m.Header.Set("Nats-Msg-Id", "one")
		m.Data = []byte("3")
		for range 2 { // the second is a duplicate, and isn't stored
			_, err = js.PublishMsg(within(t), m)
			testutil.Must(t, err)
		}
		fill(t, js, name+".c.in", 1)
		again := name + "-again."
		for _, want := range []string{
			again + "a.x 1: " + name + ".a.in 1 0", again + "a.x 2: " + name + ".a.in 2 1", again + "b.x 1: " + name + ".b.in 4 0",
		} {
			equal(t, "republished", republished(t, sub, name), want)
		}
		last, err := sub.NextMsg(patience)
		testutil.Must(t, err)
		want := nats.Header{"Mine": {"yes"}, "Nats-Msg-Id": {"one"}, "Nats-Stream": {name}, "Nats-Subject": {name + ".a.in"}, "Nats-Sequence": {"5"}, "Nats-Last-Sequence": {"2"}, "Nats-Time-Stamp": last.Header["Nats-Time-Stamp"]}
		equal(t, "headers", fmt.Sprint(last.Header), fmt.Sprint(want))
		equal(t, "data", string(last.Data), "3")
		equal(t, "republished", republished(t, sub, name), again+"c.x 1: "+name+".c.in 6 0")
	}},
	{"only headers are published again", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.name("s")
		sub := s.hears(t, name+"-again.>")
		stream, err := js.CreateStream(within(t), jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, RePublish: &jetstream.RePublish{Destination: name + "-again.>", HeadersOnly: true},
		})
		testutil.Must(t, err)
		equal(t, "the source", stream.CachedInfo().Config.RePublish.Source, ">")
		for _, size := range []int{0, 512} {
			_, err := js.Publish(within(t), name+".a", make([]byte, size))
			testutil.Must(t, err)
			m, err := sub.NextMsg(patience)
			testutil.Must(t, err)
			equal(t, "subject", m.Subject, name+"-again."+name+".a")
			equal(t, "size", m.Header.Get("Nats-Msg-Size"), fmt.Sprint(size))
			equal(t, "data", len(m.Data), 0)
		}
	}},
	{"the last sequence is known although the message is gone", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.name("s")
		sub := s.hears(t, name+"-again.>")
		stream, err := js.CreateStream(within(t), jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, MaxMsgsPerSubject: 1, AllowRollup: true, RePublish: &jetstream.RePublish{Destination: name + "-again.>"},
		})
		testutil.Must(t, err)
		fill(t, js, name+".a", 3) // each removes the one before
		fill(t, js, name+".b", 1)
		testutil.Must(t, stream.DeleteMsg(within(t), 3))
		fill(t, js, name+".a", 1)
		m := nats.NewMsg(name + ".a")
		m.Header.Set("Nats-Rollup", "all")
		_, err = js.PublishMsg(within(t), m)
		testutil.Must(t, err)
		fill(t, js, name+".b", 1)
		a, b := name+".a", name+".b"
		for _, want := range []string{"1: " + a + " 1 0", "2: " + a + " 2 1", "3: " + a + " 3 2", "1: " + b + " 4 0", "1: " + a + " 5 0", ": " + a + " 6 5", "1: " + b + " 7 0"} {
			_, got, _ := strings.Cut(republished(t, sub, name), " ")
			equal(t, "republished", got, want)
		}
	}},
	{"another stream stores what is published again", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.name("s")
		sub := s.hears(t, name+".third.>")
		for i, to := range []string{"second", "third"} {
			from := []string{"first", "second"}[i]
			_, err := js.CreateStream(within(t), jetstream.StreamConfig{
				Name: name + from, Subjects: []string{name + "." + from + ".*"}, RePublish: &jetstream.RePublish{Source: name + "." + from + ".*", Destination: name + "." + to + ".$1"},
			})
			testutil.Must(t, err)
		}
		fill(t, js, name+".first.a", 3)
		for i := range 3 {
			m, err := sub.NextMsg(patience)
			testutil.Must(t, err)
			equal(t, "data", string(m.Data), fmt.Sprint(i+1))
			equal(t, "the streams", fmt.Sprint(m.Header["Nats-Stream"]), fmt.Sprint([]string{name + "first", name + "second"}))
			equal(t, "the sequences", fmt.Sprint(m.Header["Nats-Sequence"]), fmt.Sprint([]int{i + 1, i + 1}))
		}
		second, err := js.Stream(within(t), name+"second")
		testutil.Must(t, err)
		last, err := second.GetLastMsgForSubject(within(t), name+".second.a")
		testutil.Must(t, err)
		equal(t, "what the second stream has", string(last.Data), "3")
	}},
	{"another stream stores a batch and a copy that are published again", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.name("s")
		for _, c := range []jetstream.StreamConfig{
			{Name: name + "origin", Subjects: []string{name + ".origin"}},
			{Name: name + "first", Subjects: []string{name + ".first"}, AllowAtomicPublish: true, RePublish: &jetstream.RePublish{Source: name + ".*", Destination: name + ".copy.{{wildcard(1)}}"},
				Sources: []*jetstream.StreamSource{{Name: name + "origin"}}},
			{Name: name + "second", Subjects: []string{name + ".copy.*"}},
		} {
			_, err := js.CreateStream(within(t), c)
			testutil.Must(t, err)
		}
		fill(t, js, name+".origin", 1)
		for i, commit := range []string{"", "1"} {
			m := nats.NewMsg(name + ".first")
			m.Header.Set("Nats-Batch-Id", "x")
			m.Header.Set("Nats-Batch-Sequence", fmt.Sprint(i+1))
			if commit != "" {
				m.Header.Set("Nats-Batch-Commit", commit)
			}
			_, err := js.Conn().RequestMsgWithContext(within(t), m)
			testutil.Must(t, err)
		}
		second, err := js.Stream(within(t), name+"second")
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "all are stored", func() bool {
			info, err := second.Info(within(t))
			return err == nil && info.State.Msgs == 3
		})
	}},
	{"streams that publish to each other come to an end", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.name("s")
		for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
			_, err := js.CreateStream(within(t), jetstream.StreamConfig{
				Name: name + way[0], Subjects: []string{name + "." + way[0]}, RePublish: &jetstream.RePublish{Destination: name + "." + way[1], Source: name + "." + way[0]},
			})
			testutil.Must(t, err)
		}
		sub := s.hears(t, name+".*")
		fill(t, js, name+".a", 2)
		var got []string
		for range 6 {
			m, err := sub.NextMsg(patience)
			testutil.Must(t, err)
			got = append(got, fmt.Sprint(m.Header["Nats-Stream"]))
		}
		slices.Sort(got)
		both := fmt.Sprint([]string{name + "a", name + "b"})
		equal(t, "messages", fmt.Sprint(got), fmt.Sprint([]string{"[]", "[]", both, both, "[" + name + "a]", "[" + name + "a]"}))
		if m, err := sub.NextMsg(50 * time.Millisecond); err == nil {
			t.Errorf("another message comes: %v", m.Header)
		}
	}},
	{"publishing again begins and ends with an update", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.name("s")
		sub := s.hears(t, name+"-again.>")
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
		_, err := js.CreateStream(within(t), config)
		testutil.Must(t, err)
		fill(t, other, name+".a", 2)
		config.RePublish = &jetstream.RePublish{Source: ">", Destination: name + "-again.>"}
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		fill(t, other, name+".a", 1)
		config.RePublish = nil
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		fill(t, other, name+".a", 1)
		config.RePublish = &jetstream.RePublish{Source: ">", Destination: name + "-again.b.>"}
		_, err = other.UpdateStream(within(t), config)
		testutil.Must(t, err)
		fill(t, js, name+".a", 1)
		equal(t, "republished", republished(t, sub, name), name+"-again."+name+".a 1: "+name+".a 3 2")
		equal(t, "republished", republished(t, sub, name), name+"-again.b."+name+".a 1: "+name+".a 5 4")
	}},
	{"impossible ways to publish again are refused", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.name("s")
		moved := &jetstream.SubjectTransformConfig{Source: name + ".>", Destination: name + "-moved.>"}
		const cycle, invalid = "republish destination forms a cycle", "not valid"
		for _, test := range []struct {
			again     jetstream.RePublish
			transform *jetstream.SubjectTransformConfig
			says      string
		}{
			{jetstream.RePublish{Destination: ">"}, nil, cycle},
			{jetstream.RePublish{Source: name + ".a", Destination: name + ".b"}, nil, cycle},
			{jetstream.RePublish{Source: "elsewhere", Destination: name + ".b"}, nil, cycle},
			{jetstream.RePublish{Source: name + ".*", Destination: name + ".*"}, nil, cycle},
			{jetstream.RePublish{Source: name + ".>", Destination: "x"}, nil, invalid},
			{jetstream.RePublish{Source: name + ".*", Destination: "x.$2"}, nil, invalid},
			{jetstream.RePublish{Source: "a..b", Destination: "x"}, nil, invalid},
			{jetstream.RePublish{Destination: "x.{{nothing(1)}}.>"}, nil, invalid},
			{jetstream.RePublish{Source: name + ".>", Destination: ">"}, moved, cycle},
			{jetstream.RePublish{Destination: ">"}, &jetstream.SubjectTransformConfig{Source: name + ".a.>", Destination: name + "-moved.>"}, cycle},
		} {
			_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, RePublish: &test.again, SubjectTransform: test.transform})
			if number(err) != 10052 || !strings.Contains(err.Error(), test.says) {
				t.Errorf("from %q to %q: %v, want %s", test.again.Source, test.again.Destination, err, test.says)
			}
		}
		// What a transform has moved is published as it is.
		sub := s.hears(t, name+"-moved.>")
		stream, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, RePublish: &jetstream.RePublish{Destination: ">"}, SubjectTransform: moved})
		testutil.Must(t, err)
		equal(t, "the source", stream.CachedInfo().Config.RePublish.Source, name+"-moved.>")
		equal(t, "the destination", stream.CachedInfo().Config.RePublish.Destination, name+"-moved.>")
		fill(t, js, name+".a", 1)
		equal(t, "republished", republished(t, sub, name), name+"-moved.a 1: "+name+"-moved.a 1 0")
	}},
	{"a bucket publishes its changes", func(t *testing.T, s *site) {
		name := s.name("live")
		sub := s.hears(t, name+".>")
		kv, bucket := s.bucket(t, func(c *jetstream.KeyValueConfig) {
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: name + ".>"}
		})
		put(t, kv, "a", 1, 2)
		testutil.Must(t, kv.Delete(within(t), "a"))
		put(t, kv, "b", 1)
		testutil.Must(t, kv.Purge(within(t), "a"))
		key := "$KV." + bucket + "."
		for i, want := range []string{"1: " + key + "a 1 0", "2: " + key + "a 2 1", ": " + key + "a 3 2", "1: " + key + "b 4 0", ": " + key + "a 5 3"} {
			_, got, _ := strings.Cut(republished(t, sub, "KV_"+bucket), " ")
			equal(t, fmt.Sprint("change ", i), got, want)
		}
	}},
}
