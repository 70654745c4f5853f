package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// mailbox is a hub that receives answers from any goroutine.
type mailbox struct {
	inbox
	answers chan []byte
}

func (m *mailbox) SendLent(_ *session.Loan, messages []protocol.Message) work.Behind {
	return m.Send(messages)
}

func (m *mailbox) Send(messages []protocol.Message) (behind work.Behind) {
	for _, message := range messages {
		m.answers <- append([]byte(nil), message.Data...)
	}
	return behind
}

// change sends a write request and waits for its answer.
func change[A any](t *testing.T, s *Server, subject, payload string) (answer A) {
	t.Helper()
	box := s.hub.(*mailbox)
	s.Take([]protocol.Message{{Subject: []byte(subject), Reply: []byte("_INBOX.1"), Data: []byte(payload)}}, nil, false)
	select {
	case data := <-box.answers:
		if err := json.Unmarshal(data, &answer); err != nil {
			t.Fatalf("%s was answered by %s: %v", subject, data, err)
		}
	case <-time.After(testutil.Patience):
		t.Fatalf("%s was not answered", subject)
	}
	return answer
}

func newMailbox() *mailbox { return &mailbox{answers: make(chan []byte, 512)} }

func TestBrokersAreDrainedAndTopicsMade(t *testing.T) {
	ctx := context.Background()
	c := startAdmin(t)
	box := newMailbox()
	s := New("a", c, box, c.server.log).Writing(c.Client)
	s.writes = newTasks(writesAtOnce, testutil.Patience, &s.refused) // a busy machine takes its time
	t.Cleanup(s.Close)
	for _, id := range []string{"a", "b"} {
		c.join(id)
	}
	wait := c.await
	wait("both are there", func(state *coordination.State) bool { return len(state.Brokers) == 2 })

	// A Topic with settings that JetStream cannot express is created, and the request repeated.
	const wish = `{"stream":{"subjects":["orders.>"],"num_replicas":2,"storage":"file"},"minInSync":1,"uncleanElection":true}`
	made := change[TopicInfo](t, s, TopicCreateSubject+"orders", wish)
	if made.Error != nil || made.Topic == nil || made.Topic.Spec.Replicas != 2 || made.Topic.Spec.MinInSync != 1 || !made.Topic.Spec.UncleanElection ||
		made.Topic.Owner.Kind != coordination.ClientOwner || made.Topic.Spec.Deduplication != 2*time.Minute {
		t.Fatalf("it was answered %+v %+v", made.Error, made.Topic)
	}
	if again := change[TopicInfo](t, s, TopicCreateSubject+"orders", wish); again.Topic == nil || again.Topic.ID != made.Topic.ID {
		t.Errorf("asked for again: %+v", again)
	}
	if again := change[TopicInfo](t, s, TopicCreateSubject+"orders", `{"stream":{"subjects":["orders.>"]},"minInSync":1,"uncleanElection":true}`); again.Topic == nil || again.Topic.ID != made.Topic.ID {
		t.Errorf("asked for by one who leaves the number of replicas to brokers: %+v", again)
	}
	owner := coordination.Owner{Kind: coordination.ManifestOwner, Namespace: "shop", Name: "audit", UID: "u"}
	declared, err := c.CreateTopic(ctx, "audit", coordination.TopicSpec{Subjects: []string{"audit"}, Shards: 1, Deduplication: 2 * time.Minute}, owner)
	if err != nil {
		t.Fatal(err)
	}
	if same := change[TopicInfo](t, s, TopicCreateSubject+"audit", `{"stream":{}}`); same.Topic == nil || same.Topic.ID != declared.ID || same.Topic.Owner.Name != "audit" {
		t.Errorf("what a manifest declares just so is answered %+v", same)
	}
	for payload, want := range map[string]Code{
		`{"stream":{"subjects":["orders.>"],"num_replicas":2},"minInSync":2}`: Exists,
		`{"stream":{"subjects":["orders.>"],"num_replicas":1}}`:               Exists,
		`{"stream":{"name":"other"}}`:                                         BadRequest,
		`{"stream":{"num_replicas":6}}`:                                       BadRequest,
		`{"stream":{"allow_atomic":true},"shards":2}`:                         BadRequest,
		`{"stream":{"allow_batched":true},"shards":2}`:                        BadRequest,
		`{"stream":{"num_replicas":1},"minInSync":2}`:                         BadRequest,
		`{"stream":{"num_replicas":3}}`:                                       Refused,
	} {
		if got := change[onlyError](t, s, TopicCreateSubject+"orders", payload).Error; got == nil || got.Code != want || got.Text == "" {
			t.Errorf("%s is answered %+v, want %s", payload, got, want)
		}
	}
	if got := change[onlyError](t, s, TopicCreateSubject+"more", `{"stream":{"subjects":["orders.eu"]}}`).Error; got == nil || got.Code != Refused || !strings.Contains(got.Text, "overlaps") {
		t.Errorf("what another keeps is answered %+v", got)
	}

	// These brokers announce no feature, so they may be of a version that ignores newer settings.
	for setting, stream := range map[string]string{
		"allow_atomic": `{"allow_atomic":true}`, "allow_msg_counter": `{"allow_msg_counter":true}`, "allow_msg_ttl": `{"allow_msg_ttl":true}`,
		"allow_msg_schedules": `{"allow_msg_schedules":true}`, "republish": `{"republish":{"src":">","dest":"again.>"}}`,
		"discard: new": `{"discard":"new"}`, "max_msgs_per_subject": `{"max_msgs_per_subject":1}`, "retention: workqueue": `{"retention":"workqueue"}`,
	} {
		got := change[onlyError](t, s, TopicCreateSubject+"newer", `{"stream":`+stream+`}`).Error
		if got == nil || got.Code != Refused || !strings.Contains(got.Text, setting+" is not supported until broker main-") {
			t.Errorf("%s is answered %+v", stream, got)
		}
	}
	if made, err := c.GetTopic(ctx, "newer"); err == nil {
		t.Errorf("%+v was created", made)
	}

	// A broker is drained in another mode, and undrained. The answer equals that of the next
	// request.
	for _, step := range []struct {
		subject, payload string
		want             coordination.DrainMode
	}{
		{BrokerDrainSubject + "b", "", coordination.DrainAll}, {BrokerDrainSubject + "b", `{"mode":"All"}`, coordination.DrainAll},
		{BrokerDrainSubject + "b", `{"mode":"Leadership"}`, coordination.DrainLeadership}, {BrokerUndrainSubject + "b", "", ""}, {BrokerUndrainSubject + "b", "", ""},
	} {
		got := change[BrokerInfo](t, s, step.subject, step.payload)
		if got.Error != nil || got.Broker == nil || got.Broker.Drain != step.want || got.Broker.Name != "main-b" || c.State().Drain("b") != step.want {
			t.Errorf("%s %s is answered %+v", step.subject, step.payload, got)
		}
	}
	if got := change[onlyError](t, s, BrokerDrainSubject+"b", `{"mode":"Some"}`).Error; got == nil || got.Code != BadRequest {
		t.Errorf("an unknown mode is answered %+v", got)
	}
	if got := change[onlyError](t, s, BrokerDrainSubject+"c", "").Error; got == nil || got.Code != NotFound {
		t.Errorf("an unknown broker is answered %+v", got)
	}

	// What a broker left behind that is gone for good can be deleted.
	if err := c.Drain(ctx, coordination.Replica{Broker: "gone"}, coordination.DrainAll, false); err != nil {
		t.Fatal(err)
	}
	wait("the drain is known", func(state *coordination.State) bool { return state.Drain("gone") != "" })
	if got := change[BrokerInfo](t, s, BrokerUndrainSubject+"gone", ""); got.Broker == nil || !got.Broker.Away || got.Broker.Drain != "" {
		t.Errorf("it is answered %+v", got)
	}
}

