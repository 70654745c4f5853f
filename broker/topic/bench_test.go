package topic

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/work"
)

// signals is a hub that wakes the publisher whose number is its reply subject.
type signals struct {
	*testHub
	waiting []chan struct{}
	sends   atomic.Int64
	flow    chan uint64 // sequences of a fast batch that are acknowledged; nil: nobody sends one
}

func (s *signals) Send(messages []protocol.Message) (behind work.Behind) {
	s.sends.Add(1)
	for i := range messages {
		if s.flow != nil {
			if rest, ok := bytes.CutPrefix(messages[i].Data, []byte("ack ")); ok {
				sequence, _ := strconv.ParseUint(string(rest), 10, 64)
				s.flow <- sequence
			}
			continue
		}
		n := 0
		for _, c := range messages[i].Subject {
			n = 10*n + int(c-'0')
		}
		s.waiting[n] <- struct{}{}
	}
	return behind
}

// benchSite serves one Topic from the machine's disk.
func benchSite(t testing.TB, publishers int, change func(*coordination.TopicSpec)) (*site, *signals, *Topic) {
	n := newSite(t)
	n.fs, n.dir, n.options = env.OS, t.TempDir(), log.Options{}
	hub := &signals{}
	for range publishers {
		hub.waiting = append(hub.waiting, make(chan struct{}, 4096))
	}
	n.front = func(h *testHub) publish.Hub {
		hub.testHub = h
		return hub
	}
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	n.topic("orders", change)
	n.place("orders", self)
	n.tell()
	n.open("orders")
	return n, hub, n.service.Topic("orders")
}

// BenchmarkPublishAndWait measures publishers that each send one message of 256 bytes at a time and
// wait for its ack.
func BenchmarkPublishAndWait(b *testing.B) {
	for _, publishers := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			n, hub, topic := benchSite(b, publishers, nil)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for i := range publishers {
				wg.Go(func() {
					m := []protocol.Message{{Subject: []byte("orders.eu"), Reply: []byte(strconv.Itoa(i)), Data: make([]byte, 256)}}
					for left.Add(-1) >= 0 {
						(*taker)(topic).Take(m, nil, false)
						<-hub.waiting[i]
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acks/s")
			b.ReportMetric(float64(b.N)/float64(max(hub.sends.Load(), 1)), "acks/send")
			b.ReportMetric(float64(b.N)/float64(max(n.disk.Stats().Rounds, 1)), "acks/sync")
		})
	}
}

// BenchmarkPublishWindow measures one publisher of reads of 64 messages, which waits for each
// read's acks sixteen reads later.
func BenchmarkPublishWindow(b *testing.B) {
	for _, with := range []string{"nothing", "ids"} {
		b.Run("with="+with, func(b *testing.B) {
			_, hub, topic := benchSite(b, 1, func(s *coordination.TopicSpec) { s.Deduplication = 2e9 })
			read := make([]protocol.Message, 64)
			for i := range read {
				read[i] = message("orders.eu", "0", string(make([]byte, 256)))
				if with == "ids" {
					read[i] = message("orders.eu", "0", string(make([]byte, 256)), "Id: 0123456789abcdef")
				}
			}
			id, out := 0, 0
			b.ResetTimer()
			for range b.N {
				if with == "ids" {
					for i := range read {
						id++
						copy(read[i].Data[len("NATS/1.0\r\nId: "):], fmt.Appendf(nil, "%016d", id))
					}
				}
				(*taker)(topic).Take(read, nil, false)
				for out += len(read); out > 16*len(read); out-- {
					<-hub.waiting[0]
				}
			}
			for ; out > 0; out-- {
				<-hub.waiting[0]
			}
			b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// BenchmarkPublishFast measures one fast batch beside BenchmarkPublishWindow: as many messages at a
// time, and as many without an ack at most. Its acks are for 100 messages each.
func BenchmarkPublishFast(b *testing.B) {
	_, hub, topic := benchSite(b, 1, func(s *coordination.TopicSpec) {
		s.Deduplication, s.Stream.AllowBatched = 2e9, true
	})
	hub.flow = make(chan uint64, 4096)
	read := make([]protocol.Message, 64)
	for i := range read {
		read[i] = message("orders.eu", "", string(make([]byte, 256)))
	}
	sent, acked := uint64(0), uint64(0)
	b.ResetTimer()
	for range b.N {
		for i := range read {
			sent++
			read[i].Reply = strconv.AppendUint(append(read[i].Reply[:0], "fast x "...), sent, 10)
		}
		(*taker)(topic).Take(read, nil, false)
		for sent > acked+uint64(16*len(read)) {
			acked = max(acked, <-hub.flow)
		}
	}
	for sent > acked+100 {
		acked = max(acked, <-hub.flow)
	}
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// BenchmarkOpen measures opening 10,000 existing Topics.
func BenchmarkOpen(b *testing.B) {
	const topics = 10_000
	n := newSite(b)
	n.fs, n.dir, n.options = env.OS, b.TempDir(), log.Options{}
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("t%d", i))
	}
	n.serve(names...)
	for _, name := range names {
		n.ask(name+".a", "one")
	}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		n.stop()
		b.StartTimer()
		n.serve(names...)
	}
	b.ReportMetric(topics*float64(b.N)/b.Elapsed().Seconds(), "topics/s")
}
