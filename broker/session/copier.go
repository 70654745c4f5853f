package session

// slabCopier copies messages from foreign memory into slabs, which queues of the loops may refer to, and
// adds them to a batch. One goroutine uses it at a time.
type slabCopier struct {
	batch *batch
	used  int // of batch.from
	open  bool
}

// arenaSize is how much of what a slabCopier copies shares one slab.
const arenaSize = fullChunk

// copyIn copies a message, beginning the batch if necessary. The copy is valid until the next call.
func (c *slabCopier) copyIn(m *Message) *Message {
	b := c.batch
	need := len(m.To) + len(m.Subject) + len(m.Reply) + len(m.Data)
	if b.from == nil || len(b.from.buf)-c.used < need {
		c.flush()
		c.drop()
		b.from = newSlab(max(need, arenaSize))
	}
	if !c.open {
		c.open = true
		b.begin()
	}
	b.msg = Message{To: c.keep(m.To), Subject: c.keep(m.Subject), Reply: c.keep(m.Reply), Header: m.Header, Data: c.keep(m.Data)}
	return &b.msg
}

func (c *slabCopier) keep(part []byte) []byte {
	buf := c.batch.from.buf
	n := copy(buf[c.used:], part)
	kept := buf[c.used : c.used+n : c.used+n]
	c.used += n
	return kept
}

// flush ends the batch, which queues its messages.
func (c *slabCopier) flush() {
	if c.open {
		c.open = false
		c.batch.end()
		c.batch.outpaced = nil
		c.batch.behind = c.batch.behind[:0]
	}
}

// drop releases the slab.
func (c *slabCopier) drop() {
	if c.batch.from != nil {
		c.batch.from.release()
		c.batch.from = nil
	}
	c.used = 0
}
