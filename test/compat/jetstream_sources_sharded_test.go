package compat

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// declare asks a broker for a Topic by our own API until it is made and served.
func declare(t *testing.T, js jetstream.JetStream, name, request string) {
	t.Helper()
	testutil.Eventually(t, name+" is made", func() error {
		m, err := js.Conn().Request("$CARILLON.API.TOPIC.CREATE."+name, []byte(request), patience)
		if err == nil && strings.Contains(string(m.Data), `"error"`) {
			err = fmt.Errorf("%s", m.Data)
		}
		if err == nil {
			_, err = js.Stream(within(t), name)
		}
		return err
	})
}

// every reads all messages of a stream, in order.
func every(t *testing.T, js jetstream.JetStream, name string) (all []jetstream.Msg) {
	t.Helper()
	last := lastOf(t, js, name)
	c, err := js.OrderedConsumer(within(t), name, jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	messages, err := c.Messages()
	testutil.Must(t, err)
	defer messages.Stop()
	for seq := uint64(0); seq < last; {
		m, err := messages.Next()
		testutil.Must(t, err)
		is, err := m.Metadata()
		testutil.Must(t, err)
		seq, all = is.Sequence.Stream, append(all, m)
	}
	return all
}

// shardBy is the shard of some text that decides it: 64-bit FNV-1a modulo the number of shards.
func shardBy(text string, shards uint64) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return int(h.Sum64() % shards)
}

