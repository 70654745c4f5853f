package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// The operations of a fast batch.
const (
	start = iota
	more
	commit
	behind // the commit behind the last message
	ping
)

// fastBatch publishes the messages of one fast batch.
type fastBatch struct {
	t    *testing.T
	nc   *nats.Conn
	sub  *nats.Subscription
	name string // of the stream
	id   string
	form string // of replies, for a sequence and an operation
	next int
}

// fastBatch begins a fast batch, without a message.
func (s *site) fastBatch(t *testing.T, js jetstream.JetStream, name, id string, flow int, gap string) *fastBatch {
	t.Helper()
	inbox := nats.NewInbox()
	sub, err := js.Conn().SubscribeSync(inbox + ".>")
	testutil.Must(t, err)
	return &fastBatch{t: t, nc: js.Conn(), sub: sub, name: name, id: id, form: fmt.Sprintf("%s.%s.%d.%s.%%d.%%d.$FI", inbox, id, flow, gap)}
}

// send publishes a message with a sequence.
func (q *fastBatch) send(sequence, op int, on, data string, headers ...string) {
	q.t.Helper()
	q.next = sequence
	m := nats.NewMsg(q.name + on)
	m.Reply, m.Data = fmt.Sprintf(q.form, sequence, op), []byte(data)
	for _, h := range headers {
		key, value, _ := strings.Cut(h, ": ")
		m.Header.Set(key, value)
	}
	testutil.Must(q.t, q.nc.PublishMsg(m))
}

// add publishes the next message.
func (q *fastBatch) add(on, data string, headers ...string) {
	q.t.Helper()
	op := more
	if q.next == 0 {
		op = start
	}
	q.send(q.next+1, op, on, data, headers...)
}

// answer returns the next answer: "ack sequence/messages", "gap expected/sequence", "err
// sequence/code", the code of a refusal, or "sequence/count id".
func (q *fastBatch) answer() string {
	q.t.Helper()
	m, err := q.sub.NextMsg(patience)
	testutil.Must(q.t, err)
	var is struct {
		Type  string
		Seq   uint64
		Msgs  int
		Last  uint64 `json:"last_seq"`
		Error *jetstream.APIError
		Batch string
		Count int
	}
	testutil.Must(q.t, json.Unmarshal(m.Data, &is))
	switch {
	case is.Type == "ack":
		return fmt.Sprintf("ack %d/%d", is.Seq, is.Msgs)
	case is.Type == "gap":
		return fmt.Sprintf("gap %d/%d", is.Last, is.Seq)
	case is.Type == "err":
		return fmt.Sprintf("err %d/%d", is.Seq, is.Error.ErrorCode)
	case is.Error != nil:
		return fmt.Sprint(is.Error.ErrorCode)
	}
	return fmt.Sprintf("%d/%d %s", is.Seq, is.Count, is.Batch)
}

// expect fails unless the next answers are these.
func (q *fastBatch) expect(what string, want ...string) {
	q.t.Helper()
	var got []string
	for range want {
		got = append(got, q.answer())
	}
	equalTexts(q.t, what, got, want)
}

// end returns the next answer that is about the end of the batch, and those before it.
func (q *fastBatch) end() (end string, before []string) {
	q.t.Helper()
	for {
		switch got := q.answer(); {
		case strings.HasPrefix(got, "ack "), strings.HasPrefix(got, "gap "), strings.HasPrefix(got, "err "):
			before = append(before, got)
		default:
			return got, before
		}
	}
}

func batched(c *jetstream.StreamConfig) { c.AllowBatchPublish = true }

