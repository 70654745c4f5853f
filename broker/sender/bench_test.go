package sender

import (
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
)

// BenchmarkPublishAndAnswer measures what a sender adds to a message of 256 bytes, for one sender
// and for several that publish at once to shards of one leader. Nothing is sent.
func BenchmarkPublishAndAnswer(b *testing.B) {
	for _, senders := range []int{1, 2} {
		b.Run(fmt.Sprintf("senders=%d", senders), func(b *testing.B) {
			fw, _, _ := newShard(state{})
			fw.config.Hub = discarding{}
			fw.Attach("a", &counting{Carrier: &frames{}})
			done := make(chan struct{})
			b.ReportAllocs()
			b.ResetTimer()
			for range senders {
				go func() {
					defer func() { done <- struct{}{} }()
					s := &shard{}
					s.now.Store(&state{leader: "a", epoch: 1, replicas: 3})
					s.sender = fw.New(ID{TopicID: "id-orders", Topic: "orders", Name: "orders"}, s)
					m := messageOf(make([]byte, 256))
					var a forward.Answers
					var out publish.Replies
					var settled Settled
					for n := range uint64(b.N / senders) {
						s.sender.Publish(s.View(), m, nil)
						a.Kept(n+1, n+1, 1)
						a.Flush()
						if err := s.sender.Answered(s.sender.round, a.Buf, &out, &settled); err != nil {
							b.Error(err)
						}
						settled.Free()
						a.Reset()
					}
				}()
			}
			for range senders {
				<-done
			}
		})
	}
}
