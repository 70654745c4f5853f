package compat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// together publishes the messages of one atomic batch.
type together struct {
	t    *testing.T
	js   jetstream.JetStream
	name string // of the stream
	id   string
	next int
}

func (b *together) message(on, data, commit string, headers ...string) *nats.Msg {
	b.next++
	m := nats.NewMsg(b.name + on)
	m.Data = []byte(data)
	m.Header.Set("Nats-Batch-Id", b.id)
	m.Header.Set("Nats-Batch-Sequence", fmt.Sprint(b.next))
	if commit != "" {
		m.Header.Set("Nats-Batch-Commit", commit)
	}
	for _, h := range headers {
		key, value, _ := strings.Cut(h, ": ")
		m.Header.Set(key, value)
	}
	return m
}

// add publishes the next message, and expects an answer; see batchAnswer.
func (b *together) add(what, on, data, commit, want string, headers ...string) {
	b.t.Helper()
	equal(b.t, what, batchAnswer(b.t, b.js, b.message(on, data, commit, headers...)), want)
}

// batchAnswer publishes a message and returns "" for an empty answer, the code of a refusal, or
// "sequence/count id".
func batchAnswer(t *testing.T, js jetstream.JetStream, m *nats.Msg) string {
	t.Helper()
	r, err := js.Conn().RequestMsgWithContext(within(t), m)
	testutil.Must(t, err)
	if len(r.Data) == 0 {
		return ""
	}
	var ack struct {
		Error *jetstream.APIError
		Seq   uint64
		Batch string
		Count int
	}
	testutil.Must(t, json.Unmarshal(r.Data, &ack))
	if ack.Error != nil {
		return fmt.Sprint(ack.Error.ErrorCode)
	}
	return strings.TrimSpace(fmt.Sprintf("%d/%d %s", ack.Seq, ack.Count, ack.Batch))
}

// inStream returns "sequence subject data" of all messages.
func inStream(t *testing.T, js jetstream.JetStream, name string) (all []string) {
	t.Helper()
	stream, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	is, err := stream.Info(within(t))
	testutil.Must(t, err)
	for seq := uint64(1); seq <= is.State.LastSeq; seq++ {
		m, err := stream.GetMsg(within(t), seq)
		testutil.Must(t, err)
		all = append(all, fmt.Sprintf("%d %s %s", m.Sequence, strings.TrimPrefix(m.Subject, name), m.Data))
	}
	return all
}

