package admin

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// people are the users of some brokers: client 1 is user1, and so on.
type people struct {
	*testing.T
	table  atomic.Pointer[identity.Table]
	behalf *identity.Behalf
}

// withUsers gives brokers users: what each may do, as JSON, user1 first.
func withUsers(t *testing.T, users []string, nodes ...*node) *people {
	p := &people{T: t}
	p.behalf = identity.NewBehalf(p.table.Load)
	p.set(users...)
	for _, n := range nodes {
		n.server.Users(func(client uint64) string {
			if client == 0 {
				return ""
			}
			return fmt.Sprint("user", client)
		}, p.behalf)
	}
	return p
}

// set replaces the users.
func (p *people) set(users ...string) {
	p.Helper()
	var document identity.Document
	for i, text := range users {
		u := identity.User{Permissions: &identity.Permissions{}}
		testutil.Must(p, json.Unmarshal([]byte(text), u.Permissions))
		if text == "{}" {
			u.Permissions = nil
		}
		u.Name = fmt.Sprint("user", i+1)
		document.Users = append(document.Users, u)
	}
	table, err := document.Table()
	testutil.Must(p, err)
	p.table.Store(table)
	p.behalf.Changed()
}

// scan is what a client was answered.
type scan struct {
	payloads           []string
	examined, unjudged int
	latest             string // of the last answer with one
	answers            int
	refused            *Error
}

// answerOfAny waits for the answer to a request that a linked broker may serve.
func (n *node) answerOfAny(reply string) protocol.Message {
	n.Helper()
	from := n
	testutil.EventuallyTrue(n, "an answer to "+reply, func() bool {
		for _, other := range n.others {
			if other.answered(reply) {
				from = other
			}
		}
		return from.answered(reply)
	})
	return from.answer(reply)
}

// scan reads a shard to its end. more is what each request says beside the offset.
func (n *node) scan(client uint64, subject, more string) (s scan) {
	n.Helper()
	if more != "" {
		more = "," + more
	}
	gaps := strings.Contains(more, "gaps") || strings.Contains(more, "where") || strings.Contains(more, "subjects")
	for from, high := uint64(1), uint64(2); from < high; s.answers++ {
		m := n.answerOfAny(n.askAs(client, subject, fmt.Sprintf(`{"offset":%d%s}`, from, more), false))
		header, rest := protocol.SplitData(m.Data, m.Header)
		number := func(key string) (is uint64) {
			if value, ok := header.Get(key); ok {
				is, _ = strconv.ParseUint(string(value), 10, 64)
			}
			return is
		}
		if header == nil {
			var answer onlyError
			testutil.Must(n, json.Unmarshal(m.Data, &answer))
			s.refused = answer.Error
			return s
		}
		_, gapped := header.Get(headerGaps)
		if gapped && !gaps {
			n.Fatalf("%s: gaps that were not asked for", more)
		}
		count := len(s.payloads)
		for offset := number(headerOffset); len(rest) > 0; offset++ {
			if gapped {
				gap, k := binary.Uvarint(rest)
				offset, rest = offset+gap, rest[k:]
			}
			size, k := binary.Uvarint(rest)
			s.payloads = append(s.payloads, fmt.Sprint(offset, " ", string(rest[k:k+int(size)])))
			rest = rest[k+int(size):]
		}
		if count = len(s.payloads) - count; uint64(count) != number(headerRecords) {
			n.Fatalf("%s: %d records under %q", more, count, header)
		}
		s.examined, s.unjudged = s.examined+int(number(headerExamined)), s.unjudged+int(number(headerUnjudged))
		if latest, ok := header.Get(headerLatest); ok {
			s.latest = string(latest)
		}
		next := number(headerNext)
		if next <= from {
			n.Fatalf("%s: from %d to %d", more, from, next)
		}
		from, high = next, number(headerHigh)
	}
	return s
}

// ofRegions publishes messages whose payloads name their subjects and offsets.
func (n *node) ofRegions() (all []string) {
	n.Helper()
	for i, s := range []string{"eu.1", "us.1", "eu.2", "secret", "eu.1", "eu.1", "us.2", "secret", "secret", "eu.2"} {
		payload := fmt.Sprintf(`{"n":%d,"s":%q}`, i+1, s)
		all = append(all, fmt.Sprint(i+1, " ", payload))
		n.publishOn("orders."+s, payload)
	}
	return all
}