// stuck is an etcd that does not answer.
type stuck struct {
	Store
	asked sync.WaitGroup
}

func (s *stuck) EndDrain(ctx context.Context, _ string) error {
	s.asked.Done()
	<-ctx.Done()
	return ctx.Err()
}

// TestWritesThatWaitForEtcdAreBounded: while etcd does not answer, a bounded number of writes wait,
// reads work, and Close does not wait for the writes.
func TestWritesThatWaitForEtcdAreBounded(t *testing.T) {
	box := newMailbox()
	state := coordination.NewState(1, []coordination.Broker{{ID: "a", Incarnation: 1}}, nil, nil, nil)
	store := &stuck{}
	s := New("a", known{state}, box, slog.New(slog.DiscardHandler)).Writing(store)
	s.writes = newTasks(writesAtOnce, testutil.Patience, &s.refused) // no write ends before Close
	store.asked.Add(writesAtOnce)
	undrain := protocol.Message{Subject: []byte(BrokerUndrainSubject + "a"), Reply: []byte("r")}
	s.Accounts(ownAccounts)
	for client := range uint64(writesAtOnce) {
		s.TakeOf(10+client, []protocol.Message{undrain}, nil, &work.Behind{})
	}
	store.asked.Wait()
	for range tasksWaiting {
		s.Take([]protocol.Message{undrain}, nil, false)
	}
	if got := change[onlyError](t, s, BrokerUndrainSubject+"a", "").Error; got == nil || got.Code != Busy {
		t.Errorf("one more is answered %+v", got)
	}
	// Another client gets in, at the cost of the first one's newest request.
	s.TakeOf(2, []protocol.Message{{Subject: undrain.Subject, Reply: []byte("other")}}, nil, &work.Behind{})
	var got onlyError
	if err := json.Unmarshal(<-box.answers, &got); err != nil || got.Error == nil || got.Error.Code != Busy || !strings.Contains(got.Error.Text, "256 wait") {
		t.Errorf("it is answered %+v, %v", got.Error, err)
	}
	if n := s.Stats().Overloaded; n != 2 {
		t.Errorf("%d requests were refused", n)
	}
	if got := change[BrokerList](t, s, BrokerListSubject, ""); got.Error != nil || len(got.Brokers) != 1 {
		t.Errorf("meanwhile the list is %+v", got)
	}
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > testutil.Patience/2 {
		t.Errorf("closing took %s", took)
	}
	codes := map[Code]int{}
	for range writesAtOnce + tasksWaiting {
		var got onlyError
		if err := json.Unmarshal(<-box.answers, &got); err != nil || got.Error == nil {
			t.Fatalf("it is answered %+v, %v", got.Error, err)
		}
		codes[got.Error.Code]++
	}
	if codes[Unavailable] != writesAtOnce || codes[Busy] != tasksWaiting {
		t.Errorf("the answers were %v", codes)
	}
	if got := change[onlyError](t, s, BrokerUndrainSubject+"a", "").Error; got == nil || got.Code != Busy {
		t.Errorf("afterwards it is answered %+v", got)
	}
}

