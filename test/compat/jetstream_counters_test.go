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

// adds creates a stream of counters with sources, whose subjects are NAME.>, and whose sources all
// count as NAME.all.
func (s *site) adds(t *testing.T, sources ...func(into string) *jetstream.StreamSource) string {
	t.Helper()
	return s.stream(t, func(c *jetstream.StreamConfig) {
		counting(c)
		for _, source := range sources {
			c.Sources = append(c.Sources, source(c.Name))
		}
	})
}

// total is a source whose subjects all count as one.
func total(of string) func(into string) *jetstream.StreamSource {
	return func(into string) *jetstream.StreamSource {
		return &jetstream.StreamSource{Name: of, SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: of + ".*", Destination: into + ".all"}}}
	}
}

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
	{"a stream adds up the counters of its sources", func(t *testing.T, s *site) {
		js := s.client(t)
		a, b := s.stream(t, counting), s.stream(t, counting)
		equal(t, "the first of a", counted(t, js, a+".x", "1"), "1 1")
		equal(t, "the second of a", counted(t, js, a+".x", "2"), "2 3")
		into := s.adds(t, total(a), total(b))
		equal(t, "the first of b", counted(t, js, b+".x", "100"), "1 100")
		reach(t, js, into, 3)
		equal(t, "its own", counted(t, s.client(t), into+".all", "1000"), "4 1103")
		equal(t, "the third of a", counted(t, js, a+".x", "-10"), "3 -7")
		reach(t, js, into, 5)
		equal(t, "another subject of a", counted(t, js, a+".y", "5", "Trace: 1"), "4 5")
		reach(t, js, into, 6)
		stream, err := s.client(t).Stream(within(t), into)
		testutil.Must(t, err)
		m, err := stream.GetLastMsgForSubject(within(t), into+".all")
		testutil.Must(t, err)
		equal(t, "the total", string(m.Data), `{"val":"1098"}`)
		equal(t, "the increment", m.Header.Get("Nats-Incr"), "5")
		equal(t, "another header", m.Header.Get("Trace"), "1")
		equal(t, "what it says of others", m.Header.Get("Nats-Counter-Sources"), fmt.Sprintf(`{%q:{%q:"-7",%q:"5"},%q:{%q:"100"}}`, a, a+".x", a+".y", b, b+".x"))
		equal(t, "fields of its source", len(strings.Split(m.Header.Get("Nats-Stream-Source"), " ")), 6)
		m, err = stream.GetMsg(within(t), 5)
		testutil.Must(t, err)
		equal(t, "the total before", string(m.Data), `{"val":"1093"}`)
		equal(t, "its increment", m.Header.Get("Nats-Incr"), "-10")
		equal(t, "behind that", counted(t, js, into+".all", "1"), "7 1099")
		m, err = stream.GetMsg(within(t), 7)
		testutil.Must(t, err)
		equal(t, "what its own says of others", m.Header.Get("Nats-Counter-Sources"), fmt.Sprintf(`{%q:{%q:"-7",%q:"5"},%q:{%q:"100"}}`, a, a+".x", a+".y", b, b+".x"))
	}},
	{"a copied counter adds what changed at its origin", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, counting)
		for i := range 5 {
			equal(t, "at the origin", counted(t, js, from+".x", "1"), fmt.Sprint(i+1, " ", i+1))
		}
		origin, err := js.Stream(within(t), from)
		testutil.Must(t, err)
		testutil.Must(t, origin.DeleteMsg(within(t), 2))
		into := s.adds(t, total(from))
		reach(t, js, into, 4)
		equalTexts(t, "copies", copied(t, js, into), []string{into + `.all {"val":"1"}`, into + `.all {"val":"3"}`, into + `.all {"val":"4"}`, into + `.all {"val":"5"}`})
		stream, err := s.client(t).Stream(within(t), into)
		testutil.Must(t, err)
		m, err := stream.GetMsg(within(t), 2)
		testutil.Must(t, err)
		equal(t, "an increment over a deleted one", m.Header.Get("Nats-Incr"), "2")
		testutil.Must(t, stream.DeleteMsg(within(t), 4))
		equal(t, "behind a deleted copy", counted(t, js, into+".all", "0"), "5 4")
		equal(t, "at the origin", counted(t, js, from+".x", "1"), "6 6")
		reach(t, js, into, 5)
		equal(t, "behind a copy over a deleted one", counted(t, js, into+".all", "0"), "7 6")
		testutil.Must(t, stream.Purge(within(t)))
		equal(t, "at the origin", counted(t, js, from+".x", "1"), "7 7")
		reach(t, js, into, 1)
		equal(t, "behind a purge", counted(t, js, into+".all", "0"), "9 7")
		testutil.Must(t, origin.Purge(within(t)))
		equal(t, "at the purged origin", counted(t, js, from+".x", "2"), "8 2")
		reach(t, js, into, 3)
		equal(t, "behind a purge of the origin", counted(t, js, into+".all", "0"), "11 2")
	}},
	{"counters are added up in steps", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, counting)
		between := s.adds(t, total(from))
		into := s.adds(t, total(between))
		equal(t, "the first", counted(t, js, from+".x", "7"), "1 7")
		equal(t, "between", func() string { reach(t, js, between, 1); return counted(t, js, between+".own", "10") }(), "2 10")
		reach(t, js, into, 2)
		stream, err := js.Stream(within(t), into)
		testutil.Must(t, err)
		m, err := stream.GetMsg(within(t), 2)
		testutil.Must(t, err)
		equal(t, "the total", string(m.Data), `{"val":"17"}`)
		equal(t, "what it says of others", m.Header.Get("Nats-Counter-Sources"), fmt.Sprintf(`{%q:{%q:"7",%q:"10"}}`, between, between+".all", between+".own"))
	}},
	{"a stream without counters keeps totals as they are", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, counting)
		equal(t, "the first", counted(t, js, from+".x", "7"), "1 7")
		equal(t, "the second", counted(t, js, from+".x", "7", `Nats-Counter-Sources: {"other":{"x":"7"}}`), "2 14")
		into := s.copies(t, &jetstream.StreamSource{Name: from})
		reach(t, js, into, 2)
		equalTexts(t, "copies", copied(t, js, into), []string{from + `.x {"val":"7"}`, from + `.x {"val":"14"}`})
		stream, err := js.Stream(within(t), into)
		testutil.Must(t, err)
		m, err := stream.GetMsg(within(t), 2)
		testutil.Must(t, err)
		equal(t, "the increment", m.Header.Get("Nats-Incr"), "7")
		equal(t, "what it says of others", m.Header.Get("Nats-Counter-Sources"), `{"other":{"x":"7"}}`)
	}},
	{"a message that is no counter stops its source", func(t *testing.T, s *site) {
		js := s.client(t)
		from, counts := s.stream(t, nil), s.stream(t, counting)
		into := s.adds(t, total(from), total(counts))
		fill(t, js, from+".x", 1)
		equal(t, "another source", counted(t, js, counts+".x", "7"), "1 7")
		stopped := func() error {
			stream, err := s.client(t).Stream(within(t), into)
			if err == nil && stream.CachedInfo().State.Msgs != 1 {
				err = fmt.Errorf("it has %d messages", stream.CachedInfo().State.Msgs)
			}
			return err
		}
		testutil.Eventually(t, "the other source goes on", stopped)
		equal(t, "so does the stream", counted(t, js, into+".all", "1"), "2 8")
		if s.peer {
			return // it doesn't say why
		}
		testutil.Eventually(t, "the source says why", func() error {
			answer := ask(t, js, "$JS.API.STREAM.INFO."+into, "")
			for _, of := range answer["sources"].([]any) {
				if of := of.(map[string]any); of["name"] == from && at(of, "error", "err_code") != nil {
					return nil
				}
			}
			return fmt.Errorf("it says %v", answer["sources"])
		})
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
