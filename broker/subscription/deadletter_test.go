package subscription

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// morgue is a dead-letter Topic.
type morgue struct {
	mu      sync.Mutex
	stored  []protocol.Message // one for each message id
	asked   int
	refusal error
	most    int           // the size of the largest message that it takes; 0: any
	never   string        // the payload of messages that it always refuses; empty: of none
	silent  bool          // stores, and doesn't answer
	late    []func(error) // the answers that it didn't give
}

func (m *morgue) Store(topic string, msg *protocol.Message, done func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.refusal != nil {
		done(m.refusal)
		return
	}
	if m.most > 0 && len(msg.Data) > m.most {
		done(fmt.Errorf("%w: it has %d bytes", publish.ErrTooLarge, len(msg.Data)))
		return
	}
	if m.never != "" && string(msg.Data[msg.Header:]) == m.never {
		done(errors.New("it is too large"))
		return
	}
	id := idOf(msg)
	if !slices.ContainsFunc(m.stored, func(s protocol.Message) bool { return idOf(&s) == id }) {
		m.stored = append(m.stored, protocol.Message{Subject: slices.Clone(msg.Subject), Header: msg.Header, Data: slices.Clone(msg.Data)})
	}
	if m.silent {
		m.late = append(m.late, done)
		return
	}
	done(nil)
}

func (m *morgue) refuse(why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusal = nil; why != "" {
		m.refusal = errors.New(why)
	}
}

func (m *morgue) times() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func idOf(m *protocol.Message) string { return headerOf(m, messageID) }

func headerOf(m *protocol.Message, key string) string {
	value, _ := protocol.Header(m.Data[:m.Header]).Get(key)
	return string(value)
}

// subjects returns those of the dead letters that are stored.
func (m *morgue) subjects() (all []string) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.stored {
		all = append(all, string(m.stored[i].Subject))
	}
	return all
}

// buried is a Subscription whose records die after two deliveries, a second apart.
func buried() coordination.SubscriptionSpec {
	spec := earliest()
	spec.DeadLetter = "dead"
	spec.Ack = coordination.Ack{MaxDeliver: 2, Wait: time.Second}
	return spec
}

// deadStory is a story with a dead-letter Topic.
func deadStory(t *testing.T, tell func(t *testing.T, w *world)) {
	story(t, func(t *testing.T, w *world) {
		w.stop()
		w.dead = &morgue{}
		w.start()
		tell(t, w)
	})
}

func TestARecordThatNobodyAcknowledgesIsStoredAsADeadLetter(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		header := "NATS/1.0\r\nTrace: 7\r\nNats-Msg-Id: mine\r\nCarillon-Dead-Reason: forged\r\n\r\n"
		w.shard.append(log.Record{Time: time.Now().UnixNano(), Subject: []byte("orders.eu.1"), Header: len(header), Data: []byte(header + "payload")})
		w.declare("billing", 7, buried())
		s := w.find("billing")
		began := time.Now()
		s.Pull(pull("a", 3))
		time.Sleep(time.Second)
		w.expect("billing", "a", "1", "1 x2")
		if i := s.Info(); i.FloorOffset != 0 || i.DeadLettered != 0 {
			t.Fatalf("before its dead letter is stored: %+v", i)
		}
		time.Sleep(time.Second)
		if got := w.dead.subjects(); !slices.Equal(got, []string{"dead.orders.eu.1"}) {
			t.Fatalf("stored were %q", got)
		}
		m := &w.dead.stored[0]
		if string(m.Data[m.Header:]) != "payload" {
			t.Errorf("its payload is %q", m.Data[m.Header:])
		}
		for key, want := range map[string]string{
			"Trace": "7", "Carillon-Original-Nats-Msg-Id": "mine", "Nats-Msg-Id": "dead/t1/billing/7/1",
			DeadReason: "MaxDeliver", DeadAttempts: "2", DeadTopic: "orders", DeadSubject: "orders.eu.1", DeadOffset: "1", DeadSubscription: "billing",
			DeadFirstDelivery: began.UTC().Format(time.RFC3339Nano), DeadLastDelivery: began.Add(time.Second).UTC().Format(time.RFC3339Nano), DeadAnswer: "",
		} {
			if got := headerOf(m, key); got != want {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
		if i := s.Info(); i.FloorOffset != 1 || i.Pending != 0 || i.DeadLettered != 1 || i.GivenUp != 0 || i.DeadLetterTrouble != "" || i.Exhausted != 0 {
			t.Errorf("afterwards: %+v", i)
		}
		if stats := w.service.Stats(); stats.DeadLettered != 1 || stats.GivenUp != 0 {
			t.Errorf("counted were %+v", stats)
		}
	})
}

// Nobody pulls, so only the Subscription's own timer can notice that the last attempt failed.
func TestDeadLettersNeedNoWaitingClient(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		spec := buried()
		spec.Ack.MaxDeliver = 1
		w.shard.publish("o")
		w.declare("billing", 1, spec)
		w.find("billing").Pull(pull("a", 1))
		w.expect("billing", "a", "1")
		time.Sleep(2 * time.Second)
		if got := w.dead.subjects(); !slices.Equal(got, []string{"dead.o"}) {
			t.Errorf("stored were %q", got)
		}
	})
}