var batchStories = []story{
	{"a batch is stored when it is committed", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true })
		is, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "allow_atomic", is.CachedInfo().Config.AllowAtomicPublish, true)
		one := together{t: t, js: js, name: name, id: "one"}
		two := together{t: t, js: other, name: name, id: "two"}
		one.add("the first", ".a", "1", "", "")
		two.add("the first of another", ".a", "2", "", "", "Nats-Expected-Last-Sequence: 1")
		one.add("the second", ".b", "1", "", "")
		fill(t, other, name+".c", 1)
		equalTexts(t, "before", inStream(t, js, name), []string{"1 .c 1"})
		two.add("a commit", ".b", "2", "1", "3/2 two", "Nats-Expected-Last-Subject-Sequence: 0")
		one.add("the third", ".a", "3", "", "")
		one.add("a commit behind the end", ".a", "no", "eob", "6/3 one")
		equalTexts(t, "after", inStream(t, other, name), []string{"1 .c 1", "2 .a 2", "3 .b 2", "4 .a 1", "5 .b 1", "6 .a 3"})
		m, err := is.GetMsg(within(t), 5)
		testutil.Must(t, err)
		equal(t, "id", m.Header.Get("Nats-Batch-Id"), "one")
		equal(t, "sequence", m.Header.Get("Nats-Batch-Sequence"), "2")
		equal(t, "commit", m.Header.Get("Nats-Batch-Commit"), "")
		m, err = is.GetMsg(within(t), 6)
		testutil.Must(t, err)
		equal(t, "commit", m.Header.Get("Nats-Batch-Commit"), "1")
		alone := together{t: t, js: js, name: name, id: "one"}
		alone.add("one message", ".a", "4", "1", "7/1 one", "Nats-Required-Api-Level: 2", "Mine: yes")
		m, err = is.GetMsg(within(t), 7)
		testutil.Must(t, err)
		equal(t, "a header", m.Header.Get("Mine"), "yes")
		equal(t, "the level is not stored", len(m.Header["Nats-Required-Api-Level"]), 0)
		ended := together{t: t, js: js, name: name, id: "ended"}
		ended.add("a level", ".a", "5", "", "", "Nats-Required-Api-Level: 2")
		ended.add("a commit behind it", ".a", "no", "eob", "8/1 ended", "Nats-Required-Api-Level: 2")
		m, err = is.GetMsg(within(t), 8)
		testutil.Must(t, err)
		equal(t, "commit", m.Header.Get("Nats-Batch-Commit"), "1")
		equal(t, "nor is that one", len(m.Header["Nats-Required-Api-Level"]), 0)
	}},
	{"a batch that goes on at another server is incomplete", func(t *testing.T, s *site) {
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true })
		b := together{t: t, js: s.client(t), name: name, id: "one"}
		b.add("the first", ".a", "1", "", "")
		if len(s.urls) == 1 {
			return
		}
		b.js = s.client(t)
		b.add("the second", ".a", "1", "1", "10176")
	}},
	{"the messages of a batch are counted", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish, c.MaxMsgSize = true, 1000 })
		sub, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED." + name)
		testutil.Must(t, err)
		settle(t, js.Conn(), s.client(t).Conn(), s.client(t).Conn(), s.client(t).Conn())
		abandoned := func(id, why string) {
			t.Helper()
			is := event(t, sub, "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED."+name)
			equal(t, "type", is["type"], any("io.nats.jetstream.advisory.v1.stream_batch_abandoned"))
			equal(t, "stream", is["stream"], any(name))
			equal(t, "batch", is["batch"], any(id))
			equal(t, "reason", is["reason"], any(why))
		}
		b := together{t: t, js: js, name: name, id: "gap"}
		b.add("the first", ".a", "1", "", "")
		b.next++
		b.add("a gap", ".a", "3", "", "10176")
		abandoned("gap", "incomplete")
		b.add("behind it", ".a", "4", "1", "10176")
		b = together{t: t, js: js, name: name, id: "twice"}
		b.add("the first", ".a", "1", "", "")
		b.next--
		b.add("the first again", ".a", "1", "", "10176")
		abandoned("twice", "incomplete")
		b = together{t: t, js: js, name: name, id: "empty"}
		b.add("nothing", ".a", "1", "eob", "10176")
		abandoned("empty", "incomplete")
		b = together{t: t, js: js, name: name, id: "later", next: 1}
		b.add("not the first", ".a", "2", "", "10176")
		b.next = 1000
		b.add("much later", ".a", "1001", "", "10199")
		b = together{t: t, js: js, name: name, id: strings.Repeat("x", 65)}
		b.add("a long id", ".a", "1", "", "10179")
		b = together{t: t, js: js, name: name, id: strings.Repeat("y", 64)}
		b.add("the longest id", ".a", "1", "", "")
		b.add("an unknown commit", ".a", "1", "0", "10200")
		b.add("behind it", ".a", "1", "1", "10176")
		b = together{t: t, js: js, name: name, id: "level"}
		b.add("the first", ".a", "1", "", "", "Nats-Required-Api-Level: 2")
		b.add("a high level", ".a", "1", "", "10185", "Nats-Required-Api-Level: 99")
		abandoned("level", "unsupported")
		b = together{t: t, js: js, name: name, id: "size"}
		b.add("the first", ".a", "1", "", "")
		b.add("a large one", ".a", strings.Repeat("x", 1000), "", "10054")
		b.add("behind it", ".a", "1", "1", "10176")
		abandoned("size", "incomplete")
		b = together{t: t, js: js, name: name, id: "none"}
		m := b.message(".a", "1", "")
		m.Header.Del("Nats-Batch-Sequence")
		equal(t, "no sequence", batchAnswer(t, js, m), "10175")
		b = together{t: t, js: js, name: name, id: "large"}
		for range 1000 {
			testutil.Must(t, js.Conn().PublishMsg(b.message(".a", "1", "")))
		}
		b.add("one more", ".a", "1001", "1", "10199")
		abandoned("large", "large")
		b = together{t: t, js: js, name: name, id: "largest"}
		for range 1000 {
			testutil.Must(t, js.Conn().PublishMsg(b.message(".a", "1", "")))
		}
		b.add("the end of it", ".a", "", "eob", "1000/1000 largest")
	}},
	{"only a stream that allows batches takes them", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		b := together{t: t, js: js, name: name, id: "one"}
		b.add("the first", ".a", "1", "", "10174")
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowAtomicPublish: true}
		_, err := js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		testutil.Eventually(t, "each server to know", func() error {
			b := together{t: t, js: js, name: name, id: "two"}
			if got := batchAnswer(t, js, b.message(".a", "1", "1")); got != "1/1 two" {
				return fmt.Errorf("answered %s", got)
			}
			return nil
		})
		config.AllowAtomicPublish = false
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
	}},
	{"a batch is judged as a whole", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish, c.AllowRollup = true, true })
		_, err := js.Publish(within(t), name+".a", []byte("1"), jetstream.WithMsgID("known"))
		testutil.Must(t, err)
		fill(t, js, name+".b", 1)
		refuses := func(what, want string, first, second string) {
			t.Helper()
			b := together{t: t, js: js, name: name, id: what}
			for i, of := range []string{first, second} {
				on, header, _ := strings.Cut(of, " ")
				var headers []string
				if header != "" {
					headers = []string{header}
				}
				answer := batchAnswer(t, js, b.message(on, "x", []string{"", "1"}[i], headers...))
				equal(t, what, answer, []string{"", want}[i])
			}
		}
		refuses("a wrong last sequence", "10071", ".a Nats-Expected-Last-Sequence: 1", ".a")
		refuses("a last sequence behind the first", "10164", ".a", ".a Nats-Expected-Last-Sequence: 3")
		refuses("a wrong last sequence behind the first", "10071", ".a", ".a Nats-Expected-Last-Sequence: 2")
		refuses("a wrong last sequence of a subject", "10071", ".a", ".b Nats-Expected-Last-Subject-Sequence: 1")
		refuses("a subject of the batch", "10164", ".a", ".a Nats-Expected-Last-Subject-Sequence: 1")
		refuses("a last id", "10177", ".a Nats-Expected-Last-Msg-Id: known", ".a")
		refuses("a known id", "10201", ".a", ".a Nats-Msg-Id: known")
		refuses("another stream", "10060", ".a", ".a Nats-Expected-Stream: other")
		refuses("a TTL", "10166", ".a", ".a Nats-TTL: 1h")
		refuses("a late rollup", "10111", ".a", ".a Nats-Rollup: sub")
		refuses("a late rollup of all", "10111", ".a", ".b Nats-Rollup: all")
		refuses("a counter", "10168", ".a", ".b Nats-Incr: 1")
		equalTexts(t, "nothing of them", inStream(t, js, name), []string{"1 .a 1", "2 .b 1"})
		b := together{t: t, js: js, name: name, id: "twice"}
		b.add("an id", ".a", "1", "", "", "Nats-Msg-Id: new")
		b.add("the same id", ".a", "1", "1", "10201", "Nats-Msg-Id: new")
		b = together{t: t, js: js, name: name, id: "kept"}
		b.add("a last sequence", ".a", "3", "", "", "Nats-Expected-Last-Sequence: 2")
		b.add("an id", ".c", "4", "", "", "Nats-Msg-Id: new")
		b.add("a last sequence of a subject", ".b", "5", "", "", "Nats-Expected-Last-Subject-Sequence: 2")
		b.add("an id", ".d", "6", "1", "6/4 kept", "Nats-Msg-Id: newer")
		ack, err := js.Publish(within(t), name+".a", []byte("1"), jetstream.WithMsgID("new"))
		testutil.Must(t, err)
		equal(t, "a duplicate", ack.Duplicate, true)
		equal(t, "of", ack.Sequence, uint64(4))
	}},
	{"a stream has at most 50 open batches", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true })
		var all []together
		for i := range 50 {
			b := together{t: t, js: js, name: name, id: fmt.Sprint("b", i)}
			b.add("the first", ".a", "1", "", "")
			all = append(all, b)
		}
		b := together{t: t, js: js, name: name, id: "more"}
		b.add("one more", ".a", "1", "", "10210")
		all[7].add("a commit", ".a", "2", "1", "2/2 b7")
		b = together{t: t, js: js, name: name, id: "more"}
		b.add("now", ".a", "1", "1", "3/1 more")
		for i := range all {
			if i != 7 {
				all[i].add("a commit", ".a", "2", "1", fmt.Sprintf("%d/2 b%d", 3+2*(i+1-min(i/8, 1)), i))
			}
		}
	}},
}
