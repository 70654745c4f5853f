package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// attributesOf requests the attributes of a subject.
func attributesOf(t *testing.T, nc *nats.Conn, subject string) (is admin.SubjectAttributes) {
	t.Helper()
	got, err := nc.Request(admin.AttributesGetSubject, fmt.Appendf(nil, `{"subject":%q}`, subject), testutil.Patience)
	testutil.Must(t, err)
	testutil.Must(t, json.Unmarshal(got.Data, &is))
	return is
}

// with returns a message that declares attributes of its subject.
func with(subject, attributes, payload string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Header.Set("Carillon-Attributes", attributes)
	m.Data = []byte(payload)
	return m
}

// TestMessagesSetAttributesOfTheirSubjects: of live and stored messages, before they arrive, and
// bound to their connection. Repetitions write nothing. A message of a refused change is not
// stored, and its publisher hears why.
func TestMessagesSetAttributesOfTheirSubjects(t *testing.T) {
	local, _ := brokers.Coordinator(t)
	var clients []*nats.Conn
	failed := make(chan error, 10)
	for i := range 2 {
		address, _ := brokers.Run(t, limits.DefaultProfile, broker.Config{Name: fmt.Sprint("b", i), Cluster: "local/test", Data: t.TempDir(), Endpoints: local.Endpoints()})
		nc, err := nats.Connect("nats://"+address, nats.NoReconnect(), nats.Timeout(testutil.Patience), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { failed <- err }))
		testutil.Must(t, err)
		t.Cleanup(nc.Close)
		clients = append(clients, nc)
	}
	publisher, other := clients[0], clients[1]
	js, err := jetstream.New(publisher, jetstream.WithDefaultTimeout(testutil.Patience))
	testutil.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "readings", Subjects: []string{"sensors.>"}, AllowAtomicPublish: true})
	testutil.Must(t, err)

	heard, err := other.SubscribeSync("live.>")
	testutil.Must(t, err)
	testutil.Must(t, other.Flush())
	testutil.Eventually(t, "the brokers are linked", func() error {
		testutil.Must(t, publisher.Publish("live.1", nil))
		_, err := heard.NextMsg(testutil.Patience / 100)
		return err
	})
	testutil.Must(t, publisher.PublishMsg(with("live.7", `{"room":"410"}`, "x")))
	var got *nats.Msg
	for got == nil || got.Subject != "live.7" {
		got, err = heard.NextMsg(testutil.Patience)
		testutil.Must(t, err)
	}
	if got.Header.Get("Carillon-Attributes") != `{"room":"410"}` {
		t.Errorf("it arrives with %v", got.Header)
	}
	first := attributesOf(t, publisher, "live.7")
	if string(first.Attributes) != `{"room":"410"}` || !first.Bound {
		t.Errorf("its subject has %+v", first)
	}
	testutil.EventuallyTrue(t, "the other broker knows", func() bool { return attributesOf(t, other, "live.7").Revision == first.Revision })

	_, err = js.PublishMsg(ctx, with("sensors.7", `{"room":"411"}`, "1"))
	testutil.Must(t, err)
	stays := with("sensors.7", `{"floor":4}`, "2")
	stays.Header.Set("Carillon-Attributes-Bound", "false")
	_, err = js.PublishMsg(ctx, stays)
	testutil.Must(t, err)
	is := attributesOf(t, publisher, "sensors.7")
	if string(is.Attributes) != `{"floor":4,"room":"411"}` || is.Bound {
		t.Errorf("its subject has %+v", is)
	}
	for range 100 {
		_, err = js.PublishMsgAsync(stays)
		testutil.Must(t, err)
	}
	<-js.PublishAsyncComplete()
	if again := attributesOf(t, publisher, "sensors.7"); again.Revision != is.Revision {
		t.Errorf("repetitions have written: revision %d became %d", is.Revision, again.Revision)
	}

	// All messages of a batch are there, or none.
	batch := func(last string) (ack []byte) {
		for i, attributes := range []string{`{"n":1}`, `{"n":2}`, last} {
			m := with("sensors.8", attributes, fmt.Sprint(i))
			m.Header.Set("Nats-Batch-Id", "batch"+last)
			m.Header.Set("Nats-Batch-Sequence", fmt.Sprint(i+1))
			if i < 2 {
				testutil.Must(t, publisher.PublishMsg(m))
				continue
			}
			m.Header.Set("Nats-Batch-Commit", "1")
			answer, err := publisher.RequestMsg(m, testutil.Patience)
			testutil.Must(t, err)
			ack = answer.Data
		}
		return ack
	}
	stored := func() uint64 {
		info, err := stream.Info(ctx)
		testutil.Must(t, err)
		return info.State.Msgs
	}
	before := stored()
	if ack := batch(`{"n":3}`); strings.Contains(string(ack), "error") || stored() != before+3 || string(attributesOf(t, publisher, "sensors.8").Attributes) != `{"n":3}` {
		t.Errorf("a batch is answered by %s, there are %d messages after %d, and attributes %+v", ack, stored(), before, attributesOf(t, publisher, "sensors.8"))
	}
	if ack := batch(`{"n":null}`); !strings.Contains(string(ack), "error") || stored() != before+3 {
		t.Errorf("a batch whose end is refused is answered by %s, and there are %d messages after %d", ack, stored(), before+3)
	}

	_, err = js.PublishMsg(ctx, with("sensors.9", `{"1":2}`, "no"))
	api := (*jetstream.APIError)(nil)
	if !errors.As(err, &api) || api.Code != 400 || !strings.Contains(api.Description, "letter") {
		t.Errorf("a wrong header is answered by %v", err)
	}
	testutil.Must(t, publisher.PublishMsg(with("live.9", `wrong`, "no")))
	testutil.Must(t, publisher.Flush())
	if err := <-failed; !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "attributes of its subject were not set") {
		t.Errorf("a client hears %v", err)
	}
	testutil.Must(t, publisher.Publish("live.end", nil))
	if got, err = heard.NextMsg(testutil.Patience); err != nil || got.Subject != "live.end" || stored() != before+3 {
		t.Errorf("after refused messages came %v, %v, and there are %d messages", got, err, stored())
	}
}