// TestSourcesIntoSeveralShards: a Topic of four shards has a Topic of three, and a stream whose
// subjects are mapped, as its sources, and another Topic mirrors that of three, while the leaders
// change. Each message is in the shard of its subject, once, and in the order of its source. The
// mirror has all at their sequences.
func TestSourcesIntoSeveralShards(t *testing.T) {
	t.Parallel()
	const shards, messages = 4, 3000
	local, _ := brokers.Coordinator(t)
	s := &site{}
	volumes, members := make([]string, 3), make([]*member, 3)
	for i := range members {
		volumes[i] = t.TempDir()
		members[i] = startBroker(t, local, i, volumes[i])
		s.urls = append(s.urls, members[i].url())
	}
	early := s.stream(t, func(c *jetstream.StreamConfig) {
		c.Replicas, c.Subjects, c.Mirror = 3, nil, &jetstream.StreamSource{Name: "orders"}
	})
	js := s.client(t)
	declare(t, js, "all", `{"stream":{"subjects":["all.>"],"num_replicas":3,"sources":[{"name":"orders"},{"name":"bills","subject_transforms":[{"src":"bills.*.*","dest":"paid.{{wildcard(2)}}.{{wildcard(1)}}"}]}]},"shards":4,"partitionTokens":[2],"minInSync":2}`)
	declare(t, js, "orders", `{"stream":{"subjects":["orders.>"],"num_replicas":3},"shards":3}`)
	declare(t, js, "bills", `{"stream":{"subjects":["bills.>"],"num_replicas":3}}`)
	mirror, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: "copy", Replicas: 3, Mirror: &jetstream.StreamSource{Name: "orders"}})
	testutil.Must(t, err)
	again, err := js.CreateStream(within(t), mirror.CachedInfo().Config)
	testutil.Must(t, err)
	equal(t, "what is made once more", again.CachedInfo().Created, mirror.CachedInfo().Created)
	for round := range 4 {
		if round > 0 {
			members[round-1].stop()
			members[round-1] = startBroker(t, local, round-1, volumes[round-1])
		}
		js = (&site{urls: []string{members[round%3].url()}}).client(t)
		for i := range messages / 4 {
			n := round*messages/4 + i
			to := fmt.Sprintf("orders.%d.%d", n%50, n%3)
			if n%3 == 0 {
				to = fmt.Sprintf("bills.%d.%d", n%5, n%41)
			}
			testutil.Eventually(t, "a publish", func() error {
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
				defer stop()
				_, err := js.Publish(ctx, to, fmt.Append(nil, n))
				return err
			})
		}
	}
	origins := map[string]uint64{"bills": lastOf(t, js, "bills")}
	want := origins["bills"]
	for n := range 3 {
		name := fmt.Sprint("orders--", n)
		origins[name] = lastOf(t, js, name) // a publish may have been stored twice
		want += origins[name]
	}
	reach(t, js, "all", want)
	_, err = js.Publish(within(t), "all.x.y", nil)
	testutil.Must(t, err)
	copies := map[string][]uint64{}
	for n := range shards {
		name, last := fmt.Sprint("all--", n), map[string]uint64{}
		for _, m := range every(t, js, name) {
			tokens := strings.Split(m.Subject(), ".")
			if got := shardBy(tokens[1]+".", shards); got != n {
				t.Fatalf("%s is in shard %d, and belongs into %d", m.Subject(), n, got)
			}
			fields := strings.Split(m.Headers().Get("Nats-Stream-Source"), " ")
			if tokens[0] == "all" {
				continue
			}
			seq, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil || len(fields) != 6 || seq <= last[fields[0]] || (tokens[0] == "paid") != (fields[0] == "bills") {
				t.Fatalf("%s of shard %d is from %q, behind %d", m.Subject(), n, fields, last[fields[0]])
			}
			last[fields[0]] = seq
			copies[fields[0]] = append(copies[fields[0]], seq)
		}
		untroubled(t, js, name, func(is *jetstream.StreamInfo) error {
			if of := is.Sources; len(of) != 2 || of[0].Name != "orders" || of[1].Name != "bills" || of[0].Active < 0 || of[1].Active < 0 {
				return fmt.Errorf("its sources are %+v", of)
			}
			return nil
		})
	}
	equalTexts(t, "origins", slices.Sorted(maps.Keys(copies)), slices.Sorted(maps.Keys(origins)))
	for name, last := range origins {
		slices.Sort(copies[name])
		for i, seq := range copies[name] {
			if seq != uint64(i+1) {
				t.Fatalf("%d of %s is copied more than once, or one before it never", seq, name)
			}
		}
		equal(t, "copies of "+name, uint64(len(copies[name])), last)
	}
	countIntoShards(t, js)
	all, err := js.Stream(within(t), "all")
	testutil.Must(t, err)
	untroubled(t, js, "all", func(is *jetstream.StreamInfo) error {
		of := is.Sources
		if len(of) != 2 || of[0].Name != "orders" || of[1].Name != "bills" {
			return fmt.Errorf("the sources of the whole are %+v", of)
		}
		return cmp.Or(complete(of[0]), complete(of[1]))
	})
	m, err := all.GetLastMsgForSubject(within(t), "all.x.y")
	testutil.Must(t, err)
	equal(t, "what is published", m.Subject, "all.x.y")

	reach(t, js, "copy", want-origins["bills"])
	for n := range 3 {
		a, b := every(t, js, fmt.Sprint("orders--", n)), every(t, js, fmt.Sprint("copy--", n))
		equal(t, "messages of a shard", len(b), len(a))
		for i := range a {
			of, err := a[i].Metadata()
			testutil.Must(t, err)
			to, err := b[i].Metadata()
			testutil.Must(t, err)
			if a[i].Subject() != b[i].Subject() || string(a[i].Data()) != string(b[i].Data()) || of.Sequence.Stream != to.Sequence.Stream || !of.Timestamp.Equal(to.Timestamp) {
				t.Fatalf("the mirror of shard %d has %s at %d, and the shard %s at %d", n, b[i].Subject(), to.Sequence.Stream, a[i].Subject(), of.Sequence.Stream)
			}
		}
		shard, err := js.Stream(within(t), fmt.Sprint("copy--", n))
		testutil.Must(t, err)
		equal(t, "what a shard mirrors", shard.CachedInfo().Mirror.Name, fmt.Sprint("orders--", n))
	}
	untroubled(t, js, "copy", func(is *jetstream.StreamInfo) error {
		if of := is.Mirror; of == nil || of.Name != "orders" {
			return fmt.Errorf("the whole mirrors %+v", of)
		}
		return complete(is.Mirror)
	})
	whole, err := js.Stream(within(t), "copy")
	testutil.Must(t, err)
	_, err = whole.GetLastMsgForSubject(within(t), "orders.1.1")
	testutil.Must(t, err)
	late, err := js.Stream(within(t), early)
	testutil.Must(t, err)
	if of := late.CachedInfo(); of.Mirror == nil || of.Mirror.Error == nil || !strings.Contains(of.Mirror.Error.Description, "orders, which it mirrors, has 3") || of.State.LastSeq > 0 {
		t.Errorf("the mirror that was there before has %d messages, of %+v", of.State.LastSeq, of.Mirror)
	}
	_, err = js.CreateStream(within(t), jetstream.StreamConfig{Name: "mapped", Mirror: &jetstream.StreamSource{Name: "orders", SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "orders.>", Destination: "o.>"}}}})
	if err == nil || !strings.Contains(err.Error(), "former subjects") {
		t.Errorf("a mirror under other subjects: %v", err)
	}
	config := all.CachedInfo().Config
	config.Sources = append(config.Sources, &jetstream.StreamSource{Name: "copy", FilterSubject: "orders.1.*"})
	changed, err := js.UpdateStream(within(t), config)
	testutil.Must(t, err)
	equal(t, "sources after an update", len(changed.CachedInfo().Config.Sources), 3)
	config.Sources = append(config.Sources, &jetstream.StreamSource{Name: "all--2"})
	_, err = js.UpdateStream(within(t), config)
	equal(t, "a cycle through a shard", number(err), jetstream.ErrorCode(10052))
}

