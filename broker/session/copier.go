package session

// slabCopier copies messages from foreign memory into slabs, so that the loops' queues can refer to
// them, and adds them to a batch. It is not safe for concurrent use.
type slabCopier struct {
	batch *batch
	used  int // used bytes of batch.from
	open  bool
}

// arenaSize is the size in bytes of a slab that several messages share.
const arenaSize = fullChunk

// copyIn copies a message and begins the batch if needed. The result is valid until the next call.
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
	b.msg = Message{To: c.copyPart(m.To), Subject: c.copyPart(m.Subject), Reply: c.copyPart(m.Reply), Header: m.Header, Data: c.copyPart(m.Data)}
	return &b.msg
}

func (c *slabCopier) copyPart(part []byte) []byte {
	if len(part) == 0 {
		return nil
	}
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
		c.batch.slowReceiver = nil
		c.batch.behindTakers.Clear()
	}
}

// drop releases the slab.
func (c *slabCopier) drop() {
	if c.batch.from != nil {
		c.batch.from.Release()
		c.batch.from = nil
	}
	c.used = 0
}
