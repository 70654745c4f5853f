package sender

import "github.com/carillon-mq/carillon/broker/forward"

// Settled are the chunks of answered messages, to be freed once the answers have been sent.
type Settled struct{ chunks []settledChunk }

type settledChunk struct {
	by       *Sender
	in       *forward.Chunk
	messages int
}

// add counts one message. Neighbours mostly share a chunk.
func (d *Settled) add(by *Sender, in *forward.Chunk) {
	if n := len(d.chunks); n > 0 && d.chunks[n-1].in == in {
		d.chunks[n-1].messages++
		return
	}
	d.chunks = append(d.chunks, settledChunk{by, in, 1})
}

// Free returns the chunks to their outboxes. No sender's mu is held.
func (d *Settled) Free() {
	for i := 0; i < len(d.chunks); {
		f := d.chunks[i].by
		f.mu.Lock()
		for ; i < len(d.chunks) && d.chunks[i].by == f; i++ {
			f.free(d.chunks[i].in, d.chunks[i].messages)
		}
		f.account()
		f.mu.Unlock()
	}
	clear(d.chunks)
	d.chunks = d.chunks[:0]
}