// lives returns brokers with the given incarnations.
func lives(incarnations map[string]int64) (all []coordination.Broker) {
	for id, n := range incarnations {
		all = append(all, coordination.Broker{ID: id, Name: "main-" + id, Incarnation: n})
	}
	return all
}

func TestTheStatusNamesMissingReplicas(t *testing.T) {
	all := func(incarnations ...int64) (set []coordination.Replica) {
		for i, n := range incarnations {
			if n > 0 {
				set = append(set, coordination.Replica{Broker: string(rune('a' + i)), Incarnation: n})
			}
		}
		return set
	}
	three := lives(map[string]int64{"a": 1, "b": 2, "c": 3})
	for name, tc := range map[string]struct {
		brokers  []coordination.Broker
		shard    coordination.Shard
		spec     coordination.TopicSpec
		suspects map[string][]coordination.Suspect
		served   bool
		reason   Reason
		why      []string
		inSync   int
	}{
		"all is well":         {three, coordination.Shard{InSync: all(1, 2, 3)}, coordination.TopicSpec{}, nil, true, "", nil, 3},
		"one is away":         {lives(map[string]int64{"a": 1, "b": 2}), coordination.Shard{InSync: all(1, 2)}, coordination.TopicSpec{}, nil, true, UnderReplicated, []string{"2 of 3", "broker c is away"}, 2},
		"away, not yet out":   {lives(map[string]int64{"a": 1, "b": 2}), coordination.Shard{InSync: all(1, 2, 3)}, coordination.TopicSpec{}, nil, true, UnderReplicated, []string{"broker c is away"}, 2},
		"one catches up":      {three, coordination.Shard{InSync: all(1, 0, 3)}, coordination.TopicSpec{}, nil, true, UnderReplicated, []string{"main-b catches up"}, 2},
		"in another life":     {three, coordination.Shard{InSync: all(1, 1, 3)}, coordination.TopicSpec{}, nil, true, UnderReplicated, []string{"main-b catches up"}, 2},
		"one is suspect":      {three, coordination.Shard{InSync: all(1, 2, 3)}, coordination.TopicSpec{}, map[string][]coordination.Suspect{"b": {{Topic: "id"}}}, true, UnderReplicated, []string{"main-b can't vouch"}, 2},
		"one is repaired":     {three, coordination.Shard{InSync: all(1, 2, 3)}, coordination.TopicSpec{}, map[string][]coordination.Suspect{"b": {{Topic: "id", Lacks: 2}}}, true, UnderReplicated, []string{"main-b has damaged segments, which are fetched from the leader (2)"}, 2},
		"too few":             {three, coordination.Shard{InSync: all(1)}, coordination.TopicSpec{}, nil, false, NotEnoughInSync, []string{"1 of 3", "2 must be", "publishing waits", "main-b catches up, main-c catches up"}, 1},
		"few are enough":      {three, coordination.Shard{InSync: all(1)}, coordination.TopicSpec{MinInSync: 1}, nil, true, UnderReplicated, []string{"1 of 3"}, 1},
		"too few brokers":     {three, coordination.Shard{InSync: all(1, 2, 3)}, coordination.TopicSpec{Replicas: 5}, nil, true, UnderReplicated, []string{"3 of 5", "2 have no broker yet"}, 3},
		"one comes, one goes": {three, coordination.Shard{InSync: all(1, 2), Adding: []string{"c"}, Removing: []string{"b"}}, coordination.TopicSpec{Replicas: 2}, nil, true, UnderReplicated, []string{"main-c catches up"}, 2},
	} {
		tc.spec.Subjects, tc.spec.Shards = []string{"orders"}, 1
		made := &coordination.Topic{Name: "orders", ID: "id", Spec: tc.spec}
		shard := tc.shard
		shard.Topic, shard.Epoch, shard.Leader, shard.Replicas = "id", 4, "a", []string{"a", "b", "c"}
		state := coordination.NewState(1, tc.brokers, []*coordination.Topic{made}, []*coordination.Shard{&shard}, nil).With(nil, tc.suspects)
		got := view{state: state, trouble: func(string, int) error { return nil }}.topic(made)
		for _, why := range tc.why {
			if !strings.Contains(got.Why, why) {
				t.Errorf("%s: it says %q, and not %q", name, got.Why, why)
			}
		}
		if got.Served != tc.served || got.Reason != tc.reason || got.Shards[0].InSync != tc.inSync || (got.Why == "") != (tc.reason == "") || len(got.Shards[0].Replicas) != 3 {
			t.Errorf("%s: %+v, %d in sync", name, got.Status, got.Shards[0].InSync)
		}
	}
}

