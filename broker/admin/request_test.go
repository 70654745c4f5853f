package admin

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// inbox is a hub that records what is sent.
type inbox struct {
	got       []protocol.Message
	forwarded []string // by broker and subject
}

func (i *inbox) SendLent(_ *session.Loan, messages []protocol.Message) work.Behind {
	return i.Send(messages)
}

func (i *inbox) Send(messages []protocol.Message) (behind work.Behind) {
	i.got = append(i.got, messages...)
	return behind
}

func (i *inbox) Interested([]byte) bool { return true }

func (i *inbox) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	i.forwarded = append(i.forwarded, broker+" "+string(m.Subject))
	return true, behind
}

type known struct{ state *coordination.State }

func (k known) State() *coordination.State { return k.state }
func (k known) ByID(string) *topic.Topic   { return nil }

func newServer(state *coordination.State) (*Server, *inbox) {
	box := &inbox{}
	return New("a", known{state}, box, slog.New(slog.DiscardHandler)), box
}

// ask makes one request and decodes its answer.
func ask[T any](t *testing.T, s *Server, box *inbox, subject, payload string) (answer T) {
	t.Helper()
	box.got = nil
	s.Take([]protocol.Message{{Subject: []byte(subject), Reply: []byte("_INBOX.1"), Data: []byte(payload)}}, nil, false)
	if len(box.got) != 1 || string(box.got[0].Subject) != "_INBOX.1" {
		t.Fatalf("%s was answered by %d messages", subject, len(box.got))
	}
	if err := json.Unmarshal(box.got[0].Data, &answer); err != nil {
		t.Fatalf("%s was answered by %s: %v", subject, box.got[0].Data, err)
	}
	return answer
}

