package topic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/indexing"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subject"
)

// patterns is a model of a Topic whose publishers name patterns.
type patterns struct {
	rng  *rand.Rand
	kept map[uint64]string // subjects by offset
	next uint64
}

// last returns the offset of the last message that matches.
func (p *patterns) last(pattern string) (last uint64) {
	for offset, of := range p.kept {
		if subject.Matches([]byte(pattern), []byte(of)) {
			last = max(last, offset)
		}
	}
	return last
}

// message returns a message, and what is answered.
func (p *patterns) message(reply string) (m protocol.Message, answer string) {
	pick := func(all ...string) string { return "orders." + all[p.rng.IntN(len(all))] }
	of := pick("a.x", "a.y", "b.x", "b.y", "c")
	rolls := p.rng.IntN(6) == 0
	var headers []string
	if rolls {
		of = pick("*.x", "a.*", "b.>", "*", "*.*", "a.x", "a.y", ">")
		headers = []string{"Rollup: sub"}
	}
	if p.rng.IntN(2) == 0 {
		expected := pick("*.x", "a.*", "b.>", "*", ">", "*.*", "a.x", "b.y")
		last := p.last(expected)
		said := last
		if p.rng.IntN(3) == 0 {
			said += uint64(1 - 2*(last&1)) // another one
		}
		headers = append(headers, "Expect-Subject: "+expected, fmt.Sprintf("Expect-Last-By-Subject: %d", said))
		if said != last {
			return message(of, reply, "x", headers...), fmt.Sprintf("no: topic orders: the last message of subject %s is at offset %d", expected, last)
		}
	}
	if rolls {
		maps.DeleteFunc(p.kept, func(_ uint64, is string) bool { return subject.Matches([]byte(of), []byte(is)) })
	}
	p.kept[p.next] = of
	p.next++
	return message(of, reply, "x", headers...), fmt.Sprintf("orders@%d", p.next-1)
}

func (p *patterns) left() (out []string) {
	for _, offset := range slices.Sorted(maps.Keys(p.kept)) {
		out = append(out, fmt.Sprintf("%d %s", offset, p.kept[offset]))
	}
	return out
}

// publish has some messages published in reads, and checks the answers.
func (p *patterns) publish(n *site, life string, reads int) {
	n.t.Helper()
	for read := range reads {
		var messages []protocol.Message
		want := map[string]string{}
		for i := range 1 + p.rng.IntN(10) {
			reply := fmt.Sprintf("%s.%d.%d", life, read, i)
			m, answer := p.message(reply)
			messages, want[reply] = append(messages, m), answer
		}
		n.hub.publish(messages...)
		for reply, answer := range want {
			if got := n.hub.answer(n.t, reply); got != answer {
				n.t.Fatalf("%s: answered %q, want %q", reply, got, answer)
			}
		}
	}
}

// TestPatternsAreThoseOfAModel: conditions and rollups of patterns are judged in the order of the
// messages, also while the removals of earlier ones are under way, and crossed by restarts and
// crashes.
func TestPatternsAreThoseOfAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := newSite(t)
			n.limits(func(s *coordination.StreamSettings) {
				if s.AllowRollup = true; seed%2 == 1 {
					s.MaxPerSubject = 1000 // the records of each subject are known
				}
			})
			n.serve("orders")
			p := &patterns{rand.New(rand.NewPCG(seed, 7)), map[uint64]string{}, 1}
			for life := range 4 {
				p.publish(n, fmt.Sprint(life), 12)
				n.shows("after its messages", p.left()...)
				if life%2 == 0 {
					n.restart("orders")
				} else {
					n.crash()
					n.serve("orders")
				}
				n.shows("in the next life", p.left()...)
			}
		})
	}
}