func allOrders(s *coordination.TopicSpec) { s.Subjects = []string{"orders.>"} }

// TestRecordsAreThoseThatTheirUserMaySubscribeTo: whatever is asked for, of this broker or of
// another one, with permissions of all forms.
func TestRecordsAreThoseThatTheirUserMaySubscribeTo(t *testing.T) {
	p := startPair(t, 1, nil)
	p.announce(coordination.Features())
	all := p.a.ofRegions()
	cases := []struct{ user, offsets, where string }{
		{`{}`, "1 2 3 4 5 6 7 8 9 10", "6 7 8 9 10"},
		{`{"subscribe":{"allow":["orders.eu.*"]}}`, "1 3 5 6 10", "6 10"},
		{`{"subscribe":{"deny":["orders.secret"]}}`, "1 2 3 5 6 7 10", "6 7 10"},
		{`{"subscribe":{"allow":["orders.>"],"deny":["orders.*.2"]}}`, "1 2 4 5 6 8 9", "6 8 9"},
		{`{"subscribe":{"allow":["*.us.>","orders.eu.2"]}}`, "2 3 7 10", "7 10"},
		{`{"subscribe":{"allow":["orders.>"]}}`, "1 2 3 4 5 6 7 8 9 10", "6 7 8 9 10"},
		{`{"subscribe":{"allow":["orders.us.3"]}}`, "", ""}, // there is none yet
		{`{"subscribe":{"allow":["orders.eu.1","orders.> workers"]}}`, "1 5 6", "6"},
		{`{"subscribe":{"allow":["bills.>"]}}`, "Forbidden", "Forbidden"},
		{`{"subscribe":{"allow":["orders.> workers"]}}`, "Forbidden", "Forbidden"},
		{`{"subscribe":{"deny":["orders.>"]}}`, "Forbidden", "Forbidden"},
		{`{"subscribe":{"allow":["orders.eu.1"],"deny":["*.eu.*"]}}`, "Forbidden", "Forbidden"},
		{`{"subscribe":{"allow":[]}}`, "Forbidden", "Forbidden"},
	}
	var users []string
	for _, c := range cases {
		users = append(users, c.user)
	}
	withUsers(t, users, p.a, p.b)
	for i, c := range cases {
		for more, want := range map[string]string{
			``:                    c.offsets,
			`"gaps":true`:         c.offsets,
			`"max_records":2`:     c.offsets,
			`"where":"true"`:      c.offsets,
			`"subjects":[">"]`:    c.offsets,
			`"where":"json.n>5"`:  c.where,
			`"where":"json.n>20"`: strings.Trim(c.where, "0123456789 "),
		} {
			for _, n := range []*node{p.a, p.b} {
				got := n.scan(uint64(i+1), ordersSubject, more)
				if want == "Forbidden" {
					if got.refused == nil || got.refused.Code != Forbidden || !strings.Contains(got.refused.Text, "the right to subscribe to subjects of") || got.payloads != nil {
						t.Errorf("%s asks for %q of %s: %+v", c.user, more, n.server.self, got)
					}
					continue
				}
				var expected []string
				for _, offset := range strings.Fields(want) {
					at, _ := strconv.Atoi(offset)
					expected = append(expected, all[at-1])
				}
				if got.refused != nil || !slices.Equal(got.payloads, expected) {
					t.Errorf("%s asks for %q of %s: %v %q, want %q", c.user, more, n.server.self, got.refused, got.payloads, expected)
				}
				if strings.Contains(more, "where") && got.examined != len(strings.Fields(c.offsets)) {
					t.Errorf("%s asks for %q of %s: %d were looked at", c.user, more, n.server.self, got.examined)
				}
			}
		}
	}
	if got := p.b.scan(2, ordersSubject, `"subjects":["orders.us.>"]`); got.refused == nil || got.refused.Code != Forbidden {
		t.Errorf("what the user may not subscribe to was asked for: %+v", got)
	}
	if got := p.b.scan(2, ordersSubject, `"gaps":true`); got.answers != 1 {
		t.Errorf("%d answers", got.answers)
	}
	full, headers := p.a.records(p.a.askAs(2, ordersSubject, `{"offset":2,"form":"full"}`, false))
	if len(full) != 1 || !strings.HasPrefix(full[0], "\x00\x0borders.eu.2\x00") || headers[headerOffset] != "3" || headers[headerNext] != "5" {
		t.Errorf("%q %v", full, headers)
	}
}