type onlyError struct {
	Error *Error `json:"error"`
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	s, box := newServer(&coordination.State{})
	for _, tc := range []struct {
		subject, payload string
		code             Code
		text             string
	}{
		{"$CARILLON.API.TOPIC", "", BadRequest, "there is no request"},
		{"$CARILLON.API.TOPIC.DELETE.orders", "", BadRequest, "there is no request"},
		{"$CARILLON.API.TOPIC.LIST.orders", "", BadRequest, "there is no request"},
		{"$CARILLON.API.TOPIC.INFO", "", BadRequest, "there is no request"},
		{"$CARILLON.API.TOPIC.INFO.a.b", "", BadRequest, "there is no request"},
		{"$CARILLON.API.SUBSCRIPTION.INFO.a", "", BadRequest, "there is no request"},
		{"$CARILLON.API.SUBSCRIPTION.INFO.a.b.c", "", BadRequest, "there is no request"},
		{"$CARILLON.API.SUBSCRIPTION.STATES.a", "", BadRequest, "there is no request"},
		{"$CARILLON.API.SUBSCRIPTION.STATES.a.b", `{"limit":257}`, BadRequest, "use 1 to 256"},
		{"$CARILLON.API.SUBSCRIPTION.STATES.a.b", `{"named":"a"}`, BadRequest, "unknown field"},
		{"$CARILLON.API.SUBSCRIPTION.STATES.a.b", "", NotFound, "there is no topic"},
		{"$CARILLON.API." + strings.Repeat("x", 1000), "", BadRequest, "there is no request"},
		{"$CARILLON.API.TOPIC.INFO.orders", "{}", BadRequest, "takes no payload"},
		{"$CARILLON.API.TOPIC.LIST", `{"afterwards":"a"}`, BadRequest, "unknown field"},
		{"$CARILLON.API.TOPIC.LIST", `{"limit":257}`, BadRequest, "use 1 to 256"},
		{"$CARILLON.API.TOPIC.LIST", `{"limit":-1}`, BadRequest, "use 1 to 256"},
		{"$CARILLON.API.TOPIC.LIST", `{} {}`, BadRequest, "more than one value"},
		{"$CARILLON.API.TOPIC.LIST", `{"after":"` + strings.Repeat("x", 8<<10) + `"}`, BadRequest, "use at most 4096"},
		{"$CARILLON.API.TOPIC.CREATE.orders", "", BadRequest, "it is empty"},
		{"$CARILLON.API.TOPIC.CREATE.orders", `{"streams":{}}`, BadRequest, "unknown field"},
		{"$CARILLON.API.TOPIC.CREATE.orders", `{"stream":{"colour":"red"}}`, BadRequest, "unknown field"},
		{"$CARILLON.API.TOPIC.CREATE.orders", `{}`, NotReady, "not ready to change anything"},
		{"$CARILLON.API.SUBSCRIPTION.RESET.orders", "", BadRequest, "there is no request"},
		{"$CARILLON.API.SUBSCRIPTION.RESET.orders.billing", "", BadRequest, "it is empty"},
		{"$CARILLON.API.SUBSCRIPTION.RESET.orders.billing", `{"from":"Latest"}`, BadRequest, "unknown field"},
		{"$CARILLON.API.SUBSCRIPTION.RESET.orders.billing", `{"to":{"from":"Latest"}}`, NotReady, "not ready to change anything"},
		{"$CARILLON.API.BROKER.LIST.a", "", BadRequest, "there is no request"},
		{"$CARILLON.API.BROKER.DRAIN", "", BadRequest, "there is no request"},
		{"$CARILLON.API.BROKER.DRAIN.a", `{"node":"All"}`, BadRequest, "unknown field"},
		{"$CARILLON.API.BROKER.UNDRAIN.a", `{}`, BadRequest, "takes no payload"},
		{"$CARILLON.API.BROKER.UNDRAIN.a", "", NotReady, "not ready to change anything"},
		{"$CARILLON.API.BROKER.CLOCK", "", BadRequest, "there is no request"},
		{"$CARILLON.API.BROKER.CLOCK.a", "{}", BadRequest, "takes no payload"},
		{"$CARILLON.API.BROKER.CLOCK.a", "", NotReady, "ask again"},
		{"$CARILLON.API.BROKER.CLOCK.b", "", NotFound, `no broker with the id "b"`},
		{"$CARILLON.API.BROKER.CONFIRMCLOCK.a", "", BadRequest, "it is empty"},
		{"$CARILLON.API.BROKER.CONFIRMCLOCK.a", "{}", BadRequest, "there is no time in it"},
		{"$CARILLON.API.BROKER.CONFIRMCLOCK.a", `{"time":"noon"}`, BadRequest, "write the time that it is"},
		{"$CARILLON.API.TOPIC.INFO.orders", "", NotFound, `there is no topic "orders"`},
		{"$CARILLON.API.SUBSCRIPTION.LIST.orders", "", NotFound, `there is no topic "orders"`},
		{"$CARILLON.API.SUBSCRIPTION.INFO.orders.billing", "", NotFound, `there is no topic "orders"`},
	} {
		got := ask[onlyError](t, s, box, tc.subject, tc.payload).Error
		if got == nil || got.Code != tc.code || !strings.Contains(got.Text, tc.text) || len(got.Text) > 600 {
			t.Errorf("%.60s %.40s: %+v, want %s and %q", tc.subject, tc.payload, got, tc.code, tc.text)
		}
	}
}

func TestABrokerWithoutAStateReportsNotReady(t *testing.T) {
	s, box := newServer(nil)
	if got := ask[onlyError](t, s, box, TopicListSubject, "").Error; got == nil || got.Code != NotReady {
		t.Errorf("it said %+v", got)
	}
}

func TestAnEmptyListIsEncodedAsAList(t *testing.T) {
	s, box := newServer(&coordination.State{Revision: 7})
	ask[TopicList](t, s, box, TopicListSubject, `{"after":"a","limit":1}`)
	if got := string(box.got[0].Data); got != `{"revision":7,"total":0,"topics":[]}` {
		t.Error(got)
	}
}

