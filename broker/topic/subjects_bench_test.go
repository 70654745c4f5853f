package topic

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// One publisher sends reads of 64 messages on 1,000 subjects, and waits for each read's acks
// sixteen reads later: while nobody asks about subjects, while a client asks for their number ten
// times a second, and after a condition has asked for the last message of one.
func BenchmarkPublishBesideQuestions(b *testing.B) {
	const subjects = 1000
	for _, beside := range []string{"nothing", "questions", "conditions"} {
		b.Run("beside="+beside, func(b *testing.B) {
			n, hub, topic := benchSite(b, 1, func(*coordination.TopicSpec) {})
			reads := make([][]protocol.Message, 125)
			for i := range reads {
				for k := range 64 {
					reads[i] = append(reads[i], message(fmt.Sprintf("orders.%d", (64*i+k)%subjects), "0", string(make([]byte, 256))))
				}
			}
			if beside == "conditions" {
				(*taker)(topic).Take([]protocol.Message{message("orders.0", "0", "", "Expect-Last-By-Subject: 0")}, nil, false)
				<-hub.waiting[0]
			}
			ctx, cancel := context.WithCancel(context.Background())
			asking := make(chan struct{})
			go func() {
				defer close(asking)
				for beside == "questions" && ctx.Err() == nil {
					if leader := n.service.Topic("orders").Shard(); leader != nil {
						_, _ = leader.NumSubjects(ctx, time.Second)
					}
					select {
					case <-ctx.Done():
					case <-time.After(100 * time.Millisecond):
					}
				}
			}()
			out := 0
			b.ResetTimer()
			for i := range b.N {
				(*taker)(topic).Take(reads[i%len(reads)], nil, false)
				for out += 64; out > 16*64; out-- {
					<-hub.waiting[0]
				}
			}
			for ; out > 0; out-- {
				<-hub.waiting[0]
			}
			b.StopTimer()
			cancel()
			<-asking
			b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// One publisher sends reads of 64 messages on 1,000 subjects, which have no limit, or one: each
// message removes an older one.
func BenchmarkPublishWithLimit(b *testing.B) {
	const subjects = 1000
	for _, limit := range []int64{0, 1, 10} {
		b.Run(fmt.Sprintf("limit=%d", limit), func(b *testing.B) {
			_, hub, topic := benchSite(b, 1, func(s *coordination.TopicSpec) { s.Stream.MaxPerSubject = limit })
			reads := make([][]protocol.Message, 125)
			for i := range reads {
				for k := range 64 {
					reads[i] = append(reads[i], message(fmt.Sprintf("orders.%d", (64*i+k)%subjects), "0", string(make([]byte, 256))))
				}
			}
			out := 0
			publish := func(reads [][]protocol.Message) {
				for _, read := range reads {
					(*taker)(topic).Take(read, nil, false)
					for out += len(read); out > 16*len(read); out-- {
						<-hub.waiting[0]
					}
				}
			}
			for range 2 {
				publish(reads) // so that each subject has as many as it may have
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				publish(reads[i%len(reads):][:1])
			}
			for ; out > 0; out-- {
				<-hub.waiting[0]
			}
			b.StopTimer()
			b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// Publishers create subjects, as a key-value bucket does: each message expects that its subject has
// none, and the next one waits for its ack.
func BenchmarkCreateSubjects(b *testing.B) {
	for _, publishers := range []int{1, 64} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			_, hub, topic := benchSite(b, publishers, func(s *coordination.TopicSpec) { s.Durability = coordination.Memory })
			next := make(chan int, publishers)
			done := make(chan struct{})
			for p := range publishers {
				go func() {
					for i := range next {
						(*taker)(topic).Take([]protocol.Message{message(fmt.Sprintf("orders.%d", i), fmt.Sprint(p), "x", "Expect-Last-By-Subject: 0")}, nil, false)
						<-hub.waiting[p]
					}
					done <- struct{}{}
				}()
			}
			b.ResetTimer()
			for i := range b.N {
				next <- i
			}
			close(next)
			for range publishers {
				<-done
			}
		})
	}
}