// announce has all brokers announce features.
func (p *pair) announce(features coordination.FeatureSet) {
	brokers := p.brokers()
	for i := range brokers {
		brokers[i].Features = features
	}
	state := coordination.NewState(2, brokers, p.topics, p.shards, nil)
	p.a.topics.Follow(state, coordination.Changes{Brokers: true})
	p.b.topics.Follow(state, coordination.Changes{Brokers: true})
}

// TestHiddenRecordsTellNothing: conditions count those that the user may read, and say the time of
// the latest one and the reason of the first failure among these.
func TestHiddenRecordsTellNothing(t *testing.T) {
	n := startNode(t, allOrders)
	users := withUsers(t, []string{`{}`, `{"subscribe":{"deny":["orders.secret"]}}`}, n)
	n.publishOn("orders.secret", "no JSON", `{"k":1}`)
	n.publishOn("orders.eu", `{"k":1}`, `{"other":1}`)
	visible := n.scan(1, ordersSubject, `"where":"json.k == 1"`)
	n.publishOn("orders.secret", "no JSON", `{"k":1}`)
	all, some := n.scan(1, ordersSubject, `"where":"json.k == 1"`), n.scan(2, ordersSubject, `"where":"json.k == 1"`)
	if all.examined != 6 || all.unjudged != 3 || len(all.payloads) != 3 || all.latest <= visible.latest {
		t.Errorf("without permissions: %+v", all)
	}
	if some.examined != 2 || some.unjudged != 1 || len(some.payloads) != 1 || some.latest != visible.latest {
		t.Errorf("with permissions: %+v, want the time %s", some, visible.latest)
	}
	_, headers := n.judged(n.askAs(2, ordersSubject, `{"where":"json.k == 1"}`, false))
	if headers[headerWhy] != "no such key: k" {
		t.Errorf("%v", headers)
	}
	large := strings.Repeat("x", MaxRecordsBytes)
	n.publishOn("orders.secret", large[:MaxRecordsBytes-8])
	n.publishOn("orders.eu", `{"k":1}`)
	for _, more := range []string{`"gaps":true,"form":"full"`, `"where":"true","form":"full"`} {
		if got := n.scan(1, ordersSubject, more); got.refused == nil || got.refused.Code != TooLarge {
			t.Errorf("without permissions a large record is %+v", got.refused)
		}
		if got := n.scan(2, ordersSubject, more); got.refused != nil || len(got.payloads) != 3 {
			t.Errorf("with permissions: %+v", got)
		}
	}
	users.set(`{}`)
	if got := n.scan(2, ordersSubject, ``); got.refused == nil || got.refused.Code != Forbidden || !strings.Contains(got.refused.Text, "no user") {
		t.Errorf("a removed user gets %+v", got)
	}
	if got := n.scan(0, ordersSubject, ``); got.refused == nil || got.refused.Code != Forbidden {
		t.Errorf("a stream gets %+v", got)
	}
}