var fastStories = []story{
	{"a fast batch is stored as it comes", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		is, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "allow_batched", is.CachedInfo().Config.AllowBatchPublish, true)
		equal(t, "required level", is.CachedInfo().Config.Metadata["_nats.req.level"], "4")
		q := s.fastBatch(t, js, name, "one", 2, "fail")
		q.add(".a", "1")
		q.expect("the first", "ack 0/2")
		q.add(".b", "2", "Trace: 1", "Nats-Required-Api-Level: 2")
		q.expect("the second", "ack 2/2")
		equalTexts(t, "before the commit", inStream(t, js, name), []string{"1 .a 1", "2 .b 2"})
		fill(t, s.client(t), name+".other", 1)
		q.add(".a", "3", "Nats-Required-Api-Level: 2")
		q.add(".a", "4")
		q.expect("two more", "ack 4/2")
		q.send(5, commit, ".c", "5")
		q.expect("a commit", "6/5 one")
		m, err := is.GetMsg(within(t), 4)
		testutil.Must(t, err)
		equal(t, "no header is left", fmt.Sprint(m.Header), "map[]")
		equalTexts(t, "after", inStream(t, js, name), []string{"1 .a 1", "2 .b 2", "3 .other 1", "4 .a 3", "5 .a 4", "6 .c 5"})
		m, err = is.GetMsg(within(t), 2)
		testutil.Must(t, err)
		equal(t, "headers", fmt.Sprint(m.Header), "map[Trace:[1]]")

		q = s.fastBatch(t, js, name, "one", 500, "fail")
		q.send(1, commit, ".a", "7")
		q.expect("one message", "7/1 one")
		q = s.fastBatch(t, js, name, "two", 500, "fail")
		q.add(".a", "8")
		q.expect("the first", "ack 0/500")
		q.add(".a", "9")
		q.send(3, behind, ".a", "no")
		q.expect("a commit behind the end", "9/2 two")
		q.add(".a", "10")
		q.expect("behind that", "10208")
		equal(t, "messages", len(inStream(t, js, name)), 9)
	}},
	{"a gap ends a fast batch", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		q := s.fastBatch(t, js, name, "one", 10, "fail")
		q.add(".a", "1")
		q.add(".a", "2")
		q.send(4, more, ".a", "4")
		end, before := q.end()
		equal(t, "end", end, "2/2 one")
		equalTexts(t, "before", before, []string{"ack 0/10", "gap 3/4"})
		q.add(".a", "5")
		q.expect("behind it", "10208")

		q = s.fastBatch(t, js, name, "twice", 10, "fail")
		q.add(".a", "3")
		q.add(".a", "4")
		q.send(2, more, ".a", "again")
		end, before = q.end()
		equal(t, "end", end, "4/2 twice")
		equalTexts(t, "before", before, []string{"ack 0/10", "gap 3/2"})

		q = s.fastBatch(t, js, name, "asks", 10, "fail")
		q.add(".a", "5")
		q.expect("the first", "ack 0/10")
		q.send(3, ping, ".a", "")
		end, before = q.end()
		equal(t, "end", end, "5/1 asks")
		equal(t, "before", before[0], "gap 2/4")
		equal(t, "messages", len(inStream(t, js, name)), 5)
	}},
	{"a fast batch goes on behind gaps if it may", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		q := s.fastBatch(t, js, name, "one", 2, "ok")
		q.add(".a", "1")
		q.expect("the first", "ack 0/2")
		q.send(4, more, ".a", "4")
		q.expect("a gap", "gap 2/4", "ack 4/2")
		q.send(6, ping, ".a", "")
		q.expect("a ping behind the last", "gap 5/7", "ack 6/2")
		q.send(7, commit, ".a", "7")
		q.expect("a commit", "3/7 one")
		equalTexts(t, "messages", inStream(t, js, name), []string{"1 .a 1", "2 .a 4", "3 .a 7"})
		q = s.fastBatch(t, js, name, "back", 10, "ok")
		q.add(".a", "8")
		q.add(".a", "9")
		q.send(2, more, ".a", "again")
		end, before := q.end()
		equal(t, "a sequence that was there", end, "5/2 back")
		equalTexts(t, "before", before, []string{"ack 0/10", "gap 3/2"})
	}},
	{"a fast batch ends with the message before a refused one", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		q := s.fastBatch(t, js, name, "one", 100, "fail")
		q.add(".a", "1")
		q.add(".a", "2")
		q.add(".a", "no", "Nats-Expected-Last-Sequence: 9")
		for range 20 {
			q.add(".a", "behind it")
		}
		end, before := q.end()
		equal(t, "end", end, "2/2 one")
		equalTexts(t, "before", before, []string{"ack 0/100", "err 3/10071"})
		fill(t, js, name+".other", 1)
		equalTexts(t, "messages", inStream(t, js, name), []string{"1 .a 1", "2 .a 2", "3 .other 1"})

		q = s.fastBatch(t, js, name, "first", 100, "fail")
		q.add(".a", "no", "Nats-Expected-Last-Sequence: 9")
		q.expect("the first", "ack 0/100", "10071")
		q.add(".a", "behind it")
		q.expect("the second", "10208")

		q = s.fastBatch(t, js, name, "last", 100, "fail")
		q.add(".a", "4")
		q.send(2, commit, ".a", "no", "Nats-Expected-Last-Sequence: 9")
		end, before = q.end()
		equal(t, "end", end, "4/1 last")
		equalTexts(t, "before", before, []string{"ack 0/100", "err 2/10071"})

		q = s.fastBatch(t, js, name, "gaps", 100, "ok")
		q.add(".a", "5")
		q.add(".a", "no", "Nats-Expected-Last-Sequence: 9")
		q.add(".a", "6")
		q.send(4, commit, ".a", "7")
		end, before = q.end()
		equal(t, "end", end, "7/4 gaps")
		equalTexts(t, "before", before, []string{"ack 0/100", "err 2/10071"})

		equal(t, "messages", len(inStream(t, js, name)), 7)
	}},
	{"a ping is answered with the last acknowledgement", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		q := s.fastBatch(t, js, name, "one", 2, "fail")
		q.send(1, ping, ".a", "")
		q.expect("of no batch", "10208")
		q.next = 0
		for range 5 {
			q.add(".a", "x")
		}
		for q.answer() != "ack 4/2" {
		}
		q.send(5, ping, ".a", "")
		q.expect("a ping", "ack 4/2")
		q.send(6, behind, ".a", "")
		q.expect("the end", "5/5 one")
		q.send(6, ping, ".a", "")
		q.expect("behind it", "10208")
	}},
	{"messages with known ids count in a fast batch", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		_, err := js.Publish(within(t), name+".a", []byte("1"), jetstream.WithMsgID("known"))
		testutil.Must(t, err)
		q := s.fastBatch(t, js, name, "one", 2, "fail")
		q.add(".a", "2")
		q.add(".a", "1", "Nats-Msg-Id: known")
		q.expect("a duplicate", "ack 0/2", "ack 2/2")
		q.add(".a", "3", "Nats-Msg-Id: new")
		q.send(4, commit, ".a", "4")
		q.expect("a commit", "4/4 one")
		equalTexts(t, "messages", inStream(t, js, name), []string{"1 .a 1", "2 .a 2", "3 .a 3", "4 .a 4"})
		q = s.fastBatch(t, js, name, "again", 2, "fail")
		q.send(1, commit, ".a", "3", "Nats-Msg-Id: new")
		q.expect("a duplicate alone", "3/1 again")
	}},
	{"only messages of the right form join a fast batch", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowBatchPublish, c.MaxMsgSize = true, 1000 })
		inbox := nats.NewInbox()
		sub, err := js.Conn().SubscribeSync(inbox + ".>")
		testutil.Must(t, err)
		q := &fastBatch{t: t, nc: js.Conn(), sub: sub, name: name}
		for _, form := range []struct{ reply, want string }{
			{"id.10.fail.1.5", "10206"},
			{"id.10.fail.1.x", "10206"},
			{"id.10.maybe.1.0", "10206"},
			{"id.10.fail.0.0", "10206"},
			{"id.10.fail.x.0", "10206"},
			{"id.10.fail.18446744073709551615.1", "10206"},
			{"id.10.fail.2.0", "10206"},
			{"id.10.fail.1.1", "10206"},
			{"id.10.fail.1.3", "10206"},
			{"fail.1.0", "10206"},
			{"id.10.fail.2.1", "10208"},
			{strings.Repeat("x", 65) + ".10.fail.1.0", "10207"},
			{strings.Repeat("x", 64) + ".0.fail.1.0", "ack 0/10"},
		} {
			testutil.Must(t, q.nc.PublishRequest(name+".a", inbox+"."+form.reply+".$FI", []byte("x")))
			q.expect(form.reply, form.want)
		}
		q = s.fastBatch(t, js, name, "large", 10, "fail")
		q.add(".a", strings.Repeat("x", 1001))
		q.expect("a large one", "10054")
		q = s.fastBatch(t, js, name, "level", 10, "fail")
		q.add(".a", "x", "Nats-Required-Api-Level: 99")
		q.expect("a high level", "10185")
		q.add(".a", "x")
		q.expect("behind it", "10208")
		q = s.fastBatch(t, js, s.stream(t, nil), "none", 10, "fail")
		q.add(".a", "x")
		q.expect("another stream", "10205")
	}},
	{"a stream begins and ends to take fast batches", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowBatchPublish: true}
		_, err := js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		var q *fastBatch
		testutil.Eventually(t, "it is known", func() error {
			q = s.fastBatch(t, js, name, "one", 10, "fail")
			if q.add(".a", "1"); q.answer() == "10205" {
				return fmt.Errorf("it is not")
			}
			return nil
		})
		config.AllowBatchPublish = false
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		testutil.Eventually(t, "it is known", func() error {
			q := s.fastBatch(t, js, name, "two", 10, "fail")
			q.send(2, more, ".a", "2") // of no batch
			if got := q.answer(); got != "10205" {
				return fmt.Errorf("answered %s", got)
			}
			return nil
		})
		_, err = js.CreateStream(within(t), jetstream.StreamConfig{Name: s.name("m"), Mirror: &jetstream.StreamSource{Name: name}, AllowBatchPublish: true})
		equal(t, "a mirror", number(err), 10209)
	}},
	{"fast batches of a stream share its flow", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		one := s.fastBatch(t, js, name, "one", 500, "fail")
		one.add(".a", "1")
		one.expect("alone", "ack 0/500")
		two := s.fastBatch(t, js, name, "two", 500, "fail")
		two.add(".a", "1")
		two.expect("beside it", "ack 0/1", "ack 1/2")
		two.add(".a", "2")
		two.add(".a", "3")
		two.expect("two more", "ack 3/4")
		one.send(2, commit, ".a", "2")
		one.expect("the first", "5/2 one")
		two.send(4, commit, ".a", "4")
		two.expect("the second", "6/4 two")
	}},
	{"a stream has at most 1000 open fast batches", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		inbox := nats.NewInbox()
		sub, err := js.Conn().SubscribeSync(inbox + ".>")
		testutil.Must(t, err)
		q := &fastBatch{t: t, nc: js.Conn(), sub: sub, name: name}
		for i := range 1000 {
			q.form = fmt.Sprintf("%s.b%d.500.fail.%%d.%%d.$FI", inbox, i)
			q.send(1, start, ".a", "1")
		}
		for acks := 0; acks < 1000; {
			if is := q.answer(); strings.HasPrefix(is, "ack 0/") {
				acks++
			} else if !strings.HasPrefix(is, "ack 1/") {
				t.Fatalf("answered %s", is)
			}
		}
		full := s.fastBatch(t, js, name, "more", 10, "fail")
		full.add(".a", "1")
		full.expect("one more", "10211")
		q.send(2, behind, ".a", "")
		for !strings.HasSuffix(q.answer(), "/1 b999") {
		}
		full.next = 0
		full.add(".a", "1")
		equal(t, "now", strings.HasPrefix(full.answer(), "ack 0/"), true)
	}},
	{"a fast batch that goes on at another server is unknown", func(t *testing.T, s *site) {
		name := s.stream(t, batched)
		q := s.fastBatch(t, s.client(t), name, "one", 10, "fail")
		q.add(".a", "1")
		q.expect("the first", "ack 0/10")
		if len(s.urls) == 1 {
			return
		}
		other := s.fastBatch(t, s.client(t), name, "one", 10, "fail")
		other.send(2, more, ".a", "2")
		other.expect("the second", "10208")
		q.send(2, commit, ".a", "2")
		q.expect("a commit", "2/2 one")
	}},
	{"the fast publisher of orbit.go publishes", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, batched)
		var complaints []string
		fast, err := jetstreamext.NewFastPublisher(js, jetstreamext.FastPublishFlowControl{Flow: 50, AckTimeout: patience},
			jetstreamext.WithFastPublisherErrorHandler(func(err error) { complaints = append(complaints, err.Error()) }))
		testutil.Must(t, err)
		const messages = 2000
		var acked uint64
		for i := range messages {
			ack, err := fast.Add(name+".a", fmt.Append(nil, i+1))
			testutil.Must(t, err)
			acked = ack.AckSequence
		}
		if acked < messages-100 {
			t.Errorf("at the end %d were acknowledged", acked)
		}
		end, err := fast.Close(within(t))
		testutil.Must(t, err)
		equal(t, "stream", end.Stream, name)
		equal(t, "sequence", end.Sequence, uint64(messages))
		equal(t, "count", end.BatchSize, messages)
		inOrder(t, js, name, messages)
		equalTexts(t, "complaints", complaints, nil)

		fast, err = jetstreamext.NewFastPublisher(js, jetstreamext.FastPublishFlowControl{Flow: 50, AckTimeout: patience})
		testutil.Must(t, err)
		_, err = fast.Add(name+".a", []byte("x"))
		testutil.Must(t, err)
		end, err = fast.Commit(within(t), name+".a", []byte("x"))
		testutil.Must(t, err)
		equal(t, "count", end.BatchSize, 2)
	}},
}

