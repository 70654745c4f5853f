package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// ask sends a request and returns the answer's payload as JSON, with each number as float64.
func ask(t *testing.T, js jetstream.JetStream, subject, payload string, headers ...string) map[string]any {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(payload)
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	r, err := js.Conn().RequestMsgWithContext(within(t), m)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	var answer map[string]any
	if err := json.Unmarshal(r.Data, &answer); err != nil {
		t.Fatalf("%s: %v: %q", subject, err, r.Data)
	}
	return answer
}

// at returns a field of nested objects, or nil.
func at(answer map[string]any, path ...string) any {
	for _, name := range path[:len(path)-1] {
		answer, _ = answer[name].(map[string]any)
	}
	return answer[path[len(path)-1]]
}

var apiStories = []story{
	{"the account is told to whoever asks, whatever they send", func(t *testing.T, s *site) {
		js := s.client(t)
		was := ask(t, js, "$JS.API.INFO", "")
		s.stream(t, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
		s.stream(t, func(c *jetstream.StreamConfig) { c.MaxBytes, c.Storage = 1<<19, jetstream.MemoryStorage })
		testutil.EventuallyTrue(t, "this client's server knows both", func() bool {
			return at(ask(t, js, "$JS.API.INFO", ""), "streams").(float64) == at(was, "streams").(float64)+2
		})
		for _, payload := range []string{"", "{}", "[]", `""`, `{"any":1}`, "no JSON"} {
			answer := ask(t, js, "$JS.API.INFO", payload)
			equal(t, payload, at(answer, "error"), nil)
			equal(t, "streams", at(answer, "streams").(float64), at(was, "streams").(float64)+2)
			equal(t, "reserved storage", at(answer, "reserved_storage").(float64), at(was, "reserved_storage").(float64)+1<<20)
			equal(t, "reserved memory", at(answer, "reserved_memory").(float64), at(was, "reserved_memory").(float64)+1<<19)
			equal(t, "most streams", at(answer, "limits", "max_streams"), any(-1.0))
		}
		first := at(ask(t, js, "$JS.API.INFO", ""), "api", "total").(float64)
		testutil.Eventually(t, "calls are counted", func() error { // a server that is late with its number is left out
			ask(t, s.client(t), "$JS.API.STREAM.NAMES", "")
			if then := at(ask(t, js, "$JS.API.INFO", ""), "api", "total").(float64); then < first+2 {
				return fmt.Errorf("calls: %v, then %v", first, then)
			}
			return nil
		})
	}},

	{"the level of the API is told, and asked for", func(t *testing.T, s *site) {
		js := s.client(t)
		level := at(ask(t, js, "$JS.API.INFO", ""), "api", "level").(float64)
		if level < 2 {
			t.Errorf("level %v", level)
		}
		for required, refused := range map[string]bool{"0": false, "1": false, "2": false, "99": true, "many": true} {
			answer := ask(t, js, "$JS.API.STREAM.NAMES", "", "Nats-Required-Api-Level", required)
			if is := at(answer, "error", "err_code") == any(10185.0); is != refused {
				t.Errorf("level %s: %v", required, answer)
			}
		}
		name := s.name("level")
		asked := `{"name":"` + name + `","subjects":["` + name + `"],"storage":"file","metadata":{"team":"sales"}}`
		made := ask(t, js, "$JS.API.STREAM.CREATE."+name, asked)
		for _, answer := range []map[string]any{
			made, ask(t, js, "$JS.API.STREAM.INFO."+name, ""),
		} {
			equal(t, "team", at(answer, "config", "metadata", "team"), any("sales"))
			equal(t, "level required", at(answer, "config", "metadata", "_nats.req.level"), any("0"))
			if at(answer, "config", "metadata", "_nats.level") == nil || at(answer, "config", "metadata", "_nats.ver") == nil {
				t.Errorf("metadata %v", at(answer, "config", "metadata"))
			}
		}
		// A client that copies a configuration sends all of it back.
		copied, err := json.Marshal(at(made, "config"))
		testutil.Must(t, err)
		equal(t, "made again", at(ask(t, js, "$JS.API.STREAM.CREATE."+name, string(copied)), "error"), nil)
		equal(t, "changed", at(ask(t, js, "$JS.API.STREAM.UPDATE."+name, string(copied)), "error"), nil)
		consumer := ask(t, js, "$JS.API.CONSUMER.CREATE."+name+".c", `{"stream_name":"`+name+`","config":{"durable_name":"c","ack_policy":"explicit"}}`)
		equal(t, "level that a consumer requires", at(consumer, "config", "metadata", "_nats.req.level"), any("0"))
	}},

	{"an unknown call is not answered", func(t *testing.T, s *site) {
		js := s.client(t)
		for _, subject := range []string{"$JS.API.NOTHING", "$JS.API.STREAM.NOTHING.x", "$JS.API.STREAM.INFO"} {
			if r, err := js.Conn().Request(subject, nil, 100*time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
				t.Errorf("%s: %v, %v", subject, r, err)
			}
		}
	}},

	{"calls about a cluster need one", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		for _, call := range []string{"STREAM.LEADER.STEPDOWN." + name, "STREAM.PEER.REMOVE." + name, "CONSUMER.LEADER.STEPDOWN." + name + ".c"} {
			answer := ask(t, js, "$JS.API."+call, "{}")
			switch text, _ := at(answer, "error", "description").(string); {
			case len(s.urls) == 1:
				equal(t, call, at(answer, "error", "err_code"), any(10010.0))
			case !strings.Contains(text, "carillon brokers drain"):
				t.Errorf("%s: %v", call, answer)
			}
		}
		info := ask(t, js, "$JS.API.STREAM.INFO."+name, "")
		if at(info, "cluster", "leader") == nil {
			t.Errorf("nobody leads: %v", at(info, "cluster"))
		}
		made := ask(t, js, "$JS.API.STREAM.CREATE."+name, `{"name":"`+name+`","subjects":["`+name+`.>"],"storage":"file"}`)
		consumer := ask(t, js, "$JS.API.CONSUMER.CREATE."+name, `{"stream_name":"`+name+`","config":{"ack_policy":"explicit"}}`)
		if len(s.urls) > 1 {
			if at(made, "cluster", "leader") == nil || at(consumer, "cluster", "leader") == nil {
				t.Errorf("clusters: %v and %v", at(made, "cluster"), at(consumer, "cluster"))
			}
			return
		}
		equal(t, "name of the cluster", at(info, "cluster", "name"), nil)
		equal(t, "cluster", at(made, "cluster"), nil)
		equal(t, "cluster of a consumer", at(consumer, "cluster"), nil)
		replicated := s.name("r")
		answer := ask(t, js, "$JS.API.STREAM.CREATE."+replicated, `{"name":"`+replicated+`","subjects":["`+replicated+`"],"num_replicas":3}`)
		equal(t, "a stream of three", at(answer, "error", "err_code"), any(10074.0))
		answer = ask(t, js, "$JS.API.CONSUMER.CREATE."+name, `{"stream_name":"`+name+`","config":{"ack_policy":"explicit","num_replicas":3}}`)
		equal(t, "a consumer of three", at(answer, "error", "err_code"), any(10074.0))
	}},

	{"a consumer may start before time began", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		fill(t, js, name+".x", 3)
		consumer, err := js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &time.Time{},
		})
		testutil.Must(t, err)
		batch, err := consumer.Fetch(3)
		equalTexts(t, "messages", texts(take(t, batch, err)), count(1, 3))
	}},
}

