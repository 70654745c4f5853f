package sender

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// led are shards that brokers a and c lead, and publishers to them on broker b.
type led struct {
	fw   *Senders
	all  []*shard
	byID map[string]Shard
	ways map[string]*Link
}

func newLed(t *testing.T) *led {
	fw, _, _ := newShard(state{})
	t.Cleanup(fw.Close)
	fw.config.Hub = discarding{}
	l := &led{fw: fw, byID: map[string]Shard{}, ways: map[string]*Link{}}
	fw.config.Shard = func(topic []byte, _ int) Shard { return l.byID[string(topic)] }
	for _, broker := range []string{"a", "c"} {
		l.ways[broker] = fw.Attach(broker, &counting{Carrier: &frames{}})
	}
	return l
}

// add adds shards that a broker leads.
func (l *led) add(many int, leader string) (added []*shard) {
	for range many {
		s, id := &shard{}, fmt.Sprint("id-", len(l.all))
		s.now.Store(&state{leader: leader, epoch: 1, replicas: 3})
		s.sender = l.fw.New(ID{TopicID: id, Topic: id, Name: id}, s)
		l.all, l.byID[id], added = append(l.all, s), s, append(added, s)
	}
	return added
}

// answers has the leader of a shard answer all that its sender holds.
func (l *led) answers(t *testing.T, s *shard) {
	t.Helper()
	s.sender.mu.Lock()
	first, next, round := s.sender.box.First, s.sender.box.Next(), s.sender.round
	s.sender.mu.Unlock()
	if first == next {
		return
	}
	var a forward.Answers
	a.Kept(first, first, next-first)
	a.Flush()
	link := l.ways[s.View().Leader()]
	if err := link.Take(append(forward.AppendFrameHead(nil, forward.FrameAnswers, s.sender.id.TopicID, 0, s.sender.source, round), a.Buf...)); err != nil {
		t.Error(err)
	}
	link.Flush()
}

// looks looks at all senders, as Run does.
func (l *led) looks() {
	for _, s := range l.all {
		s.sender.look(time.Now())
	}
}

// waiting returns for how many of the shards publishers wait.
func waiting(of []*shard) (n int) {
	for _, s := range of {
		if s.sender.waiting > 0 {
			n++
		}
	}
	return n
}

// flood publishes to each shard until its publisher waits, and once more from others, which have
// not waited yet. published counts the publishers that went on.
func (l *led) flood(of []*shard, others int) (published *atomic.Int64) {
	published = &atomic.Int64{}
	read := make([]protocol.Message, 16)
	for i := range read {
		read[i] = messageOf(make([]byte, 1000))[0]
	}
	for left := of; len(left) > 0; {
		left = slices.DeleteFunc(slices.Clone(left), func(s *shard) bool {
			if !s.sender.Publish(s.View(), read, nil) {
				return false
			}
			go func() {
				s.sender.Wait()
				published.Add(1)
			}()
			return true
		})
		synctest.Wait()
	}
	for i := range others {
		s := of[i%len(of)]
		s.sender.Publish(s.View(), read, nil)
	}
	return published
}

// goOn publishes small messages to the shards in turn, which their leaders answer at once or much
// later, and reports an error if a publisher is asked to wait, or a message is refused.
func (l *led) goOn(t *testing.T, of []*shard) {
	t.Helper()
	refused := l.fw.Stats().Full
	small := make([]byte, 256)
	for n := range 3000 {
		s := of[n%len(of)]
		if s.sender.Publish(s.View(), messageOf(small), nil) {
			t.Fatalf("message %d: its publisher is asked to wait, with %v of %v", n, s.sender.own.load(), l.fw.room.held.load())
		}
		if s.sender.Wait(); n%(50*len(of)) < len(of) {
			l.answers(t, s)
		}
	}
	for _, s := range of {
		l.answers(t, s)
	}
	if now := l.fw.Stats().Full; now > refused {
		t.Errorf("%d times messages were refused", now-refused)
	}
}

// ends has all leaders answer, until nothing is held. No party is left then.
func (l *led) ends(t *testing.T) {
	t.Helper()
	for range 100 {
		for _, s := range l.all {
			l.answers(t, s)
		}
		synctest.Wait()
	}
	l.looks()
	if n := waiting(l.all); n > 0 {
		t.Errorf("publishers wait for %d shards although nothing is held", n)
	}
	if held := l.fw.room.held.load(); held != (amount{}) || len(l.fw.room.parties) > 0 || l.fw.active.Len() > 0 {
		t.Errorf("%v is held in %d parties, and %d senders are listed", held, len(l.fw.room.parties), l.fw.active.Len())
	}
}

