package compat

import (
	"encoding/json"
	"errors"
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
		for _, payload := range []string{"", "{}", "[]", `""`, `{"any":1}`, "no JSON"} {
			answer := ask(t, js, "$JS.API.INFO", payload)
			equal(t, payload, at(answer, "error"), nil)
			equal(t, "streams", at(answer, "streams").(float64), at(was, "streams").(float64)+2)
			equal(t, "reserved storage", at(answer, "reserved_storage").(float64), at(was, "reserved_storage").(float64)+1<<20)
			equal(t, "reserved memory", at(answer, "reserved_memory").(float64), at(was, "reserved_memory").(float64)+1<<19)
			equal(t, "most streams", at(answer, "limits", "max_streams"), any(-1.0))
		}
		first := at(ask(t, js, "$JS.API.INFO", ""), "api", "total").(float64)
		ask(t, s.client(t), "$JS.API.STREAM.NAMES", "")
		if then := at(ask(t, js, "$JS.API.INFO", ""), "api", "total").(float64); then < first+2 {
			t.Errorf("calls: %v, then %v", first, then)
		}
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