// event returns the next advisory of that subject, without what differs each time.
func event(t *testing.T, sub *nats.Subscription, subject string) map[string]any {
	t.Helper()
	m, err := sub.NextMsgWithContext(within(t))
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	equal(t, "subject", m.Subject, subject)
	var fields map[string]any
	testutil.Must(t, json.Unmarshal(m.Data, &fields))
	for _, name := range []string{"id", "timestamp"} {
		if fields[name] == nil {
			t.Errorf("%s has no %s: %s", subject, name, m.Data)
		}
		delete(fields, name)
	}
	return fields
}

var advisoryStories = []story{
	{"advisories tell what happens to streams", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.name("advised")
		sub, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.STREAM.*." + name)
		testutil.Must(t, err)
		settle(t, js.Conn(), other.Conn())
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
		_, err = other.CreateStream(within(t), config)
		testutil.Must(t, err)
		is := event(t, sub, "$JS.EVENT.ADVISORY.STREAM.CREATED."+name)
		equal(t, "type", is["type"], any("io.nats.jetstream.advisory.v1.stream_action"))
		equal(t, "stream", is["stream"], any(name))
		equal(t, "action", is["action"], any("create"))
		config.MaxMsgs = 10
		_, err = other.UpdateStream(within(t), config)
		testutil.Must(t, err)
		equal(t, "action", event(t, sub, "$JS.EVENT.ADVISORY.STREAM.UPDATED."+name)["action"], any("modify"))
		testutil.Must(t, other.DeleteStream(within(t), name))
		equal(t, "action", event(t, sub, "$JS.EVENT.ADVISORY.STREAM.DELETED."+name)["action"], any("delete"))
	}},

	{"advisories tell what happens to consumers and messages", func(t *testing.T, s *site) {
		t.Parallel()
		const ackWait = 2 * time.Second // longer than the ack of the last message takes
		name := s.stream(t, nil)
		js := s.client(t)
		other := s.client(t)
		fill(t, other, name+".x", 3)
		sub, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.*." + name + ".*")
		testutil.Must(t, err)
		settle(t, js.Conn(), other.Conn())
		settle(t, js.Conn(), s.client(t).Conn(), s.client(t).Conn(), s.client(t).Conn())
		made, err := other.CreateConsumer(within(t), name, jetstream.ConsumerConfig{
			Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 2, AckWait: ackWait,
		})
		testutil.Must(t, err)
		is := event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.CREATED."+name+".c")
		equal(t, "consumer", is["consumer"], any("c"))
		next := func() jetstream.Msg {
			m, err := made.Next(jetstream.FetchMaxWait(patience))
			testutil.Must(t, err)
			return m
		}
		m := next()
		testutil.Must(t, m.TermWithReason("it is bad"))
		is = event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED."+name+".c")
		equal(t, "reason", is["reason"], any("it is bad"))
		equal(t, "sequence", is["stream_seq"], any(1.0))
		testutil.Must(t, next().Nak())
		is = event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED."+name+".c")
		equal(t, "type", is["type"], any("io.nats.jetstream.advisory.v1.nak"))
		equal(t, "sequence", is["stream_seq"], any(2.0))
		equal(t, "sequence in the consumer", is["consumer_seq"], any(2.0))
		equal(t, "deliveries", is["deliveries"], any(1.0))
		again := next() // not acked in time, for the last time
		testutil.Must(t, next().DoubleAck(within(t)))
		if meta, err := again.Metadata(); err != nil || meta.NumDelivered != 2 {
			t.Errorf("delivered again: %+v, %v", meta, err)
		}
		batch, err := made.Fetch(1, jetstream.FetchMaxWait(2*ackWait))
		testutil.Must(t, err)
		is = event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+name+".c")
		equal(t, "type", is["type"], any("io.nats.jetstream.advisory.v1.max_deliver"))
		equal(t, "sequence", is["stream_seq"], any(2.0))
		equal(t, "deliveries", is["deliveries"], any(2.0))
		for m := range batch.Messages() {
			t.Errorf("%s was delivered a third time", m.Data())
		}
		testutil.Must(t, other.DeleteConsumer(within(t), name, "c"))
		equal(t, "action", event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.DELETED."+name+".c")["action"], any("delete"))
	}},

	{"advisories tell of pauses, and of consumers that end by themselves", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js, other := s.client(t), s.client(t)
		sub, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.*." + name + ".*")
		testutil.Must(t, err)
		settle(t, js.Conn(), other.Conn(), s.client(t).Conn(), s.client(t).Conn(), s.client(t).Conn())
		_, err = other.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
		testutil.Must(t, err)
		event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.CREATED."+name+".c")
		_, err = other.PauseConsumer(within(t), name, "c", time.Now().Add(time.Hour))
		testutil.Must(t, err)
		is := event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.PAUSE."+name+".c")
		equal(t, "type", is["type"], any("io.nats.jetstream.advisory.v1.consumer_pause"))
		equal(t, "paused", is["paused"], any(true))
		_, err = other.ResumeConsumer(within(t), name, "c")
		testutil.Must(t, err)
		equal(t, "paused", event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.PAUSE."+name+".c")["paused"], any(false))
		_, err = other.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Name: "short", InactiveThreshold: 300 * time.Millisecond})
		testutil.Must(t, err)
		event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.CREATED."+name+".short")
		is = event(t, sub, "$JS.EVENT.ADVISORY.CONSUMER.DELETED."+name+".short")
		equal(t, "action", is["action"], any("delete"))
	}},

	{"a stream keeps advisories, and calls are audited", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		keeper := s.name("keeper")
		_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: keeper, Subjects: []string{"$JS.EVENT.ADVISORY.API"}})
		testutil.Must(t, err)
		defer func() { testutil.Must(t, js.DeleteStream(within(t), keeper)) }()
		name := s.name("audited")
		testutil.Eventually(t, "an audit that is kept", func() error {
			ask(t, other, "$JS.API.STREAM.INFO."+name, `{"deleted_details":false}`)
			stream, err := js.Stream(within(t), keeper)
			testutil.Must(t, err)
			last := stream.CachedInfo().State.LastSeq
			for seq := uint64(1); seq <= last; seq++ {
				m, err := stream.GetMsg(within(t), seq)
				testutil.Must(t, err)
				var is struct{ Type, Server, Subject, Request, Response string }
				testutil.Must(t, json.Unmarshal(m.Data, &is))
				if is.Subject == "$JS.API.STREAM.INFO."+name {
					equal(t, "type", is.Type, "io.nats.jetstream.advisory.v1.api_audit")
					equal(t, "request", is.Request, `{"deleted_details":false}`)
					if !strings.Contains(is.Response, "10059") || is.Server == "" {
						t.Errorf("%s", m.Data)
					}
					return nil
				}
			}
			return fmt.Errorf("none of %d", last)
		})
	}},
}