// TestLeadershipsAndReplicasAreCountedPerBroker: leaderships and replicas are counted per broker,
// including brokers that are away, and pages follow each other.
func TestLeadershipsAndReplicasAreCountedPerBroker(t *testing.T) {
	var topics []*coordination.Topic
	var shards []*coordination.Shard
	for i := range 3 {
		id := fmt.Sprintf("id%d", i)
		topics = append(topics, &coordination.Topic{Name: fmt.Sprintf("t%d", i), ID: id, Spec: coordination.TopicSpec{Subjects: []string{id}, Shards: 1, Replicas: 3}})
		shards = append(shards, &coordination.Shard{Topic: id, Epoch: 1, Leader: "a", Replicas: []string{"a", "b", "z"}, InSync: []coordination.Replica{{Broker: "a", Incarnation: 1}, {Broker: "b", Incarnation: 2}}})
	}
	shards[2].Leader = "z" // which is away, and leads nothing
	shards[2].InSync = append(shards[2].InSync, coordination.Replica{Broker: "z", Incarnation: 9})
	state := coordination.NewState(7, lives(map[string]int64{"a": 1, "b": 2}), topics, shards, nil).
		With(map[string]coordination.DrainMode{"z": coordination.DrainAll, "y": coordination.DrainLeadership}, map[string][]coordination.Suspect{"b": {{Topic: "id0"}}})
	s, box := newServer(state)
	remembers := s.view()
	remembers.name = func(id string) string { return map[string]string{"z": "main-9", "y": "y"}[id] }
	if z, y := remembers.member("z"), remembers.member("y"); z.Name != "main-9" || !z.Away || y.Name != "" || !y.Away {
		t.Errorf("by one who remembers they are called %+v and %+v", z.Broker, y.Broker)
	}
	var all []Member
	for after := ""; ; {
		list := ask[BrokerList](t, s, box, BrokerListSubject, fmt.Sprintf(`{"after":%q,"limit":1}`, after))
		if list.Total != 4 || list.Revision != 7 || len(list.Brokers) != 1 {
			t.Fatalf("a page is %+v", list)
		}
		all = append(all, list.Brokers...)
		if after = list.Next; after == "" {
			break
		}
	}
	var got []string
	for _, m := range all {
		got = append(got, fmt.Sprintf("%s %d %d %d %d %t %s %d", m.ID, m.Leads, m.Holds, m.InSync, m.Suspect, m.Away, m.Drain, m.Blocked))
	}
	want := []string{"a 2 3 3 0 false  0", "b 0 3 2 1 false  0", "y 0 0 0 0 true Leadership 0", "z 0 3 0 0 true All 2"}
	if !slices.Equal(got, want) {
		t.Errorf("they are %q\nwant %q", got, want)
	}
	if !strings.Contains(all[3].Why, "can't leave broker z") {
		t.Errorf("of what can't leave it says %q", all[3].Why)
	}
}

