package session

// carrier brings messages from other memory into batches: it copies each into a slab of its own,
// which the queues of the loops may then refer to. One goroutine uses it at a time.
type carrier struct {
	batch *batch
	used  int // of batch.from
	open  bool
}

// arenaSize is how much of what a carrier brings shares one slab.
const arenaSize = fullChunk

// carry copies the message and returns the copy, which stands until the next call. The batch is begun.
func (c *carrier) carry(m *Message) *Message {
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

func (c *carrier) keep(part []byte) []byte {
	buf := c.batch.from.buf
	n := copy(buf[c.used:], part)
	kept := buf[c.used : c.used+n : c.used+n]
	c.used += n
	return kept
}

// flush hands over what was carried.
func (c *carrier) flush() {
	if c.open {
		c.open = false
		c.batch.end()
		c.batch.outpaced = nil
		c.batch.behind = c.batch.behind[:0]
	}
}

// drop lets go of the memory.
func (c *carrier) drop() {
	if c.batch.from != nil {
		c.batch.from.release()
		c.batch.from = nil
	}
	c.used = 0
}