// TestTheNextLeaderKnowsWhatPatternsRemoved: leaders die right after an ack.
func TestTheNextLeaderKnowsWhatPatternsRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.limits(func(s *coordination.StreamSettings) { s.AllowRollup = true })
	}
	p := &patterns{rand.New(rand.NewPCG(3, 7)), map[uint64]string{}, 1}
	c.begin()
	for life := range 5 {
		i, next := life%3, (life+1)%3
		p.publish(c.sites[i], fmt.Sprint(life), 6)
		c.kill(i)
		c.elect(next, next, (i+2)%3)
		c.tell()
		c.sites[next].open("orders")
		c.sites[next].shows(fmt.Sprintf("leader %d", life+2), p.left()...)
		c.start(i)
		c.settle("all are in sync", func() bool { return len(c.inSync()) == 3 })
	}
}

// TestARollupOfManySubjects: all messages of all subjects that match are removed with one batch,
// and none if they are too many.
func TestARollupOfManySubjects(t *testing.T) {
	n := newSite(t)
	n.limits(func(s *coordination.StreamSettings) { s.AllowRollup = true })
	n.serve("orders")
	put := func(of string, count int) {
		for count > 0 {
			some := min(count, 4096)
			n.ask(of, prefixed(numbered(some)...), fmt.Sprintf("Records: %d", some))
			count -= some
		}
	}
	put("orders.a.x", 5000)
	put("orders.b", 1)
	put("orders.a.y", 3000)
	n.expect(n.ask("orders.a.*", "x", "Rollup: sub"), "orders@8002")
	n.shows("the subjects are rolled up", "5001 orders.b", "8002 orders.a.*")
	n.restart("orders")
	n.shows("after a restart", "5001 orders.b", "8002 orders.a.*")
	put("orders.a.x", indexing.MostOldest)
	if got := n.ask("orders.a.*", "x", "Rollup: sub"); !strings.HasPrefix(got, "no: rollup of 65537 messages, which is more than 65536") {
		t.Errorf("answered %.200q", got)
	}
	n.expect(n.ask("orders.c", "x", "Expect-Last-By-Subject: 73538", "Expect-Subject: orders.a.*"), "orders@73539")
}

// TestAPatternMakesRoom: what a rollup removes doesn't count towards the limit of its subject, as
// soon as the rollup is before the next message.
func TestAPatternMakesRoom(t *testing.T) {
	n := newSite(t)
	n.limits(func(s *coordination.StreamSettings) {
		s.MaxPerSubject, s.DiscardNew, s.DiscardNewPerSubject, s.AllowRollup = 2, true, true, true
	})
	n.serve("orders")
	for i := range 10 {
		reply := func(m int) string { return fmt.Sprintf("r%d.%d", i, m) }
		n.hub.publish(message("orders.a", reply(0), "x"), message("orders.a", reply(1), "x"), message("orders.a", reply(2), "x"),
			message("orders.*", reply(3), "x", "Rollup: sub"), message("orders.a", reply(4), "x"), message("orders.a", reply(5), "x"),
			message("orders.*", reply(6), "x", "Rollup: sub"))
		for m, offset := range []int{1, 2, 0, 3, 4, 5, 6} {
			if got := n.hub.answer(t, reply(m)); got != fmt.Sprintf("orders@%d", 6*i+offset) && !(offset == 0 && strings.Contains(got, "2 messages per subject")) {
				t.Fatalf("%s: answered %q", reply(m), got)
			}
		}
	}
}

// TestPatternsOfSeveralShards: a shard knows what it has, and nothing of the others.
func TestPatternsOfSeveralShards(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Shards, s.Stream.AllowRollup = 2, true })
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		n.placeShard("orders", i, self)
	}
	n.tell()
	n.open("orders")
	for _, headers := range [][]string{{"Rollup: sub"}, {"Expect-Last-By-Subject: 0"}, {"Expect-Last-By-Subject: 0", "Expect-Subject: orders.>"}} {
		if got := n.ask("orders.*", "x", headers...); !strings.Contains(got, "expecting the last message of more than one shard is not possible") {
			t.Errorf("%q: answered %q", headers, got)
		}
	}
	shard := n.service.Topic("orders").ShardFor([]byte("orders.a")).name
	before := n.ask("orders.a", "x")
	at := strings.TrimPrefix(before, shard+"@")
	n.expect(n.ask("orders.a", "x", "Expect-Topic: "+shard, "Expect-Subject: orders.>", "Expect-Last-By-Subject: "+at), shard+"@2")
}