func TestATerminatedRecordIsStoredWithItsReason(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.shard.publish("o")
		w.declare("billing", 1, buried())
		s := w.find("billing")
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1")
		s.ExplainAck(1, []byte("+TERM no such\r\ncustomer"))
		if err := w.ackNow(s, 1, Term); err != nil {
			t.Fatal(err)
		}
		if got := w.dead.subjects(); !slices.Equal(got, []string{"dead.o"}) {
			t.Fatalf("stored were %q", got)
		}
		m := &w.dead.stored[0]
		if reason, answer := headerOf(m, DeadReason), headerOf(m, DeadAnswer); reason != "Terminated" || answer != "+TERM no such  customer" {
			t.Errorf("its reason is %q, %q", reason, answer)
		}
		if got := headerOf(m, DeadAttempts); got != "1" {
			t.Errorf("after %s attempts", got)
		}
	})
}

func TestNothingIsGivenUpWhileTheDeadLetterTopicRefuses(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.dead.refuse("it is full")
		spec := buried()
		spec.Ack.MaxDeliver, spec.Ack.MaxPending = 1, 3
		w.shard.publish("o", "o", "o", "o", "o")
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1", "2", "3")
		time.Sleep(10 * time.Minute)
		w.expect("billing", "a") // the maximum of pending records is reached
		i := s.Info()
		if i.Pending != 3 || i.GivenUp != 3 || i.DeadLettered != 0 || !strings.Contains(i.DeadLetterTrouble, "topic dead does not store them: it is full") {
			t.Errorf("it stands at %+v", i)
		}
		if n := w.dead.times(); n < 10 || n > 40 {
			t.Errorf("the topic was asked %d times in ten minutes", n)
		}
		// An ack counts to the last.
		if err := w.ackNow(s, 2, Done); err != nil {
			t.Fatal(err)
		}
		w.expect("billing", "a", "4")
		w.dead.refuse("")
		time.Sleep(2 * time.Minute)
		if got := len(w.dead.subjects()); got != 4 {
			t.Errorf("stored are %d", got)
		}
		w.expect("billing", "a", "5")
		if i := s.Info(); i.GivenUp != 0 || i.DeadLetterTrouble != "" || i.FloorOffset != 5 || i.DeadLettered != 4 {
			t.Errorf("afterwards: %+v", i)
		}
	})
}

func TestAGivenUpRecordOutlivesTheLeader(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.dead.refuse("no leader")
		w.shard.publish("o", "o", "o")
		w.declare("billing", 3, buried())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		if err := w.ackNow(s, 2, Term); err != nil {
			t.Fatal(err)
		}
		for range 2 { // by its ops, and by a snapshot
			w.restart()
			w.find("billing").Pull(Pull{To: []byte("a"), Batch: 9, NoWait: true})
			time.Sleep(100 * time.Millisecond)
			for _, got := range w.box("billing").take("a") {
				if strings.HasPrefix(got, "2") {
					t.Errorf("it was delivered again: %s", got)
				}
			}
			k := w.find("billing").store
			k.mu.Lock()
			k.dirty = true
			k.mu.Unlock()
		}
		w.dead.refuse("")
		w.declare("billing", 3, func() coordination.SubscriptionSpec { s := buried(); s.Ack.Wait = time.Hour; return s }())
		time.Sleep(2 * time.Minute)
		w.dead.subjects()
		m := &w.dead.stored[len(w.dead.stored)-1]
		ids := map[string]string{}
		for i := range w.dead.stored {
			ids[idOf(&w.dead.stored[i])] = headerOf(&w.dead.stored[i], DeadReason)
		}
		if ids["dead/t1/billing/3/2"] != "Terminated" {
			t.Errorf("stored were %v", ids)
		}
		if headerOf(m, DeadFirstDelivery) != "" && headerOf(m, DeadOffset) == "2" {
			t.Error("the time of its first delivery was invented")
		}
	})
}

// The answer is lost: the dead letter is sent again with the same id, and kept once.
func TestADeadLetterWithoutAnAnswerIsSentAgain(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.dead.silent = true
		w.shard.publish("o")
		w.declare("billing", 1, buried())
		s := w.find("billing")
		s.Pull(pull("a", 1))
		w.expect("billing", "a", "1")
		if err := w.ackNow(s, 1, Term); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if i := s.Info(); i.GivenUp != 1 || !strings.Contains(i.DeadLetterTrouble, "did not answer") {
			t.Errorf("it stands at %+v", i)
		}
		w.dead.mu.Lock()
		w.dead.silent = false
		w.dead.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if got := w.dead.subjects(); len(got) != 1 || w.dead.times() < 2 || s.Info().DeadLettered != 1 {
			t.Errorf("stored were %q, after %d attempts: %+v", got, w.dead.times(), s.Info())
		}
	})
}