// TestStatisticsTellNothingOfHiddenRecords: for a user who may not read all, the broker reads every
// segment, also one whose statistics say that nothing in it matches.
func TestStatisticsTellNothingOfHiddenRecords(t *testing.T) {
	n := startNode(t, allOrders)
	withUsers(t, []string{`{}`, `{"subscribe":{"deny":["orders.secret"]}}`, `{"subscribe":{"allow":["orders.>"]}}`}, n)
	for range 30 {
		n.publishOn("orders.eu", slices.Repeat([]string{`{"k":"a","text":"some more, that segments get full"}`}, 20)...)
		n.publishOn("orders.secret", slices.Repeat([]string{`{"k":"b","text":"some more, that segments get full"}`}, 20)...)
	}
	const where = `"where":"json.k == 'c'","form":"full"`
	testutil.EventuallyTrue(t, "there are statistics of all segments", func() bool {
		before := n.server.Stats().Statistics.Stored
		if got := n.scan(1, ordersSubject, where); got.examined != 1200 || len(got.payloads) != 0 {
			t.Fatalf("without permissions: %+v", got)
		}
		return before > 0 && n.server.Stats().Statistics.Stored == before
	})
	stored := n.server.Stats().Statistics.Stored
	for range 3 {
		if got := n.scan(2, ordersSubject, where); got.examined != 600 {
			t.Errorf("with permissions: %+v", got)
		}
		n.scan(2, ordersSubject, `"where":"json.text == 'c'","form":"full"`)
	}
	if n.server.Stats().Statistics.Stored != stored {
		t.Error("statistics were made for one who may not read all")
	}
	testutil.EventuallyTrue(t, "statistics are made for one who may read all that was ever kept", func() bool {
		n.scan(3, ordersSubject, `"where":"json.text == 'c'","form":"full"`)
		return n.server.Stats().Statistics.Stored > stored
	})
}

// TestRecordsOfFormerSubjectsAreHidden: a Topic keeps records of subjects that it had before. Who
// may subscribe to all that it has now may not read those.
func TestRecordsOfFormerSubjectsAreHidden(t *testing.T) {
	n := startNode(t, allOrders)
	withUsers(t, []string{`{}`, `{"subscribe":{"allow":["orders.eu.>"]}}`}, n)
	all := n.ofRegions()
	was := n.topics.State().TopicByID("o")
	is := *was
	is.Spec.Subjects, is.Generation, is.Revision = []string{"orders.eu.>"}, 2, 9
	n.topics.Follow(coordination.NewState(2, n.topics.State().Brokers, []*coordination.Topic{&is}, []*coordination.Shard{n.topics.State().Shard("o", 0)}, nil),
		coordination.Changes{Topics: []coordination.Change[coordination.Topic]{{Before: was, After: &is}}})
	testutil.EventuallyTrue(t, "the subjects change", func() bool {
		return n.topics.Topic("orders").Desired().Generation == 2
	})
	if may, refusal := n.server.sight("user2", ordersSubject, &is, nil); refusal != nil || !may.likely || may.certain {
		t.Errorf("%+v, %v", may, refusal)
	}
	for _, more := range []string{``, `"gaps":true`, `"gaps":true,"max_records":1`, `"where":"true"`} {
		if got := n.scan(1, ordersSubject, more); !slices.Equal(got.payloads, all) {
			t.Errorf("without permissions: %+v", got)
		}
		got := n.scan(2, ordersSubject, more)
		if want := []string{all[0], all[2], all[4], all[5], all[9]}; !slices.Equal(got.payloads, want) {
			t.Errorf("%q: %+v", more, got)
		}
	}
}

// TestARightThatIsLostWhileARequestWaits: what is published later is judged by the rights that the
// user has then.
func TestARightThatIsLostWhileARequestWaits(t *testing.T) {
	p := startPair(t, 1, nil)
	p.announce(coordination.Features())
	users := withUsers(t, []string{`{"subscribe":{"allow":["orders.>"]}}`}, p.a, p.b)
	p.a.publishOn("orders.eu", "one")
	waits := func(more string) (reply string) {
		t.Helper()
		reply = p.b.askAs(1, ordersSubject, more, false)
		p.waiting(1)
		return reply
	}
	for _, c := range []struct{ request, next string }{
		{`{"offset":2,"wait_ms":30000,"gaps":true}`, "4"},
		{`{"offset":4,"wait_ms":30000,"where":"true"}`, "6"},
		{`{"offset":6,"wait_ms":30000}`, "8"},
	} {
		users.set(`{"subscribe":{"allow":["orders.>"]}}`)
		reply := waits(c.request)
		users.set(`{"subscribe":{"allow":["orders.>"],"deny":["orders.secret"]}}`)
		p.a.publishOn("orders.secret", "two")
		p.waiting(1)
		p.a.publishOn("orders.eu", "three")
		m := p.a.answer(reply)
		header, _ := protocol.SplitData(m.Data, m.Header)
		next, _ := header.Get(headerNext)
		if strings.Contains(string(m.Data), "two") || !strings.HasSuffix(string(m.Data), "three") || string(next) != c.next {
			t.Errorf("%s: %q", c.request, m.Data)
		}
	}
	for _, less := range []string{`{"subscribe":{"allow":["bills"]}}`, `{"publish":{"deny":["$CARILLON.>"]}}`} {
		users.set(`{"subscribe":{"allow":["orders.>"]}}`)
		_, high := p.a.topics.Topic("orders").ShardAt(0).Offsets()
		reply := waits(fmt.Sprintf(`{"offset":%d,"wait_ms":30000}`, high))
		users.set(less)
		p.a.publishOn("orders.eu", "four")
		if got := p.a.refusal(reply); got.Code != Forbidden {
			t.Errorf("%s: %+v", less, got)
		}
	}
}

