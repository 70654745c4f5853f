package system

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/monitoring"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// fakeHub notes what is sent to clients and to other brokers.
type fakeHub struct {
	mu        sync.Mutex
	sent      []string // "reply payload"
	forwarded []string // "broker subject"
}

func (h *fakeHub) Send(messages []protocol.Message) (behind work.Behind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range messages {
		h.sent = append(h.sent, fmt.Sprintf("%s %s", m.Subject, m.Data))
	}
	return behind
}

// Identity: client 7 is known.
func (h *fakeHub) Identity(client uint64) *identity.Identity {
	if client != 7 {
		return nil
	}
	table, err := (&identity.Document{Users: []identity.User{{Name: "ann", Permissions: &identity.Permissions{
		Subscribe: &identity.Subjects{Deny: []string{"a"}}, AllowResponses: &identity.Responses{},
	}}}}).Table()
	if err != nil {
		panic(err)
	}
	return table.User("ann").Identity
}

func (h *fakeHub) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forwarded = append(h.forwarded, fmt.Sprintf("%s %s", broker, m.Subject))
	return true, behind
}

// fakePages name themselves.
type fakePages struct{ size int }

func (fakePages) Statsz() any       { return "stats" }
func (fakePages) Subsz() any        { return "subs" }
func (fakePages) Jsz() any          { return "js" }
func (fakePages) Routez() any       { return "routes" }
func (fakePages) AccountStatz() any { return "account stats" }
func (fakePages) Accountz() any     { return "accounts" }
func (fakePages) Healthz() any      { return "health" }
func (p fakePages) Varz() any       { return strings.Repeat("v", p.size) }
func (fakePages) Connz(q monitoring.ConnzQuery) any {
	if q.Sort == "nonsense" {
		return nil
	}
	return fmt.Sprintf("%d by %s", q.Limit, q.Sort)
}

// ask sends a request and returns the answer without what every answer has, and to whom it was
// passed on. An answer to a second request says that there is none to the first.
func ask(t *testing.T, subject, payload string, forwarded bool) (answer string, passed []string) {
	t.Helper()
	hub := &fakeHub{}
	s := New(Config{
		ID: "id-0", Name: "main-0", Cluster: "default/main", Host: "main-0.svc", Version: "2.12.0", Payload: 500,
		Hub: hub, Pages: fakePages{4}, Logger: slog.New(slog.DiscardHandler),
		Members: func() []coordination.Broker {
			return []coordination.Broker{{ID: "id-0"}, {ID: "id-1"}, {ID: "id-2"}}
		},
	})
	s.Take([]protocol.Message{{Subject: []byte(subject), Reply: []byte("answer"), Data: []byte(payload)}}, nil, forwarded)
	s.jobs.Finish()
	if len(hub.sent) > 1 {
		t.Fatalf("%s: answers %q", subject, hub.sent)
	}
	for _, text := range hub.sent {
		text = strings.TrimPrefix(text, "answer ")
		var fields map[string]json.RawMessage
		testutil.Must(t, json.Unmarshal([]byte(text), &fields))
		if fields["server"] != nil {
			var is about
			testutil.Must(t, json.Unmarshal(fields["server"], &is))
			if is.ID != "id-0" || is.Name != "main-0" || is.Cluster != "default/main" || is.Version != "2.12.0" || !is.JetStream || is.Time.IsZero() {
				t.Errorf("%s: server %+v", subject, is)
			}
			delete(fields, "server")
		}
		rest, err := json.Marshal(fields)
		testutil.Must(t, err)
		answer = string(rest)
	}
	return answer, hub.forwarded
}