// TestASilentBrokerHoldsUpItsOwnPublishersOnly: a broker leads a thousand shards and answers
// nothing. Their publishers wait, or their messages are refused where thousands more connections
// come with a read each. Publishers to another leader are not asked to wait, and nothing of them is
// refused. When the broker answers, all go on.
func TestASilentBrokerHoldsUpItsOwnPublishersOnly(t *testing.T) {
	for _, others := range []int{0, 3000} {
		synctest.Test(t, func(t *testing.T) {
			l := newLed(t)
			silent, healthy := l.add(1000, "a"), l.add(8, "c")
			published := l.flood(silent, others)
			if n := waiting(silent); n != 1000 || published.Load() > 0 {
				t.Fatalf("of 1000 publishers %d wait, %d went on", n, published.Load())
			}
			if (others > 0) != (l.fw.Stats().Full > 0) {
				t.Errorf("with %d others messages were refused %d times", others, l.fw.Stats().Full)
			}
			l.goOn(t, healthy)
			l.ends(t)
			if published.Load() != 1000 {
				t.Errorf("of 1000 publishers %d went on", published.Load())
			}
		})
	}
}

// TestWhatIsHeldMovesWithItsLeader: all publishers of a silent broker wait. As its shards get
// another leader, which answers, the publishers to these go on, and in the end those to shards that
// are still led by the silent broker. What was held for it then holds up nobody.
func TestWhatIsHeldMovesWithItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLed(t)
		silent := l.add(400, "a")
		l.flood(silent, 0)
		if n := waiting(silent); n != 400 {
			t.Fatalf("publishers wait for %d shards", n)
		}
		left := silent
		for waiting(left) == len(left) && len(left) > 1 {
			moved := left[0]
			left = left[1:]
			moved.now.Store(&state{leader: "c", epoch: 2, replicas: 3})
			l.looks()
			synctest.Wait()
			if p := moved.sender.party.Load(); p.broker != "c" || p.held.load() != moved.sender.own.load() {
				t.Fatalf("it is in party %q, which holds %v and not %v", p.broker, p.held.load(), moved.sender.own.load())
			}
			l.answers(t, moved)
			synctest.Wait()
			if moved.sender.waiting > 0 {
				t.Fatal("its publisher waits although all is answered")
			}
			l.goOn(t, []*shard{moved})
		}
		synctest.Wait()
		if n := waiting(left); len(left) < 100 || n == len(left) {
			t.Errorf("of %d shards that are left, publishers wait for %d", len(left), n)
		}
		if held, p := l.fw.room.held.load(), left[0].sender.party.Load(); held != p.held.load() {
			t.Errorf("%v is held, %v in the party of the silent broker", held, p.held.load())
		}
		l.ends(t)
	})
}

// TestDeletedShardsLeaveTheirRoomToOthers: publishers to a deleted shard of a silent broker go on,
// and as more are deleted, those to its other shards.
func TestDeletedShardsLeaveTheirRoomToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLed(t)
		silent := l.add(400, "a")
		l.flood(silent, 0)
		kept := silent[300:]
		if n := waiting(kept); n != len(kept) {
			t.Fatalf("publishers wait for %d of %d shards", n, len(kept))
		}
		for _, s := range silent[:300] {
			s.now.Store(&state{leader: "a", epoch: 1, replicas: 3, gone: true})
		}
		l.looks()
		synctest.Wait()
		if n := waiting(silent[:300]); n > 0 {
			t.Errorf("publishers wait for %d deleted shards", n)
		}
		if n := waiting(kept); n > 0 {
			t.Errorf("publishers wait for %d shards although there is room", n)
		}
		for _, s := range silent[:300] {
			if s.sender.party.Load() != nil || s.sender.listed != nil {
				t.Fatal("a deleted shard is a member of its party")
			}
		}
		l.ends(t)
	})
}

// TestAnsweredMessagesCountUntilTheyAreFreed: a sender whose messages are answered stays a member
// of its party while their memory is held.
func TestAnsweredMessagesCountUntilTheyAreFreed(t *testing.T) {
	l := newLed(t)
	s := l.add(1, "a")[0]
	s.sender.Publish(s.View(), messageOf(make([]byte, 256)), nil)
	var a forward.Answers
	a.Kept(1, 1, 1)
	a.Flush()
	if err := l.ways["a"].Take(append(forward.AppendFrameHead(nil, forward.FrameAnswers, "id-0", 0, s.sender.source, s.sender.round), a.Buf...)); err != nil {
		t.Fatal(err)
	}
	l.looks()
	if held := l.fw.room.held.load(); held.bytes == 0 || s.sender.party.Load().held.load() != held {
		t.Errorf("%v is held", held)
	}
	l.ways["a"].Flush()
	l.looks()
	if held := l.fw.room.held.load(); held != (amount{}) || s.sender.party.Load() != nil {
		t.Errorf("%v is held", held)
	}
}
