package compat

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// counted publishes an increment and returns its answer: "sequence total", or the code of a
// refusal.
func counted(t *testing.T, js jetstream.JetStream, subject, by string, headers ...string) string {
	t.Helper()
	m := nats.NewMsg(subject)
	if by != "" {
		m.Header.Set("Nats-Incr", by)
	}
	for _, h := range headers {
		if key, value, ok := strings.Cut(h, ": "); ok {
			m.Header.Set(key, value)
		} else {
			m.Data = []byte(h)
		}
	}
	r, err := js.Conn().RequestMsgWithContext(within(t), m)
	testutil.Must(t, err)
	var ack struct {
		Error     *jetstream.APIError
		Seq       uint64
		Val       string
		Duplicate bool
	}
	testutil.Must(t, json.Unmarshal(r.Data, &ack))
	switch {
	case ack.Error != nil:
		return fmt.Sprint(ack.Error.ErrorCode)
	case ack.Duplicate:
		return fmt.Sprint(ack.Seq, " again")
	}
	return fmt.Sprint(ack.Seq, " ", ack.Val)
}

func counting(c *jetstream.StreamConfig) { c.AllowMsgCounter, c.AllowDirect = true, true }

var counterStories = []story{
	{"a stream adds up counters", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.stream(t, counting)
		stream, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "allow_msg_counter", stream.CachedInfo().Config.AllowMsgCounter, true)
		equal(t, "the first", counted(t, js, name+".a", "1"), "1 1")
		equal(t, "the second", counted(t, other, name+".a", "+41"), "2 42")
		equal(t, "another", counted(t, js, name+".b", "-7"), "3 -7")
		equal(t, "nothing", counted(t, other, name+".b", "0"), "4 -7")
		huge := "1" + strings.Repeat("0", 100)
		equal(t, "a large one", counted(t, js, name+".a", huge), "5 1"+strings.Repeat("0", 98)+"42")
		equal(t, "back again", counted(t, other, name+".a", "-"+huge), "6 42")
		m, err := stream.GetLastMsgForSubject(within(t), name+".a")
		testutil.Must(t, err)
		equal(t, "the last message", string(m.Data), `{"val":"42"}`)
		equal(t, "its increment", m.Header.Get("Nats-Incr"), "-"+huge)
		equal(t, "with an id", counted(t, js, name+".a", "1", "Nats-Msg-Id: one"), "7 43")
		equal(t, "with the same", counted(t, js, name+".a", "1", "Nats-Msg-Id: one"), "7 again")
		testutil.Must(t, stream.DeleteMsg(within(t), 7))
		equal(t, "behind a deleted one", counted(t, js, name+".a", "1"), "8 43")
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSubject(name+".a")))
		equal(t, "behind a purge", counted(t, other, name+".a", "5"), "9 5")
		equal(t, "with headers", counted(t, js, name+".a", "5", "Trace: 1", `Nats-Counter-Sources: {"other":{"x":"7"}}`), "10 10")
		equal(t, "behind them", counted(t, js, name+".a", "5"), "11 15")
		m, err = stream.GetMsg(within(t), 11)
		testutil.Must(t, err)
		equal(t, "what they say of other streams", m.Header.Get("Nats-Counter-Sources"), `{"other":{"x":"7"}}`)
	}},
	{"what is no increment is refused", func(t *testing.T, s *site) {
		js := s.client(t)
		plain := s.stream(t, nil)
		equal(t, "without counters", counted(t, js, plain+".a", "1"), "10168")
		equal(t, "without counters, invalid", counted(t, js, plain+".a", "x"), "10171")
		name := s.stream(t, func(c *jetstream.StreamConfig) { counting(c); c.AllowRollup = true })
		equal(t, "none", counted(t, js, name+".a", ""), "10169")
		equal(t, "a payload", counted(t, js, name+".a", "1", "x"), "10170")
		for _, by := range []string{"x", "1.5", "1e3", "0x10", "--1", "1_000", "+"} {
			equal(t, by, counted(t, js, name+".a", by), "10171")
		}
		for _, header := range []string{
			"Nats-Rollup: sub", "Nats-Expected-Stream: " + name, "Nats-Expected-Last-Sequence: 0", "Nats-Expected-Last-Subject-Sequence: 0",
			"Nats-Expected-Last-Msg-Id: a",
		} {
			equal(t, header, counted(t, js, name+".a", "1", header), "10171")
		}
		equal(t, "the first", counted(t, js, name+".a", "1"), "1 1")
	}},
	{"what counters allow is checked", func(t *testing.T, s *site) {
		js := s.client(t)
		create := func(what, settings string, want any) {
			t.Helper()
			name := s.name("s")
			answer := ask(t, js, "$JS.API.STREAM.CREATE."+name, fmt.Sprintf(`{"name":%q,"allow_msg_counter":true,%s}`, name, settings))
			equal(t, what, at(answer, "error", "err_code"), want)
		}
		create("discard new", `"discard":"new","max_msgs":10`, 10052.0)
		create("TTLs", `"allow_msg_ttl":true`, 10052.0)
		create("a work queue", `"retention":"workqueue"`, 10052.0)
		create("by interest", `"retention":"interest"`, 10052.0)
		create("a limit", `"max_msgs_per_subject":1`, nil)
		name := s.stream(t, nil)
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowMsgCounter: true}
		_, err := js.UpdateStream(within(t), config)
		equal(t, "an update", number(err), jetstream.ErrorCode(10052))
	}},
	{"a stream keeps the last total only", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { counting(c); c.MaxMsgsPerSubject = 1 })
		for i := range 10 {
			equal(t, "a", counted(t, js, name+".a", "2"), fmt.Sprint(2*i+1, " ", 2*i+2))
			equal(t, "b", counted(t, other, name+".b", "-1"), fmt.Sprint(2*i+2, " ", -i-1))
		}
		holds(t, js, name, "after all", 2, map[string]uint64{".a": 1, ".b": 1})
	}},
	{"a batch increments counters", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { counting(c); c.AllowAtomicPublish = true })
		equal(t, "the first", counted(t, js, name+".a", "5"), "1 5")
		b := together{t: t, js: js, name: name, id: "b"}
		b.add("a", ".a", "", "", "", "Nats-Incr: 1")
		b.add("b", ".b", "", "", "", "Nats-Incr: 7")
		b.add("a again", ".a", "", "1", "4/3 b", "Nats-Incr: 1")
		equalTexts(t, "in all", inStream(t, js, name), []string{`1 .a {"val":"5"}`, `2 .a {"val":"6"}`, `3 .b {"val":"7"}`, `4 .a {"val":"7"}`})
		b = together{t: t, js: js, name: name, id: "c"}
		b.add("a", ".a", "", "", "", "Nats-Incr: 1")
		b.add("a payload", ".a", "1", "1", "10170", "Nats-Incr: 1")
		equal(t, "the next", counted(t, js, name+".a", "1"), "5 8")
	}},
	{"clients increment one counter together", func(t *testing.T, s *site) {
		name := s.stream(t, counting)
		var running sync.WaitGroup
		const clients, each = 6, 50
		totals := make(chan string, clients*each)
		for range clients {
			js := s.client(t)
			running.Go(func() {
				for range each {
					_, total, _ := strings.Cut(counted(t, js, name+".a", "3"), " ")
					totals <- total
				}
			})
		}
		running.Wait()
		close(totals)
		seen := map[string]bool{}
		for total := range totals {
			seen[total] = true
		}
		equal(t, "different totals", len(seen), clients*each)
		equal(t, "the sum", counted(t, s.client(t), name+".a", "0"), fmt.Sprint(clients*each+1, " ", 3*clients*each))
	}},
}