// The leader dies after the dead letter is stored, and before the state log says so: the next one
// stores it again, with the same id.
func TestADeadLetterIsNeitherLostNorKeptTwiceWhenTheLeaderDies(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.dead.silent = true
		w.shard.publish("o", "o")
		w.declare("billing", 1, buried())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		if err := w.ackNow(s, 1, Term); err != nil {
			t.Fatal(err)
		}
		if got := w.dead.subjects(); len(got) != 1 {
			t.Fatalf("stored were %q", got)
		}
		w.dead.mu.Lock()
		w.dead.silent = false // from the next attempt on, which is the next leader's
		w.dead.mu.Unlock()
		w.restart()
		time.Sleep(time.Minute)
		if got := w.dead.subjects(); len(got) != 1 || w.dead.times() != 2 {
			t.Errorf("stored were %q, after %d attempts", got, w.dead.times())
		}
		if i := w.find("billing").Info(); i.Pending != 1 || i.FloorOffset != 1 || i.GivenUp != 0 {
			t.Errorf("afterwards: %+v", i)
		}
	})
}

// Records that the Topic never takes wait, and the others don't wait for them.
func TestRefusedDeadLettersDoNotStopOthers(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.dead.never = "large"
		for i := range 200 {
			payload := "small"
			if i < 5 {
				payload = "large"
			}
			w.shard.append(log.Record{Time: time.Now().UnixNano(), Subject: []byte("o"), Data: []byte(payload)})
		}
		spec := buried()
		spec.Ack.MaxDeliver = 1
		w.declare("billing", 1, spec)
		s := w.find("billing")
		s.Pull(pull("a", 200))
		time.Sleep(30 * time.Second)
		if got := len(w.dead.subjects()); got != 195 {
			t.Errorf("%d are stored", got)
		}
		time.Sleep(10 * time.Minute)
		i := s.Info()
		if i.GivenUp != 5 || i.Pending != 5 || !strings.Contains(i.DeadLetterTrouble, "it is too large") {
			t.Errorf("it stands at %+v", i)
		}
		if n := w.dead.times(); n > 195+100 {
			t.Errorf("the topic was asked %d times", n)
		}
		for offset := range uint64(5) {
			if err := w.ackNow(s, offset+1, Done); err != nil {
				t.Fatal(err)
			}
		}
		if i := s.Info(); i.GivenUp != 0 || i.DeadLetterTrouble != "" || i.FloorOffset != 200 {
			t.Errorf("acknowledged, it stands at %+v", i)
		}
		w.shard.publish("o")
		s.Pull(pull("a", 1))
		time.Sleep(5 * time.Second)
		if got := len(w.dead.subjects()); got != 196 {
			t.Errorf("%d are stored", got)
		}
	})
}

func TestWithoutItsDeadLetterTopicASubscriptionDropsRecords(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		w.dead.refuse("it is full")
		w.shard.publish("o", "o")
		w.declare("billing", 1, buried())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		if err := w.ackNow(s, 1, Term); err != nil {
			t.Fatal(err)
		}
		spec := buried()
		spec.DeadLetter = ""
		w.declare("billing", 1, spec)
		time.Sleep(time.Second)
		s.Pull(Pull{To: []byte("a"), Batch: 9, NoWait: true})
		w.expect("billing", "a", "2 x2", "NoMessages 8/0")
		if i := s.Info(); i.Pending != 1 || i.GivenUp != 0 || i.DeadLetterTrouble != "" {
			t.Errorf("it stands at %+v", i)
		}
	})
}

func TestASubscriptionCantDeadLetterIntoItsOwnTopic(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		spec := buried()
		spec.DeadLetter = "orders"
		w.declare("billing", 1, spec)
		_, err := w.service.Wait(t.Context(), topicID, "billing")
		var not *NotServedError
		if !errors.As(err, &not) || not.Reason != Unsupported || !strings.Contains(not.Why, "topic orders, which it reads") {
			t.Error(err)
		}
	})
}

func TestSubjectsOfDeadLettersAreBounded(t *testing.T) {
	for _, c := range []struct{ subject, want string }{
		{"a.b", "dead.a.b"},
		{strings.Repeat("abcd.", 500) + "e", "dead." + strings.TrimSuffix(strings.Repeat("abcd.", 408), ".")},
		{strings.Repeat("x", 3000), "dead"},
	} {
		if got := string(deadLetterName("dead", []byte(c.subject))); got != c.want {
			t.Errorf("%.20q is stored under %q", c.subject, got)
		}
	}
}

func TestManyDeadLettersAreStoredInTurn(t *testing.T) {
	deadStory(t, func(t *testing.T, w *world) {
		spec := buried()
		spec.Ack.MaxDeliver = 1
		var all []string
		for i := range 500 {
			w.shard.publish(fmt.Sprintf("o.%d", i))
			all = append(all, fmt.Sprintf("dead.o.%d", i))
		}
		w.declare("billing", 1, spec)
		w.find("billing").Pull(pull("a", 500))
		time.Sleep(3 * time.Second)
		if got := w.dead.subjects(); !slices.Equal(got, all) || w.dead.times() != 500 {
			t.Errorf("%d were stored, asked %d times", len(got), w.dead.times())
		}
	})
}