// untroubled awaits an info of a stream. While a leader of an origin or of a copy moves, as it does
// for seconds after a restart, an info says that its source is not served at the moment.
func untroubled(t *testing.T, js jetstream.JetStream, name string, right func(*jetstream.StreamInfo) error) {
	t.Helper()
	testutil.Eventually(t, "the info of "+name, func() error {
		s, err := js.Stream(within(t), name)
		if err != nil {
			return err
		}
		return right(s.CachedInfo())
	})
}

// complete returns what is wrong with a source of which all is copied.
func complete(of *jetstream.StreamSourceInfo) error {
	if of.Lag != 0 || of.Active < 0 || of.Error != nil {
		return fmt.Errorf("it is %+v", of)
	}
	return nil
}

// countIntoShards: a Topic of three shards adds up the counters of a stream.
func countIntoShards(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	declare(t, js, "counts", `{"stream":{"subjects":["counts.>"],"num_replicas":3,"allow_msg_counter":true}}`)
	declare(t, js, "sums", `{"stream":{"subjects":["sums.>"],"num_replicas":3,"allow_msg_counter":true,"sources":[{"name":"counts","subject_transforms":[{"src":"counts.*","dest":"sums.{{wildcard(1)}}"}]}]},"shards":3}`)
	const counters = 12
	for i := range 5 * counters {
		to := fmt.Sprint("counts.", i%counters)
		if i >= 4*counters {
			to = fmt.Sprint("sums.", i%counters)
		}
		m := nats.NewMsg(to)
		m.Header.Set("Nats-Incr", fmt.Sprint(i%counters))
		_, err := js.PublishMsg(within(t), m)
		testutil.Must(t, err)
	}
	reach(t, js, "sums", 5*counters)
	sums, err := js.Stream(within(t), "sums")
	testutil.Must(t, err)
	for n := range counters {
		m, err := sums.GetLastMsgForSubject(within(t), fmt.Sprint("sums.", n))
		testutil.Must(t, err)
		equal(t, "a sum", string(m.Data), fmt.Sprintf(`{"val":"%d"}`, 5*n))
	}
}
