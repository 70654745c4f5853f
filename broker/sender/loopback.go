package sender

import (
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
)

// loopback is the way from this broker to the shards that it leads: answers and signals of their
// leaders reach its senders directly. Messages don't travel on it: deliver calls the leader.
type loopback struct{ link *Link }

func (b *loopback) Carry(parts ...[]byte) (behind bool) {
	var buf [128]byte
	frame := buf[:0]
	for _, part := range parts {
		frame = append(frame, part...)
	}
	h, rest, err := forward.ParseFrameHead(frame)
	if err != nil {
		return false // this broker's own frames are well-formed
	}
	fw := b.link.senders
	shard := fw.config.Shard(h.Topic, h.Shard)
	if shard == nil {
		return false // deleted meanwhile; its sender fails what it holds
	}
	f := shard.Sender().of(h.Source)
	if f == nil {
		return false // of a shard that was deleted meanwhile
	}
	switch h.Kind {
	case forward.FrameAnswers:
		var out publish.Replies
		var done Settled
		_ = f.Answered(h.Round, rest, &out, &done)
		if len(out.Messages) > 0 {
			fw.config.Hub.Send(out.Messages)
		}
		done.Free()
	case forward.FrameAgain, forward.FrameReady:
		f.again(h.Round, h.Kind == forward.FrameReady)
	}
	return false
}

func (b *loopback) Wait() {}