// inOrder fails unless a stream has the messages "1" to "n" and no others, in this order.
func inOrder(t *testing.T, js jetstream.JetStream, name string, n int) {
	t.Helper()
	c, err := js.OrderedConsumer(within(t), name, jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	is, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	equal(t, "messages", is.CachedInfo().State.Msgs, uint64(n))
	var got []string
	for len(got) < n {
		batch, err := c.Fetch(min(n-len(got), 500), jetstream.FetchMaxWait(patience))
		got = append(got, texts(take(t, batch, err))...)
	}
	if want := count(1, n); !slices.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("message %d is %s", i+1, got[i])
			}
		}
	}
}

// TestAFastBatchOutlivesItsLeaders: the leader of a stream stops again and again while a publisher
// on a broker without a replica sends a fast batch. Each message is there once and in order, also
// if the batch ends since nothing could be stored for too long, and another one begins behind its
// last ack.
func TestAFastBatchOutlivesItsLeaders(t *testing.T) {
	t.Parallel()
	local, _ := brokers.Coordinator(t)
	s := &site{}
	volumes, members := map[string]string{}, map[string]*member{}
	for i := range 4 {
		name := fmt.Sprintf("compat-%d", i)
		volumes[name] = t.TempDir()
		members[name] = startBroker(t, local, i, volumes[name])
		s.urls = append(s.urls, members[name].url())
	}
	name := s.stream(t, func(c *jetstream.StreamConfig) { c.Replicas, c.AllowBatchPublish, c.Duplicates = 3, true, time.Hour })
	inSync := func(js jetstream.JetStream) (is *jetstream.ClusterInfo) {
		t.Helper()
		testutil.Eventually(t, "three replicas are in sync", func() error {
			stream, err := js.Stream(within(t), name)
			if err != nil {
				return err
			}
			if is = stream.CachedInfo().Cluster; is.Leader == "" || len(is.Replicas) != 2 || !is.Replicas[0].Current || !is.Replicas[1].Current {
				return fmt.Errorf("they are %+v", is)
			}
			return nil
		})
		return is
	}
	is := inSync(s.client(t))
	outside := maps.Clone(members)
	for _, of := range []string{is.Leader, is.Replicas[0].Name, is.Replicas[1].Name} {
		delete(outside, of)
	}
	for _, m := range outside {
		s.urls = []string{m.url()}
	}
	js := s.client(t)
	enough, stopped := make(chan struct{}), make(chan int)
	go func() {
		defer close(stopped)
		sent := 0
		for acked, done := 0, false; !done && t.Context().Err() == nil; {
			fast, err := jetstreamext.NewFastPublisher(js, jetstreamext.FastPublishFlowControl{Flow: 100, AckTimeout: 20 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			before := acked
			for i := before + 1; ; i++ {
				ack, err := fast.AddMsg(&nats.Msg{Subject: name + ".a", Data: fmt.Append(nil, i), Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint(i)}}})
				if err != nil {
					t.Logf("message %d: %v", i, err)
					break // on a busy machine the election may take too long: the rest goes again
				}
				acked, sent = before+int(ack.AckSequence), max(sent, i)
				if i < sent {
					continue
				}
				select {
				case <-enough:
					end, err := fast.Close(within(t))
					if err == nil {
						acked = before + int(end.BatchSize)
					}
					done = acked == sent
				case <-time.After(100 * time.Microsecond): // so that they stay few enough to be read in a test
					continue
				}
				break
			}
		}
		stopped <- sent
	}()
	last := uint64(0)
	for range 4 {
		leader := inSync(js).Leader
		members[leader].stop()
		var i int
		_, err := fmt.Sscanf(leader, "compat-%d", &i)
		testutil.Must(t, err)
		testutil.Eventually(t, "another leader takes messages", func() error {
			stream, err := js.Stream(within(t), name)
			if err != nil {
				return err
			}
			now := stream.CachedInfo()
			if now.Cluster.Leader == leader || now.State.LastSeq <= last+200 {
				return fmt.Errorf("%s has %d", now.Cluster.Leader, now.State.LastSeq)
			}
			last = now.State.LastSeq
			return nil
		})
		members[leader] = startBroker(t, local, i, volumes[leader])
	}
	close(enough)
	sent, ok := <-stopped
	if !ok {
		return // the error is told
	}
	inSync(js)
	inOrder(t, js, name, sent)
}