// TestEachServerAnswersForItself: a request to all is answered and passed on, one to another server
// is passed on only, and one from another broker is never passed on.
func TestEachServerAnswersForItself(t *testing.T) {
	everybody := []string{"id-1", "id-2"}
	for _, test := range []struct {
		subject, payload string
		forwarded        bool
		answer           string
		passed           []string
	}{
		{"SERVER.PING", "", false, `{"statsz":"stats"}`, everybody},
		{"SERVER.PING", "", true, `{"statsz":"stats"}`, nil},
		{"SERVER.PING.STATSZ", "", false, `{"statsz":"stats"}`, everybody},
		{"SERVER.PING.VARZ", "{}", false, `{"data":"vvvv"}`, everybody},
		{"SERVER.id-0.VARZ", "", false, `{"data":"vvvv"}`, nil},
		{"SERVER.id-0.VARZ", "", true, `{"data":"vvvv"}`, nil},
		{"SERVER.id-1.VARZ", "", false, "", []string{"id-1"}},
		{"SERVER.id-1.VARZ", "", true, "", nil},
		{"SERVER.nobody.VARZ", "", false, "", nil},
		{"SERVER.id-0.CONNZ", `{"sort":"subs","limit":7}`, false, `{"data":"7 by subs"}`, nil},
		{"ACCOUNT.PING.CONNZ", `{"sort":"idle"}`, true, `{"data":"0 by idle"}`, nil},
		{"SERVER.id-0.CONNZ", `{"sort":"nonsense"}`, false, `{"error":{"code":400,"description":"connections can't be sorted by nonsense"}}`, nil},
		{"SERVER.PING.SUBSZ", "", true, `{"data":"subs"}`, nil},
		{"SERVER.PING.JSZ", "", true, `{"data":"js"}`, nil},
		{"SERVER.PING.ROUTEZ", "", true, `{"data":"routes"}`, nil},
		{"SERVER.PING.ACCOUNTZ", "", true, `{"data":"accounts"}`, nil},
		{"ACCOUNT.PING.STATZ", "", true, `{"data":"account stats"}`, nil},
		{"SERVER.PING.HEALTHZ", "", true, `{"data":"health"}`, nil},
		{"SERVER.PING.IDZ", "", true, `{"host":"main-0.svc","id":"id-0","name":"main-0"}`, nil},
		{"SERVER.id-0.KICK", "", false, `{"error":{"code":501,"description":"KICK is not served by Carillon"}}`, nil},
		{"USER.INFO", "", false, `{"data":{"account":"$G","account_name":"$G","user":""}}`, nil},
		{"SERVER.PING.VARZ", `{"server_name":"main-"}`, true, `{"data":"vvvv"}`, nil},
		{"SERVER.PING.VARZ", `{"server_name":"main-","exact_match":true}`, true, "", nil},
		{"SERVER.PING.VARZ", `{"cluster":"default/main","exact_match":true}`, true, `{"data":"vvvv"}`, nil},
		{"SERVER.PING.VARZ", `{"host":"other"}`, true, "", nil},
		{"SERVER.PING.VARZ", `no JSON`, true, `{"error":{"code":400,"description":"invalid character 'o' in literal null (expecting 'u')"}}`, nil},
		{"SERVER.PING", strings.Repeat(" ", requestBytes+1), false, "", nil},
	} {
		answer, passed := ask(t, "$SYS.REQ."+test.subject, test.payload, test.forwarded)
		if answer != test.answer {
			t.Errorf("%s %.40s: answer %s, want %s", test.subject, test.payload, answer, test.answer)
		}
		for i := range passed {
			passed[i], _, _ = strings.Cut(passed[i], " ")
		}
		if !slices.Equal(passed, test.passed) {
			t.Errorf("%s: passed on to %q, want %q", test.subject, passed, test.passed)
		}
	}
}

// TestLargeAnswersAreRefused: an answer that is larger than a message may be says so.
func TestLargeAnswersAreRefused(t *testing.T) {
	hub := &fakeHub{}
	s := New(Config{Hub: hub, Pages: fakePages{10_000}, Payload: 500, Logger: slog.New(slog.DiscardHandler)})
	s.serve("VARZ", false, nil, []byte("answer"), nil)
	if len(hub.sent) != 1 || !strings.Contains(hub.sent[0], "413") || len(hub.sent[0]) > 500 {
		t.Errorf("%.600q", hub.sent)
	}
}

// TestAClientLearnsWhoItIs, and what it may do.
func TestAClientLearnsWhoItIs(t *testing.T) {
	for client, want := range map[uint64]string{
		7: `{"account":"$G","account_name":"$G","user":"ann","permissions":{"subscribe":{"deny":["a"]},"responses":{"max":1,"ttl":120000000000}}}`,
		8: `{"account":"$G","account_name":"$G","user":""}`,
	} {
		hub := &fakeHub{}
		s := New(Config{Hub: hub, Pages: fakePages{}, Logger: slog.New(slog.DiscardHandler)})
		s.TakeOf(client, []protocol.Message{{Subject: []byte("$SYS.REQ.USER.INFO"), Reply: []byte("answer")}}, nil, nil)
		s.jobs.Finish()
		if len(hub.sent) != 1 || !strings.Contains(hub.sent[0], `"data":`+want) {
			t.Errorf("client %d: %q", client, hub.sent)
		}
	}
}
