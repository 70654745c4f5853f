package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// TestSourcesOutliveTheirLeaders: the leaders of a stream and of its source change again and again
// while 100,000 messages are copied. Each is there once, and in the order of the source. A mirror
// has them with their sequences and times. A stream adds up the counters of another one, and its
// own increments: each counts once.
func TestSourcesOutliveTheirLeaders(t *testing.T) {
	t.Parallel()
	const messages = 100_000
	local, _ := brokers.Coordinator(t)
	s := &site{}
	volumes, members := make([]string, 3), map[string]*member{}
	names := make([]string, 3)
	for i := range volumes {
		volumes[i], names[i] = t.TempDir(), fmt.Sprintf("compat-%d", i)
		m := startBroker(t, local, i, volumes[i])
		members[names[i]], s.urls = m, append(s.urls, m.url())
	}
	from := s.stream(t, func(c *jetstream.StreamConfig) { c.Replicas = 3 })
	into := s.stream(t, func(c *jetstream.StreamConfig) {
		c.Replicas, c.Subjects, c.Sources = 3, nil, []*jetstream.StreamSource{{Name: from}}
	})
	mirror := s.stream(t, func(c *jetstream.StreamConfig) {
		c.Replicas, c.Subjects, c.Mirror = 3, nil, &jetstream.StreamSource{Name: from, FilterSubject: from + ".x.3"}
	})
	counts := s.stream(t, func(c *jetstream.StreamConfig) { counting(c); c.Replicas = 3 })
	sum := s.stream(t, func(c *jetstream.StreamConfig) {
		counting(c)
		c.Replicas, c.Sources = 3, []*jetstream.StreamSource{total(counts)(c.Name)}
	})
	info := func(name string) (is *jetstream.StreamInfo) {
		t.Helper()
		testutil.Eventually(t, "the info of "+name, func() error {
			for _, m := range members {
				one := &site{urls: []string{m.url()}}
				stream, err := one.client(t).Stream(within(t), name)
				if err != nil {
					return err
				}
				is = stream.CachedInfo()
				break
			}
			if is.Cluster == nil || len(is.Cluster.Replicas) != 2 || !is.Cluster.Replicas[0].Current || !is.Cluster.Replicas[1].Current {
				return errors.New("not all of its replicas are in sync")
			}
			return nil
		})
		return is
	}
	change := func(of string) {
		t.Helper()
		leader := info(of).Cluster.Leader
		members[leader].stop()
		delete(members, leader)
		for i, name := range names {
			if name == leader {
				members[name] = startBroker(t, local, i, volumes[i])
			}
		}
	}
	publishing, stop := context.WithCancel(t.Context())
	defer stop()
	var publisher sync.WaitGroup
	defer publisher.Wait()
	nc, err := nats.Connect(strings.Join(s.urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	testutil.Must(t, err)
	defer nc.Close()
	publisher.Go(func() {
		for i := 0; publishing.Err() == nil; i++ { // some are lost, or come again
			if nc.Publish(fmt.Sprint(from, ".x.", i%7), fmt.Appendf(nil, "%d", i)) != nil || i%100 == 0 {
				one := nats.NewMsg(counts + ".x")
				one.Header.Set("Nats-Incr", "3")
				_ = nc.PublishMsg(one)
				if one.Subject = sum + ".all"; i%500 == 0 {
					_ = nc.PublishMsg(one)
				}
				_ = nc.FlushTimeout(time.Second)
				time.Sleep(time.Millisecond)
			}
		}
	})
	for n := 0; n < 3 || info(from).State.LastSeq < messages; n++ {
		change(into)
		change(from)
		change(mirror)
		change(counts)
		change(sum)
	}
	stop()
	publisher.Wait()
	var js jetstream.JetStream
	for _, m := range members {
		js = (&site{urls: []string{m.url()}}).client(t)
	}
	checkSum(t, js, counts, sum)
	var end jetstream.StreamState
	testutil.Eventually(t, "all are copied", func() error { // some may still be on their way to the source
		end = info(from).State
		if copy := info(into); copy.State.LastSeq != end.LastSeq || copy.State.Msgs != end.Msgs {
			return fmt.Errorf("the source has %+v, the copy %+v, %+v", end, copy.State, copy.Sources)
		}
		return nil
	})
	c, err := js.OrderedConsumer(within(t), into, jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	all, err := c.Messages()
	testutil.Must(t, err)
	defer all.Stop()
	began := time.Now()
	for seq := uint64(1); seq <= end.LastSeq; seq++ {
		m, err := all.Next()
		testutil.Must(t, err)
		if fields := strings.Split(m.Headers().Get("Nats-Stream-Source"), " "); len(fields) != 6 || fields[1] != fmt.Sprint(seq) {
			t.Fatalf("message %d is from %q", seq, fields)
		}
	}
	source, err := js.Stream(within(t), from)
	testutil.Must(t, err)
	selected, err := source.Info(within(t), jetstream.WithSubjectFilter(from+".x.3"))
	testutil.Must(t, err)
	count := selected.State.Subjects[from+".x.3"]
	reach(t, js, mirror, count)
	c, err = js.OrderedConsumer(within(t), mirror, jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	theirs, err := js.OrderedConsumer(within(t), from, jetstream.OrderedConsumerConfig{FilterSubjects: []string{from + ".x.3"}})
	testutil.Must(t, err)
	mine, err := c.Messages()
	testutil.Must(t, err)
	defer mine.Stop()
	want, err := theirs.Messages()
	testutil.Must(t, err)
	defer want.Stop()
	for i := range count {
		a, err := mine.Next()
		testutil.Must(t, err)
		b, err := want.Next()
		testutil.Must(t, err)
		is, err := a.Metadata()
		testutil.Must(t, err)
		was, err := b.Metadata()
		testutil.Must(t, err)
		if is.Sequence.Stream != was.Sequence.Stream || !is.Timestamp.Equal(was.Timestamp) || string(a.Data()) != string(b.Data()) {
			t.Fatalf("message %d of the mirror is %+v, of its stream %+v", i, is, was)
		}
	}
	t.Logf("read %d messages in %v", end.LastSeq, time.Since(began).Round(time.Millisecond))
}

// checkSum checks a stream with one counter, which adds up the one of another stream, each of whose
// messages added 3, and has increments of its own.
func checkSum(t *testing.T, js jetstream.JetStream, counts, sum string) {
	t.Helper()
	var end uint64
	testutil.Eventually(t, "all counters are copied", func() error {
		end = lastOf(t, js, counts) // some may still be on their way
		stream, err := js.Stream(within(t), sum)
		if err != nil {
			return err
		}
		m, err := stream.GetLastMsgForSubject(within(t), sum+".all")
		if err != nil {
			return err
		}
		if got, want := m.Header.Get("Nats-Counter-Sources"), fmt.Sprintf(`{%q:{%q:"%d"}}`, counts, counts+".x", 3*end); got != want {
			return fmt.Errorf("the sum has %s, and the origin %s", got, want)
		}
		return nil
	})
	c, err := js.OrderedConsumer(within(t), sum, jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	all, err := c.Messages()
	testutil.Must(t, err)
	defer all.Stop()
	copies, last := uint64(0), lastOf(t, js, sum)
	for seq := uint64(1); seq <= last; seq++ {
		m, err := all.Next()
		testutil.Must(t, err)
		if fields := strings.Split(m.Headers().Get("Nats-Stream-Source"), " "); len(fields) == 6 {
			if copies++; fields[1] != fmt.Sprint(copies) {
				t.Fatalf("message %d is from %q, behind %d copies", seq, fields, copies-1)
			}
		}
		if got, want := m.Headers().Get("Nats-Incr")+" "+string(m.Data()), fmt.Sprintf(`3 {"val":"%d"}`, 3*seq); got != want {
			t.Fatalf("message %d is %s, want %s", seq, got, want)
		}
	}
	if own := last - copies; copies != end || own == 0 {
		t.Errorf("%d messages of %d are copied, beside %d", copies, end, own)
	}
}

func lastOf(t *testing.T, js jetstream.JetStream, name string) (last uint64) {
	t.Helper()
	testutil.Eventually(t, "the info of "+name, func() error {
		stream, err := js.Stream(within(t), name)
		if err == nil {
			last = stream.CachedInfo().State.LastSeq
		}
		return err
	})
	return last
}

// TestASourceThatLostItsEndIsCopiedOn: the volume with the only copy of a source is rolled back.
// The stream that copies it keeps what the source has lost, and gets what it has stored there
// since.
func TestASourceThatLostItsEndIsCopiedOn(t *testing.T) {
	t.Parallel()
	local, _ := brokers.Coordinator(t)
	s := &site{}
	members, volumes := map[string]*member{}, map[string]string{}
	pages := map[string]string{}
	start := func(name string) *member {
		pages[name] = testutil.FreeAddress(t)
		return runBroker(t, broker.Config{Name: name, Data: volumes[name], Endpoints: local.Endpoints(), HTTP: broker.Address{Listen: pages[name]}})
	}
	for i := range 3 {
		name := fmt.Sprintf("compat-%d", i)
		volumes[name] = filepath.Join(t.TempDir(), "volume")
		members[name] = start(name)
		s.urls = append(s.urls, members[name].url())
	}
	from := s.stream(t, nil)
	leaderOf := func(name string) string {
		stream, err := s.client(t).Stream(within(t), name)
		testutil.Must(t, err)
		return stream.CachedInfo().Cluster.Leader
	}
	of := leaderOf(from)
	into := s.copies(t, &jetstream.StreamSource{Name: from})
	for leaderOf(into) == of { // with one replica each, both leaders stay
		into = s.copies(t, &jetstream.StreamSource{Name: from})
	}
	number := int(of[len(of)-1] - '0')
	client := func() jetstream.JetStream { // of a broker that stays
		return (&site{urls: []string{members[fmt.Sprintf("compat-%d", (number+1)%3)].url()}}).client(t)
	}
	js := client()
	publish := func(what string, n int) {
		t.Helper()
		for i := range n {
			testutil.Eventually(t, "a publish", func() error {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				_, err := js.Publish(ctx, from+".x", fmt.Appendf(nil, "%s%d", what, i), jetstream.WithMsgID(fmt.Sprint(what, i)))
				return err
			})
		}
	}
	restart := func(between func()) {
		t.Helper()
		members[of].stop()
		between()
		members[of] = start(of)
	}
	publish("a", 3)
	reach(t, js, into, 3)
	kept := filepath.Join(t.TempDir(), "kept")
	restart(func() { testutil.Must(t, os.CopyFS(kept, os.DirFS(volumes[of]))) })
	publish("lost", 4)
	reach(t, js, into, 7)
	restart(func() {
		testutil.Must(t, os.RemoveAll(volumes[of]))
		testutil.Must(t, os.CopyFS(volumes[of], os.DirFS(kept)))
	})
	publish("new", 2)
	reach(t, js, into, 9)
	answer := ask(t, js, "$JS.API.STREAM.INFO."+into, "")
	why := fmt.Sprint(at(answer["sources"].([]any)[0].(map[string]any), "error", "description"))
	if !strings.Contains(why, "lost its messages from 4 up to 7") {
		t.Errorf("the error is %s", why)
	}
	publish("more", 4)
	reach(t, js, into, 13)
	var want []string
	for _, m := range []string{"a0", "a1", "a2", "lost0", "lost1", "lost2", "lost3", "new0", "new1", "more0", "more1", "more2", "more3"} {
		want = append(want, from+".x "+m)
	}
	equalTexts(t, "copies", copied(t, js, into), want)
	stream, err := js.Stream(within(t), into)
	testutil.Must(t, err)
	testutil.Eventually(t, "its leader's metrics", func() error { // they may be counted behind the messages
		got, err := http.Get("http://" + pages[stream.CachedInfo().Cluster.Leader] + "/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = got.Body.Close() }()
		metrics, err := io.ReadAll(got.Body)
		if err != nil {
			return err
		}
		for _, line := range []string{"carillon_sources_failing 0", "carillon_source_lag_messages 0", "carillon_source_losses_total 1", "carillon_source_messages_total 13"} {
			if !strings.Contains(string(metrics), "\n"+line+"\n") {
				return errors.New("they lack " + line)
			}
		}
		return nil
	})
}

// TestATopicOfSeveralShardsIsCopied: into one stream, while the leaders of both change. Each
// message is there once, and those of a shard are in order. The info has one source.
func TestATopicOfSeveralShardsIsCopied(t *testing.T) {
	t.Parallel()
	const shards, messages = 3, 3000
	local, _ := brokers.Coordinator(t)
	s := &site{}
	volumes, members := make([]string, 3), make([]*member, 3)
	for i := range members {
		volumes[i] = t.TempDir()
		members[i] = startBroker(t, local, i, volumes[i])
		s.urls = append(s.urls, members[i].url())
	}
	into := s.stream(t, func(c *jetstream.StreamConfig) {
		c.Replicas, c.Subjects, c.Sources = 3, nil, []*jetstream.StreamSource{{Name: "orders", FilterSubject: "orders.*"}}
	})
	testutil.EventuallyTrue(t, "the topic is made", func() bool {
		m, err := s.client(t).Conn().Request("$CARILLON.API.TOPIC.CREATE.orders", fmt.Appendf(nil, `{"stream":{"subjects":["orders.>"],"num_replicas":3},"shards":%d}`, shards), patience)
		return err == nil && !strings.Contains(string(m.Data), `"error"`)
	})
	var js jetstream.JetStream
	for round := range 4 {
		if round > 0 {
			members[round-1].stop()
			members[round-1] = startBroker(t, local, round-1, volumes[round-1])
		}
		js = (&site{urls: []string{members[round%3].url()}}).client(t)
		for i := range messages / 4 {
			n := round*messages/4 + i
			testutil.Eventually(t, "a publish", func() error {
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
				defer stop()
				_, err := js.Publish(ctx, fmt.Sprint("orders.", n%50), fmt.Append(nil, n))
				return err
			})
		}
	}
	want := uint64(0)
	for n := range shards {
		want += lastOf(t, js, fmt.Sprint("orders--", n)) // a publish may have been stored twice
	}
	reach(t, js, into, want)
	untroubled(t, js, into, func(is *jetstream.StreamInfo) error {
		if of := is.Sources; len(of) != 1 || of[0].Name != "orders" || of[0].FilterSubject != "orders.*" || of[0].Active < 0 {
			return fmt.Errorf("its sources are %+v", of)
		}
		return nil
	})
	c, err := js.OrderedConsumer(within(t), into, jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	all, err := c.Messages()
	testutil.Must(t, err)
	defer all.Stop()
	come := map[string]int{}
	for range want {
		m, err := all.Next()
		testutil.Must(t, err)
		fields := strings.Split(m.Headers().Get("Nats-Stream-Source"), " ")
		if come[fields[0]]++; len(fields) != 6 || fields[1] != fmt.Sprint(come[fields[0]]) {
			t.Fatalf("message %d of its shard is from %q", come[fields[0]], fields)
		}
	}
	equal(t, "shards that are copied", len(come), shards)
}