// TestRequestsOfOneReadAreBounded: the requests of one read cost a bounded time and fill a bounded
// part of a client's queue.
func TestRequestsOfOneReadAreBounded(t *testing.T) {
	s, box := newServer(&coordination.State{})
	messages := make([]protocol.Message, 1000)
	for i := range messages {
		messages[i] = protocol.Message{Subject: []byte(TopicListSubject), Reply: []byte("r")}
	}
	messages[0].Reply = nil // without a reply subject
	if s.Take(messages, nil, false) {
		t.Error("it is behind, and will never say when it isn't")
	}
	busy := 0
	for _, m := range box.got {
		if strings.Contains(string(m.Data), string(Busy)) {
			busy++
		}
	}
	if len(box.got) != 999 || busy != 999-maxAnswers {
		t.Errorf("%d answers, %d of them busy", len(box.got), busy)
	}
}

// TestRefusedRequestsHoldTheirClientUp: those that are refused for what they say do not.
func TestRefusedRequestsHoldTheirClientUp(t *testing.T) {
	s, _ := newServer(&coordination.State{})
	messages := make([]protocol.Message, maxAnswers+10)
	for i := range messages {
		messages[i] = protocol.Message{Subject: []byte(TopicListSubject + ".none"), Reply: []byte("r")}
	}
	var behind work.Behind
	if s.TakeOf(1, messages[:maxAnswers], nil, &behind); behind.Any() {
		t.Error("requests that nobody knows hold their client up")
	}
	if s.TakeOf(1, messages, nil, &behind); !behind.Pauses() {
		t.Error("ten requests beyond the bound don't hold their client up")
	}
}