// direct sends a direct get and returns all answers up to the end of the batch, each as
// "sequence pending last payload" or its status.
func direct(t *testing.T, js jetstream.JetStream, stream, payload string) (all []string) {
	t.Helper()
	inbox, err := js.Conn().SubscribeSync(nats.NewInbox())
	testutil.Must(t, err)
	defer func() { testutil.Must(t, inbox.Unsubscribe()) }()
	testutil.Must(t, js.Conn().PublishRequest("$JS.API.DIRECT.GET."+stream, inbox.Subject, []byte(payload)))
	for {
		m, err := inbox.NextMsgWithContext(within(t))
		if err != nil {
			t.Fatalf("%s: %q, then %v", payload, all, err)
		}
		h := m.Header
		pending, last := h.Get("Nats-Num-Pending"), h.Get("Nats-Last-Sequence")
		if status := h.Get("Status"); status != "" {
			text := strings.TrimSpace(strings.Join([]string{status, h.Get("Description"), pending, last, h.Get("Nats-UpTo-Sequence")}, " "))
			return append(all, text)
		}
		all = append(all, strings.TrimSpace(strings.Join([]string{h.Get("Nats-Sequence"), pending, last, string(m.Data)}, " ")))
		if pending == "" && !strings.Contains(payload, "batch") {
			return all
		}
	}
}

