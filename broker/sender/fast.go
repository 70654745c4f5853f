package sender

import (
	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// fastCodec is a Codec with fast batches.
type fastCodec interface {
	publish.Codec
	publish.FastCodec
}

// fastPart reads how a message belongs to a fast batch. No lock is needed.
func (f *Sender) fastPart(m *protocol.Message) (p publish.FastPart, ok bool) {
	if !f.isFast(m.Reply) || len(m.To) > 0 {
		return p, false
	}
	return f.fw.fast.Fast(m.Reply, m.Data[:m.Header])
}

// takeFast has a message join its fast batch. It reports whether the message goes to the leader,
// and sets then what it has to stand behind. Answers are sent before it returns, so that none that
// says less comes after one that says more. mu is held.
func (f *Sender) takeFast(v View, m *protocol.Message, p *publish.FastPart, at int64) (goesOn bool) {
	out := replies.Get().(*publish.Replies)
	to := f.fastAnswers(v, out)
	open := f.fw.fasts.Load() + int64(f.fast.Len()-f.fasts)
	m.Behind, goesOn = f.fast.Take(v.Batches(), m, p, f.box.Next(), open < batching.MaxFastTotal, at, &to)
	f.fw.send(out)
	return goesOn
}

// isFast reports whether a message may be of a fast batch. No lock is needed.
func (f *Sender) isFast(reply []byte) bool { return f.fw.fast != nil && f.fw.fast.IsFast(reply) }

// settleFast notes what became of a message that may be of a fast batch, if it is. Only its batch
// answers it then. mu is held.
func (f *Sender) settleFast(v View, seq uint64, reply []byte, is batching.Outcome, out *publish.Replies) (answered bool) {
	p, ok := f.fw.fast.Fast(reply, nil)
	if !ok {
		return false
	}
	to := f.fastAnswers(v, out)
	for _, behind := range f.fast.Settle(&p, seq, reply, is, &to) {
		f.box.Abandon(behind)
	}
	return true
}

// fastAnswers returns where the answers of fast batches go.
func (f *Sender) fastAnswers(v View, out *publish.Replies) batching.Answers {
	return batching.Answers{Codec: f.fw.fast, Topic: f.id.Name, Silent: v.NoAck(), Out: out}
}

// expireFast ends the fast batches whose publishers are gone. mu is held.
func (f *Sender) expireFast(v View) {
	now, t := forward.Mono(), v.Batches()
	if f.fast.Len() == 0 || now < f.fastDue && t != nil && t.Fast {
		return
	}
	f.fast.Expire(t, now)
	f.fastDue = now + int64(fastTick)
}