// TestHeadersAreLeftOut: headers are no part of a request.
func TestHeadersAreLeftOut(t *testing.T) {
	s, box := newServer(&coordination.State{})
	header := "NATS/1.0\r\nA: b\r\n\r\n"
	s.Take([]protocol.Message{{Subject: []byte(TopicListSubject), Reply: []byte("r"), Header: len(header), Data: []byte(header + `{"limit":3}`)}}, nil, false)
	if got := string(box.got[0].Data); strings.Contains(got, "error") {
		t.Error(got)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("$CARILLON.API.TOPIC.LIST", `{"after":"a","limit":3}`)
	f.Add("$CARILLON.API.SUBSCRIPTION.INFO.a.b", "")
	f.Add("$CARILLON.API.TOPIC.INFO..", " \n")
	f.Add("$CARILLON.API.TOPIC.CREATE.orders", `{"stream":{"subjects":["orders.>"]},"minInSync":2}`)
	f.Add("$CARILLON.API.BROKER.DRAIN.b0", `{"mode":"Leadership"}`)
	f.Add("$CARILLON.API.BROKER.UNDRAIN.b0", "")
	f.Add("$CARILLON.API.BROKER.CLOCK.b0", "")
	f.Add("$CARILLON.API.BROKER.CONFIRMCLOCK.b0", `{"time":"2026-01-31T12:00:00Z"}`)
	f.Add("$CARILLON.API.BROKER.LIST", `{"after":"b0"}`)
	f.Fuzz(func(t *testing.T, subject, payload string) {
		r, refusal := parse([]byte(subject), []byte(payload))
		if refusal == nil {
			want := map[kind]string{brokerList: BrokerListSubject, brokerDrain: BrokerDrainSubject + r.broker, brokerUndrain: BrokerUndrainSubject + r.broker,
				brokerClock: BrokerClockSubject + r.broker, brokerConfirmClock: BrokerConfirmClockSubject + r.broker,
				topicCreate: TopicCreateSubject + r.topic, topicList: TopicListSubject, topicInfo: TopicInfoSubject + r.topic, subscriptionList: SubscriptionListSubject + r.topic, subscriptionInfo: SubscriptionInfoSubject + r.topic + "." + r.subscription}[r.kind]
			if want != subject {
				t.Errorf("%q was understood as %q", subject, want)
			}
			if r.page.Limit < 1 || r.page.Limit > MaxPage {
				t.Errorf("a page of %d", r.page.Limit)
			}
		}
		s, box := newServer(&coordination.State{})
		var answer onlyError
		s.Take([]protocol.Message{{Subject: []byte(subject), Reply: []byte("r"), Data: []byte(payload)}}, nil, false)
		if len(box.got) == 0 {
			t.Fatalf("%q %q was not answered", subject, payload)
		}
		if len(box.got) != 1 || json.Unmarshal(box.got[0].Data, &answer) != nil || len(box.got[0].Data) > 16<<10 {
			t.Fatalf("%q %q was answered by %d messages: %.200q", subject, payload, len(box.got), box.got[0].Data)
		}
		if (refusal != nil) != (answer.Error != nil && answer.Error.Code == BadRequest) {
			t.Errorf("%q %q: %v, and yet the answer was %s", subject, payload, refusal, box.got[0].Data)
		}
	})
}

// TestTopicsThatCopyOthers: settings that JetStream lacks go with sources and mirrors. A mirror has
// the shards of its origin, and no other number of them.
func TestTopicsThatCopyOthers(t *testing.T) {
	wide := coordination.TopicSpec{Subjects: []string{"wide.>"}, Shards: 3, PartitionBy: coordination.ByTokens, PartitionTokens: []int{2}, Stream: coordination.StreamSettings{AllowDirect: true}}
	state := coordination.NewState(1, nil, []*coordination.Topic{{Name: "wide", Spec: wide}}, nil, nil)
	mirror := func(of string) jsapi.StreamConfig { return jsapi.StreamConfig{Mirror: &jsapi.StreamSource{Name: of}} }
	sources := func(of string) jsapi.StreamConfig {
		return jsapi.StreamConfig{Sources: []*jsapi.StreamSource{{Name: of}}}
	}
	for _, test := range []struct {
		request CreateRequest
		shards  int
		refusal string
	}{
		{CreateRequest{Stream: mirror("wide"), MinInSync: 1}, 3, ""},
		{CreateRequest{Stream: mirror("wide"), Shards: 3, PartitionTokens: []int{2}}, 3, ""},
		{CreateRequest{Stream: mirror("wide"), Shards: 1}, 0, "the mirror has 1 shard, and wide, which it mirrors, has 3"},
		{CreateRequest{Stream: mirror("wide"), PartitionTokens: []int{1}}, 0, "other tokens of a subject decide"},
		{CreateRequest{Stream: mirror("later")}, 1, ""},
		{CreateRequest{Stream: mirror("later"), Shards: 4}, 4, ""},
		{CreateRequest{Stream: sources("wide"), Shards: 4, MinInSync: 1, PartitionTokens: []int{3}}, 4, ""},
		{CreateRequest{Stream: sources("orders")}, 0, "detected cycle"},
		{CreateRequest{Stream: jsapi.StreamConfig{Mirror: &jsapi.StreamSource{Name: "wide"}, AllowAtomic: true}}, 0, "no atomic batches"},
	} {
		spec, refusal := test.request.spec("orders", state)
		if refusal == nil {
			refusal = test.request.divide(&spec, spec.Origin(state))
		}
		if refusal != nil {
			if test.refusal == "" || !strings.Contains(refusal.Text, test.refusal) {
				t.Errorf("%+v: %v, want %q", test.request, refusal.Text, test.refusal)
			}
			continue
		}
		if test.refusal != "" || spec.Shards != test.shards || spec.MinInSync != test.request.MinInSync || len(spec.Stream.Copies()) != 1 {
			t.Errorf("%+v is made as %+v, want %q", test.request, spec, test.refusal)
		}
		if of := test.request.Stream.Mirror; of != nil && of.Name == "wide" && (!spec.Stream.MirrorDirect || !slices.Equal(spec.PartitionTokens, []int{2})) {
			t.Errorf("a mirror is made as %+v", spec)
		}
	}
}