var directStories = []story{
	{"direct gets of several messages", func(t *testing.T, s *site) {
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowDirect = true })
		js := s.client(t)
		other := s.client(t)
		for _, subject := range []string{"a", "b", "a", "c", "b", "a"} {
			fill(t, other, name+"."+subject, 1)
		}
		for _, test := range []struct {
			payload string
			want    []string
		}{
			{`{}`, []string{"408 Empty Request"}},
			{`{"batch":3}`, []string{"408 Empty Request"}},
			{`no JSON`, []string{"408 Malformed Request"}},
			{`{"seq":1,"last_by_subj":"x"}`, []string{"408 Bad Request"}},
			{`{"last_by_subj":"x","batch":3}`, []string{"408 Bad Request"}},
			{`{"multi_last":["x"],"up_to_seq":3,"up_to_time":"2026-01-01T00:00:00Z"}`, []string{"408 Bad Request"}},
			{`{"seq":2}`, []string{"2   1"}},
			{`{"seq":2,"no_hdr":true}`, []string{"1"}},
			{`{"seq":99}`, []string{"404 Message Not Found"}},
			{`{"start_time":"2020-01-01T00:00:00Z"}`, []string{"1   1"}},
			{`{"start_time":"2020-01-01T00:00:00Z","next_by_subj":"NAME.c"}`, []string{"4   1"}},
			{`{"seq":2,"batch":2}`, []string{"2 4 0 1", "3 3 2 1", "204 EOB 3 3"}},
			{`{"seq":5,"batch":9}`, []string{"5 1 0 1", "6 0 5 1", "204 EOB 0 6"}},
			{`{"seq":99,"batch":9}`, []string{"404 Message Not Found"}},
			{`{"seq":1,"next_by_subj":"NAME.a","batch":2}`, []string{"1 2 0 1", "3 1 1 1", "204 EOB 1 3"}},
			{`{"next_by_subj":"NAME.*","batch":1}`, []string{"1 5 0 1", "204 EOB 5 1"}},
			{`{"start_time":"2020-01-01T00:00:00Z","batch":1}`, []string{"1 5 0 1", "204 EOB 5 1"}},
			{`{"seq":1,"batch":5,"max_bytes":1}`, []string{"1 5 0 1", "204 EOB 5 1"}},
			{`{"multi_last":["NAME.a","NAME.b"]}`, []string{"5 1 0 1", "6 0 5 1", "204 EOB 0 6 6"}},
			{`{"multi_last":["NAME.>"],"batch":2}`, []string{"4 2 0 1", "5 1 4 1", "204 EOB 1 5 6"}},
			{`{"multi_last":["NAME.>"],"up_to_seq":3}`, []string{"2 1 0 1", "3 0 2 1", "204 EOB 0 3 3"}},
			{`{"multi_last":["NAME.>"],"up_to_time":"2020-01-01T00:00:00Z"}`, []string{"404 No Results"}},
			{`{"multi_last":["NAME.none"]}`, []string{"404 No Results"}},
		} {
			payload := strings.ReplaceAll(test.payload, "NAME", name)
			equalTexts(t, test.payload, direct(t, js, name, payload), test.want)
		}
		for i := range 1025 {
			_, err := other.PublishAsync(fmt.Sprintf("%s.many%d", name, i), nil)
			testutil.Must(t, err)
		}
		select {
		case <-other.PublishAsyncComplete():
		case <-time.After(patience):
			t.Fatal("the messages are not acknowledged")
		}
		equalTexts(t, "too many", direct(t, js, name, `{"multi_last":["`+name+`.>"]}`), []string{"413 Too Many Results"})
	}},
}