// waiting waits until so many requests wait for records of the first broker.
func (p *pair) waiting(count int) {
	p.Helper()
	testutil.EventuallyTrue(p, "requests wait", func() bool {
		s := p.a.server
		s.polls.mu.Lock()
		defer s.polls.mu.Unlock()
		return s.polls.shares.Len() == count
	})
}

// TestAWaitingRequestEndsInTimeThoughHiddenRecordsCome: with nothing, and behind these.
func TestAWaitingRequestEndsInTimeThoughHiddenRecordsCome(t *testing.T) {
	n := startNode(t, allOrders)
	withUsers(t, []string{`{"subscribe":{"allow":["orders.eu"]}}`}, n)
	n.publishOn("orders.us", "one")
	reply := n.askAs(1, ordersSubject, `{"wait_ms":100}`, false)
	n.publishOn("orders.us", "two")
	if got, headers := n.records(reply); len(got) != 0 || headers[headerNext] < "2" {
		t.Errorf("%q %v", got, headers)
	}
}

// TestDuringAnUpdateNothingIsReadThatIsNotFiltered: a leader of an earlier version gets no request
// of a user who may not read all. A request that an earlier version forwards is served as there.
func TestDuringAnUpdateNothingIsReadThatIsNotFiltered(t *testing.T) {
	p := startPair(t, 1, nil)
	withUsers(t, []string{`{}`, `{"subscribe":{"deny":["orders.secret"]}}`, `{"subscribe":{"allow":["orders.>"]}}`, `{"subscribe":{"allow":["bills"]}}`}, p.a, p.b)
	all := p.a.ofRegions()
	for user, want := range map[uint64]Code{1: "", 2: NotServed, 3: "", 4: Forbidden} {
		got := p.b.scan(user, ordersSubject, `"gaps":true`)
		if want == "" && !slices.Equal(got.payloads, all) || want != "" && (got.refused == nil || got.refused.Code != want) {
			t.Errorf("user%d through another broker: %+v", user, got)
		}
	}
	if got := p.a.scan(2, ordersSubject, ``); len(got.payloads) != 7 {
		t.Errorf("of the leader: %+v", got)
	}
	forwarded := func() string {
		m := p.a.answer(p.a.ask(ordersSubject, "", true))
		return string(m.Data)
	}
	if got := forwarded(); !strings.Contains(got, "secret") {
		t.Errorf("a request of an earlier version: %s", got)
	}
	p.announce(coordination.Features())
	if got := forwarded(); !strings.Contains(got, string(NotServed)) || strings.Contains(got, "secret") {
		t.Errorf("a request without a user: %s", got)
	}
	if got := p.b.scan(2, ordersSubject, `"gaps":true`); len(got.payloads) != 7 {
		t.Errorf("after the update: %+v", got)
	}

	// A user that a client names is not believed.
	forged := protocol.Message{Subject: []byte(ordersSubject), Reply: []byte("forged"), Data: []byte(`{"gaps":true}`)}
	forged = *identity.Sign(&forged, "user1")
	for _, n := range []*node{p.a, p.b} {
		n.server.TakeOf(2, []protocol.Message{forged}, nil, &work.Behind{})
		if m := p.a.answer("forged"); strings.Contains(string(m.Data), "secret") {
			t.Errorf("%s believes the client: %q", n.server.self, m.Data)
		}
	}
}