func TestAnErrorOfEtcdIsReportedAsTemporary(t *testing.T) {
	s, _ := newServer(nil)
	if got := s.notWritten("create topic orders", errors.New("no leader")); got.Code != Unavailable || !strings.Contains(got.Text, "no leader") || !strings.Contains(got.Text, "ask again") {
		t.Errorf("it says %+v", got)
	}
}

// TestChangesHaveARate: a change beyond its client's rate waits for its turn, and one that would
// wait for too long is refused. A request that changes nothing has no rate.
func TestChangesHaveARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := newMailbox()
		state := coordination.NewState(1, []coordination.Broker{{ID: "a", Incarnation: 1}}, nil, nil, nil)
		var waits []time.Duration
		pace := func(account string, bytes int) (wait time.Duration, ok bool) {
			if account != "10.0.0.2" || bytes != 2 || len(waits) == 0 {
				return 0, false
			}
			wait, waits = waits[0], waits[1:]
			return wait, true
		}
		s := New("a", known{state}, box, slog.New(slog.DiscardHandler)).Writing(&ended{}).Paced(pace).
			Accounts(func(client uint64) string { return fmt.Sprint("10.0.0.", client) })
		defer s.Close()
		drain := func() {
			s.TakeOf(2, []protocol.Message{{Subject: []byte(BrokerDrainSubject + "a"), Reply: []byte("r"), Data: []byte("{}")}}, nil, &work.Behind{})
			synctest.Wait()
		}
		waits = []time.Duration{0, time.Second}
		drain()
		if len(box.answers) != 1 {
			t.Fatalf("%d answers to a change within the rate", len(box.answers))
		}
		drain()
		if len(box.answers) != 1 {
			t.Error("a change beyond the rate did not wait")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(box.answers) != 2 {
			t.Errorf("%d answers after its time", len(box.answers))
		}
		drain()
		if len(box.answers) != 3 {
			t.Fatal("a change far beyond the rate waits")
		}
		for range 2 {
			<-box.answers
		}
		if answer := string(<-box.answers); !strings.Contains(answer, string(Busy)) || !strings.Contains(answer, "rate") {
			t.Errorf("it is answered %s", answer)
		}
		s.TakeOf(2, []protocol.Message{{Subject: []byte(BrokerListSubject), Reply: []byte("r")}}, nil, &work.Behind{})
		if answer := string(<-box.answers); strings.Contains(answer, "error") {
			t.Errorf("a list is answered %s", answer)
		}
	})
}

// ended is an etcd that refuses each drain.
type ended struct{ Store }

func (*ended) Drain(context.Context, coordination.Replica, coordination.DrainMode, bool) error {
	return context.Canceled
}