// TestMessagesOfAFastBatchSetAttributes: each before it is stored. A refused one is answered as
// such and missing in its batch, which goes on or ends as its publisher has asked for.
func TestMessagesOfAFastBatchSetAttributes(t *testing.T) {
	local, _ := brokers.Coordinator(t)
	address, _ := brokers.Run(t, limits.DefaultProfile, broker.Config{Name: "b0", Cluster: "local/test", Data: t.TempDir(), Endpoints: local.Endpoints()})
	nc, err := nats.Connect("nats://"+address, nats.NoReconnect(), nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testutil.Patience))
	testutil.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "readings", Subjects: []string{"sensors.>"}, AllowBatchPublish: true})
	testutil.Must(t, err)
	for mode, c := range map[string]struct {
		answers, stored, last string
	}{
		"ok":   {"ack 0, err 3 400, gap 3 4, 4 messages", "0 1 3", `{"n":4}`},
		"fail": {"ack 0, err 3 400, gap 3 4, 2 messages", "0 1", `{"n":2}`},
	} {
		inbox, on := nats.NewInbox(), "sensors."+mode
		sub, err := nc.SubscribeSync(inbox + ".>")
		testutil.Must(t, err)
		send := func(sequence, operation int, attributes string) {
			m := with(on, attributes, fmt.Sprint(sequence-1))
			m.Reply = fmt.Sprintf("%s.%s.100.%s.%d.%d.$FI", inbox, mode, mode, sequence, operation)
			testutil.Must(t, nc.PublishMsg(m))
		}
		send(1, 0, `{"n":1}`)
		send(2, 1, `{"n":2}`)
		send(3, 1, `{"n":null}`)
		send(4, 2, `{"n":4}`)
		var answers []string
		for done := false; !done; {
			m, err := sub.NextMsg(testutil.Patience)
			if err != nil {
				t.Fatalf("gaps %s: after %v: %v", mode, answers, err)
			}
			var is struct {
				Type  string
				Seq   uint64
				Last  uint64 `json:"last_seq"`
				Count int
				Error *jetstream.APIError
			}
			testutil.Must(t, json.Unmarshal(m.Data, &is))
			switch {
			case is.Type == "ack":
				answers = append(answers, fmt.Sprint("ack ", is.Seq))
			case is.Type == "gap":
				answers = append(answers, fmt.Sprint("gap ", is.Last, " ", is.Seq))
			case is.Type == "err" && is.Error != nil:
				answers = append(answers, fmt.Sprint("err ", is.Seq, " ", is.Error.Code))
			default:
				answers, done = append(answers, fmt.Sprint(is.Count, " messages")), true
				if is.Error != nil {
					t.Errorf("gaps %s: the end is answered by %s", mode, m.Data)
				}
			}
		}
		if got := strings.Join(answers, ", "); got != c.answers {
			t.Errorf("gaps %s: the answers are %s, want %s", mode, got, c.answers)
		}
		var stored []string
		info, err := stream.Info(ctx)
		testutil.Must(t, err)
		for n := info.State.FirstSeq; n <= info.State.LastSeq; n++ {
			m, err := stream.GetMsg(ctx, n)
			testutil.Must(t, err)
			if m.Subject == on {
				stored = append(stored, string(m.Data))
			}
		}
		if got := strings.Join(stored, " "); got != c.stored {
			t.Errorf("gaps %s: stored are %s, want %s", mode, got, c.stored)
		}
		if is := attributesOf(t, nc, on); mode == "ok" && string(is.Attributes) != c.last {
			t.Errorf("gaps %s: the subject has %+v, want %s", mode, is, c.last)
		}
	}
}
